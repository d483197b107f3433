"""Builds an index whose records are all read: by units, whose results are put together in order."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from penstock.errors import OptionError
from penstock.index._bad_lines import BadLine, copy_bad_lines, write_bad_lines
from penstock.index._builder import Scanned
from penstock.index._fingerprint import digest
from penstock.index._names import BAD_LINES
from penstock.index._parts import PartsUnit, opened_lines, parts_of
from penstock.index._scan import LineScanner
from penstock.index.checked._checks import Look, PartFound, UnitFound
from penstock.index.checked._line_check import LineCheck
from penstock.index.profile._files import old_profile, write_profile
from penstock.index.profile._profile import Profile
from penstock.work import UnitResults, grouped, run_units, viewed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from penstock.index._build import BuildOptions
    from penstock.index._builder import Builder, FileToScan
    from penstock.index._parts import FilePart
    from penstock.index._scan import Scanner
    from penstock.index.checked._checks import Checks
    from penstock.storage import Draft

_FORMAT = 1
"""Of the units' output."""
_ROW_BYTES = 16
_ROWS_AT_ONCE = 1 << 16
_LITTLE = 64 << 20
"""Bytes that are read in the time in which processes start."""


def unit_key(builder: Builder, options: BuildOptions) -> str:
    """Return a key of the units of a build, another one wherever their results would differ."""
    files = [
        [
            one.relative,
            one.start,
            one.found.entry.size,
            one.found.entry.modified,
            one.found.entry.version,
            one.was and one.was.facts,
        ]
        for one in builder.waiting
    ]
    scanner = [builder.scanner.kind, builder.scanner.options()]
    how = [_FORMAT, options.unit_bytes, msgspec.to_builtins(options.checks)]
    return digest([how, scanner, builder.listing.base, files])


def scan_checked(builder: Builder, options: BuildOptions, units_in: Path, folder: Path) -> None:
    """Scan all files by units that publish in `units_in`, and write the index into `folder`."""
    parts = [
        part
        for one in builder.waiting
        for part in parts_of(
            one.found,
            one.start,
            builder.scanner,
            options.unit_bytes,
            one.was.facts if one.was else None,
        )
    ]
    results = UnitResults(str(units_in))
    units = [
        ScanUnit(results, number, group, builder.scanner, options.checks)
        for number, group in enumerate(grouped(parts, options.unit_bytes))
    ]
    workers = options.num_workers
    if workers is None and builder.bytes < _LITTLE:
        workers = 0
    with viewed(options.progress, builder.bytes, "indexing") as bar:
        run_units(units, workers=workers, advance=bar.add)
    _write(builder, options, units, folder)


def _write(builder: Builder, options: BuildOptions, units: list[ScanUnit], folder: Path) -> None:
    checks, old = options.checks, builder.old
    profile = None
    if checks.profile:
        profile = old_profile(old) if old is not None else Profile()
    with ExitStack() as stack:
        rows = stack.enter_context(builder.begin_rows(folder))
        bad = None
        if checks.validate:
            bad = stack.enter_context((folder / BAD_LINES).open("wb"))
            if old is not None and old.origin is not None:
                # Those of files that are not read again from the start.
                again = {one.relative for one in builder.waiting if one.was is None}
                copy_bad_lines(old.origin.folder, bad, again)
        waiting = iter(builder.waiting)
        for _, of_file in groupby(_found(units, profile), lambda item: item.part.found.path):
            one = next(waiting)
            scanned = _put_together(builder, one, of_file, rows, bad)
            builder.add(one, scanned, full_hash=options.full_hash)
    if profile is not None:
        write_profile(folder, profile)


def _put_together(
    builder: Builder,
    one: FileToScan,
    of_file: Iterator[_Found],
    rows: BinaryIO,
    bad: BinaryIO | None,
) -> Scanned:
    """Write the rows and the bad lines of a file."""
    scanned = Scanned()
    newlines = (one.was.newlines or 0) if one.was else 0
    for _, part, places in of_file:
        builder.write_rows(one, places, rows, scanned)
        if bad is not None:
            write_bad_lines(
                bad,
                (
                    BadLine(one.relative, newlines + a.newlines + 1, a.offset, a.size, a.reason)
                    for a in part.aside
                ),
            )
        scanned.bad_lines += len(part.aside)
        scanned.frames.append(np.array(part.frames, np.int64).reshape(-1, 4))
        scanned.facts = part.facts
        newlines += part.newlines
    if bad is not None:
        scanned.newlines = newlines
    return scanned


class _Found(NamedTuple):
    """The result of one part; its rows are read once, before those of the next part."""

    part: FilePart
    found: PartFound
    rows: Iterator[NDArray[np.int64]]


def _found(units: list[ScanUnit], profile: Profile | None) -> Iterator[_Found]:
    """Yield the result of each part, in order, and add its profile to `profile`."""
    for unit in units:
        file = ScanResult(unit)
        if profile is not None and file.found.profile is not None:
            profile.merge(Profile.from_bytes(file.found.profile), profile.records)
        for part, found in zip(unit.parts, file.found.parts, strict=True):
            yield _Found(part, found, file.rows(found.records))


@dataclass(frozen=True)
class ScanUnit(PartsUnit):
    """Parts that are scanned and checked; the result is int64[records, 2] and a `UnitFound`."""

    scanner: Scanner
    checks: Checks

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        """Scan all parts."""
        profile = Profile(is_text=self.scanner.kind == "csv") if self.checks.profile else None
        look = Look(
            self.checks, profile, lambda places: draft.write(places.astype("<i8").tobytes())
        )
        parts = [self._scanned(part, look, advance) for part in self.parts]
        self.describe(draft, UnitFound(parts, None if profile is None else profile.to_bytes()))

    def _scanned(self, part: FilePart, look: Look, advance: Callable[[int], object]) -> PartFound:
        if isinstance(self.scanner, LineScanner):
            return _scan_lines(part, look, advance)
        from penstock.index.csv._scan import CsvScanner  # noqa: PLC0415 (pyarrow)

        if not isinstance(self.scanner, CsvScanner):
            raise OptionError(
                f"records of {self.scanner.kind} can be neither validated nor profiled while they "
                "are indexed; only lines of JSON and rows of CSV can."
            )
        from penstock.index.checked._row_check import scan_rows  # noqa: PLC0415 (pyarrow)

        return scan_rows(part, self.scanner, look, advance)


def _scan_lines(part: FilePart, look: Look, advance: Callable[[int], object]) -> PartFound:
    check = LineCheck(look)
    with opened_lines(part, advance, look.checks.max_line_bytes) as lines:
        for piece in lines:
            check.add(piece)
    return PartFound(check.records, check.aside, lines.newlines, lines.frames)


class ScanResult:
    """The result of a `ScanUnit`."""

    def __init__(self, unit: ScanUnit) -> None:
        self._data, size, self.found = unit.opened(UnitFound)
        records = [part.records for part in self.found.parts]
        if min(records, default=0) < 0 or sum(records) * _ROW_BYTES > size:
            raise unit.damaged("its description names other rows than it holds")
        self._at = 0

    def rows(self, count: int) -> Iterator[NDArray[np.int64]]:
        """Yield the next rows, some at a time: int64[k, 2]."""
        stop = self._at + count
        while self._at < stop:
            some = min(_ROWS_AT_ONCE, stop - self._at)
            rows = np.frombuffer(self._data, "<i8", 2 * some, self._at * _ROW_BYTES)
            self._at += some
            yield rows.reshape(-1, 2)
