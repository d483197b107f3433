"""Building an index whose records are all read: units in any process, put together in order."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from penstock.index._bad_lines import BadLine, copy_bad_lines, write_bad_lines
from penstock.index._builder import Scanned
from penstock.index._fingerprint import digest
from penstock.index._names import BAD_LINES
from penstock.index._parts import parts_of
from penstock.index.checked._unit_folder import UnitFolder
from penstock.index.checked._units import ScanResult, ScanUnit
from penstock.index.profile._files import old_profile, write_profile
from penstock.index.profile._profile import Profile
from penstock.work import UnitResults, grouped, run_units, viewed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType
    from typing import BinaryIO, Self

    from numpy.typing import NDArray

    from penstock.index._build import BuildOptions
    from penstock.index._builder import Builder, Waiting
    from penstock.index._parts import FilePart
    from penstock.index._place import Place
    from penstock.index.checked._checks import PartFound

_FORMAT = 1
"""Of the units' output."""
_LITTLE = 64 << 20
"""Bytes that are read before other processes would have started."""


class CheckedBuild:
    """Units that are done are kept until the index is there; see `UnitFolder`."""

    def __init__(self, builder: Builder, place: Place, options: BuildOptions) -> None:
        self._builder = builder
        self._options = options
        self._units = UnitFolder(place, self._key())

    def _key(self) -> str:
        """Return a name for what is built: another one where units would differ."""
        builder, checks = self._builder, self._options.checks
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
        how = [_FORMAT, self._options.unit_bytes, msgspec.to_builtins(checks)]
        return digest([how, scanner, builder.listing.base, files])

    def __enter__(self) -> Self:
        self._units.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._units.__exit__(kind, failure, trace)

    def scan_all(self, folder: Path) -> None:
        """Scan all files, and write what was found into a folder."""
        builder, options = self._builder, self._options
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
        results = UnitResults(str(self._units.path))
        units = [
            ScanUnit(results, number, group, builder.scanner, options.checks)
            for number, group in enumerate(grouped(parts, options.unit_bytes))
        ]
        workers = options.num_workers
        if workers is None and builder.bytes < _LITTLE:
            workers = 0
        with viewed(options.progress, builder.bytes, "indexing") as bar:
            run_units(units, workers=workers, advance=bar.add)
        self._write(folder, units)

    def _write(self, folder: Path, units: list[ScanUnit]) -> None:
        builder, checks = self._builder, self._options.checks
        profile = None
        if checks.profile:
            profile = old_profile(builder.old) if builder.old is not None else Profile()
        with ExitStack() as stack:
            rows = stack.enter_context(builder.begin_rows(folder))
            bad = None
            if checks.validate:
                bad = stack.enter_context((folder / BAD_LINES).open("wb"))
                self._copy_bad_lines(bad)
            waiting = iter(builder.waiting)
            for _, of_file in groupby(_found(units, profile), lambda item: item.part.found.path):
                self._add(next(waiting), of_file, rows, bad)
        if profile is not None:
            write_profile(folder, profile)

    def _copy_bad_lines(self, bad: BinaryIO) -> None:
        """Begin with what was set aside before, in files that are not read again from the start."""
        old = self._builder.old
        if old is not None and old.origin is not None:
            again = {one.relative for one in self._builder.waiting if one.was is None}
            copy_bad_lines(old.origin.folder, bad, again)

    def _add(
        self,
        one: Waiting,
        of_file: Iterator[_Found],
        rows: BinaryIO,
        bad: BinaryIO | None,
    ) -> None:
        scanned = Scanned()
        newlines = (one.was.newlines or 0) if one.was else 0
        for _, part, places in of_file:
            self._builder.write_rows(one, places, rows, scanned)
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
        self._builder.add(one, scanned, full_hash=self._options.full_hash)


class _Found(NamedTuple):
    """What was found in one part; the rows are read once, before those of the next."""

    part: FilePart
    found: PartFound
    rows: Iterator[NDArray[np.int64]]


def _found(units: list[ScanUnit], profile: Profile | None) -> Iterator[_Found]:
    """Yield what was found in each part, in order; the profile grows along."""
    for unit in units:
        file = ScanResult(unit)
        if profile is not None and file.found.profile is not None:
            profile.merge(Profile.from_bytes(file.found.profile), profile.records)
        for part, found in zip(unit.parts, file.found.parts, strict=True):
            yield _Found(part, found, file.rows(found.records))
