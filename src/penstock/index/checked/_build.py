"""Builds an index whose records are all read: by units, whose results are put together in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import compress, groupby
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np

from penstock.decode import JSON_NAMES, decode_as_json, decode_fast
from penstock.errors import OptionError
from penstock.index._fingerprint import digest
from penstock.index._formats import format_named, load
from penstock.index._names import BAD_LINES
from penstock.index._parts import FilePart, LinePiece, PartsUnit, opened_blocks, opened_lines
from penstock.index._scan import LineScan, ScannedFrames, Scanner
from penstock.index.checked._checks import (
    Aside,
    Look,
    PartFound,
    UnitFound,
    read_bad_lines,
    write_bad_lines,
)
from penstock.index.profile._document import write_profile
from penstock.index.profile._profile import Profile, old_profile
from penstock.index.profile._values import UNREADABLE
from penstock.jsonl import reason_text
from penstock.work import UnitResults, grouped, run_units

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from penstock.index._build import Builder
    from penstock.index._waiting import FileToScan
    from penstock.index.checked._checks import Checks
    from penstock.storage import Draft

    _PartResult = tuple[FilePart, PartFound, NDArray[np.int64]]

_NEWLINE = 10
_FORMAT = 2
"""Of the units' output."""
_ROW_BYTES = 16
_ROWS_AT_ONCE = 1 << 16
_LITTLE = 64 << 20
"""Bytes that are read in the time in which processes start."""


class LineCheck:
    """Reads lines, or other records, and keeps those that are set aside.

    Without `validate` every line that is not blank is a record, as in a plain scan.
    """

    def __init__(self, look: Look, decode: Callable[[bytes], object] | None = None) -> None:
        self._checks, self._profile, self._on_rows, self._chosen = look
        self._decode = decode or decode_as_json
        self._decode_fast = decode_fast if self._decode is decode_as_json else self._decode
        self.records = 0
        self.aside: list[Aside] = []

    def add(self, piece: LinePiece) -> None:
        if piece.too_long:
            reason = self._too_long()
            self.aside.append(Aside(piece.newlines, piece.offset, piece.too_long, reason))
            return
        scan = LineScan(may_be_marked=False)
        places = np.concatenate([scan.add(piece.text), scan.finish()])
        lines = [line for line in piece.text.split(b"\n") if line.strip()] if self._checks else []
        self.add_found(piece, lines, places)

    def add_found(self, piece: LinePiece, lines: list[bytes], places: NDArray[np.int64]) -> None:
        """Take records that were found in a text: each of them, with offset and bytes there."""
        if self._chosen is not None:
            chosen = self._chosen(len(places))
            lines, places = [lines[number] for number in chosen], places[chosen]
        reasons, values = self._read(lines, places[:, 1]) if self._checks else ({}, [])
        if reasons:
            newlines = np.flatnonzero(np.frombuffer(piece.text, np.uint8) == _NEWLINE)
            for number in sorted(reasons):
                offset, size = places[number].tolist()
                before = piece.newlines + int(np.searchsorted(newlines, offset))
                self.aside.append(Aside(before, piece.offset + offset, size, reasons[number]))
            places = np.delete(places, list(reasons), axis=0)
        if len(places):
            places[:, 0] += piece.offset
            self._on_rows(places)
            self.records += len(places)
            if self._profile is not None:
                self._profile.add(values, self._profile.records)

    def _read(
        self, lines: list[bytes], sizes: NDArray[np.int64]
    ) -> tuple[dict[int, str], list[object]]:
        """Return the lines to set aside with their reasons, and the values of the others."""
        most = self._checks.max_line_bytes
        if most is None or not (is_long := sizes > most).any():
            return self._decoded(lines)
        long = np.flatnonzero(is_long).tolist()
        reasons = dict.fromkeys(long, self._too_long())
        numbers = np.flatnonzero(~is_long).tolist()
        others, values = self._decoded(list(compress(lines, ~is_long)))
        return reasons | {numbers[n]: reason for n, reason in others.items()}, values

    def _decoded(self, lines: list[bytes]) -> tuple[dict[int, str], list[object]]:
        reasons: dict[int, str] = {}
        values: list[object] = []
        rest = iter(lines)
        # Without a profile the types suffice; to hold all values takes twice as long.
        kept = iter if self._profile is not None else partial(map, type)
        while True:
            try:
                # No Python between two lines. When a line fails, those before it are in the list,
                # so its number is known, and `rest` continues behind it.
                values.extend(kept(map(self._decode_fast, rest)))
                break
            except (ValueError, RecursionError):
                number = len(values) + len(reasons)
                try:
                    values.extend(kept([self._decode(lines[number])]))
                except ValueError as why:
                    if self._checks.validate:
                        reasons[number] = reason_text(why)
                    else:
                        values.append(UNREADABLE)
        types: list[Any] = values if self._profile is None else list(map(type, values))
        if self._checks.validate and not set(types) <= {dict}:
            numbers = [number for number in range(len(lines)) if number not in reasons]
            for number, type_ in zip(numbers, types, strict=True):
                if type_ is not dict:
                    reasons[number] = f"{JSON_NAMES[type_]}, not an object"
            values = [value for value in values if type(value) is dict]
        return reasons, values

    def _too_long(self) -> str:
        return f"longer than {self._checks.max_line_bytes:,} bytes"


def unit_key(builder: Builder) -> str:
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
    options = builder.options
    how = [_FORMAT, options.unit_bytes, msgspec.to_builtins(options.checks)]
    return digest([how, scanner, builder.listing.base, files])


def scan_checked(builder: Builder, units_in: Path, folder: Path) -> None:
    """Scan all files by units that publish in `units_in`, and write the index into `folder`."""
    options = builder.options
    parts = [part for one in builder.waiting for part in builder.parts_of(one)]
    results = UnitResults(str(units_in))
    units = [
        ScanUnit(results, number, group, builder.scanner, options.checks)
        for number, group in enumerate(grouped(parts, options.unit_bytes))
    ]
    workers = options.num_workers
    if workers is None and builder.bytes < _LITTLE:
        workers = 0
    with builder.progress() as bar:
        run_units(units, workers=workers, advance=bar.add)
    _write(builder, units, folder)


def _write(builder: Builder, units: list[ScanUnit], folder: Path) -> None:
    options, old, profile = builder.options, builder.old, None
    if options.profile:
        profile = old_profile(old) if old is not None else Profile()
    with ExitStack() as stack:
        rows = stack.enter_context(builder.begin_rows(folder))
        bad = None
        if options.validate:
            bad = stack.enter_context((folder / BAD_LINES).open("wb"))
            if old is not None and old.origin is not None:
                # Those of files that are not read again from the start.
                again = {one.relative for one in builder.waiting if one.was is None}
                lines = read_bad_lines(old.origin.folder)
                write_bad_lines(bad, (line for line in lines if line.file not in again))
        waiting = iter(builder.waiting)
        for _, of_file in groupby(_found(units, profile), lambda item: item[0].found.path):
            one = next(waiting)
            _put_together(builder, one, of_file, rows, bad)
            with one.found.open() as file:
                builder.add(one, file)
    if profile is not None:
        write_profile(folder, profile)


def _put_together(
    builder: Builder,
    one: FileToScan,
    of_file: Iterator[_PartResult],
    rows: BinaryIO,
    bad: BinaryIO | None,
) -> None:
    """Write the rows and the bad lines of a file."""
    newlines = (one.was.newlines or 0) if one.was else 0
    for _, part, places in of_file:
        some = (places[at : at + _ROWS_AT_ONCE] for at in range(0, len(places), _ROWS_AT_ONCE))
        builder.write_rows(one, some, rows)
        if bad is not None:
            write_bad_lines(bad, (line.in_file(one.relative, newlines) for line in part.aside))
        one.bad_lines += len(part.aside)
        one.frames.append(np.array(part.frames, np.int64).reshape(-1, 4))
        one.facts = part.facts
        newlines += part.newlines
    if bad is not None:
        one.newlines = newlines


def _found(units: list[ScanUnit], profile: Profile | None) -> Iterator[_PartResult]:
    """Yield the result of each part, in order, and add its profile to `profile`."""
    for unit in units:
        found, rows = unit.result_of()
        if profile is not None and found.profile is not None:
            profile.merge(Profile.from_bytes(found.profile), profile.records)
        borders = np.cumsum([part.records for part in found.parts[:-1]], dtype=np.int64)
        yield from zip(unit.parts, found.parts, np.split(rows, borders), strict=True)


@dataclass(frozen=True)
class ScanUnit(PartsUnit):
    """Parts that are scanned and checked; the result is int64[records, 2] and a `UnitFound`."""

    scanner: Scanner
    checks: Checks

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        profile = Profile(is_text=not self.scanner.is_typed) if self.checks.profile else None
        look = Look(
            self.checks, profile, lambda places: draft.write(places.astype("<i8").tobytes())
        )
        row = format_named(self.scanner.kind)
        scan = scan_part if row is None or row.scan is None else load(row.scan)
        parts = [scan(part, self.scanner, look, advance) for part in self.parts]
        self.describe(draft, UnitFound(parts, None if profile is None else profile.to_bytes()))

    def result_of(self) -> tuple[UnitFound, NDArray[np.int64]]:
        """Return what was found, and offset and bytes of all records."""
        data, size, found = self.opened(UnitFound)
        counts = [part.records for part in found.parts]
        if min(counts, default=0) < 0 or sum(counts) * _ROW_BYTES > size:
            raise self.damaged("its description names other rows than it holds")
        return found, np.frombuffer(data, "<i8", 2 * sum(counts)).reshape(-1, 2)


def scan_part(
    part: FilePart, scanner: Scanner, look: Look, advance: Callable[[int], object]
) -> PartFound:
    """Return the records that a scanner finds in a part, each of them read where that is asked."""
    if scanner.decode is None and look.checks:
        raise OptionError(
            f"records of {scanner.kind} can be neither validated nor profiled: they have no "
            "decode. penstock convert writes them as JSON Lines, which can be both."
        )
    return check_part(part, scanner, LineCheck(look, scanner.decode), advance)


def check_part(
    part: FilePart, scanner: Scanner, check: LineCheck, advance: Callable[[int], object]
) -> PartFound:
    """Hand the records that a scanner finds in a part to a check."""
    scan, frames = scanner.begin(part.found.path, part.facts, part.start), ScannedFrames()
    held, at, newlines = bytearray(), part.start, 0  # The text of the record that is not over.

    def take(places: NDArray[np.int64]) -> None:
        nonlocal at, newlines
        if len(places):
            end = part.start + int(places[-1].sum()) - at
            piece = LinePiece(at, newlines, bytes(held[:end]))
            places[:, 0] += part.start - at
            texts = [piece.text[begin : begin + size] for begin, size in places.tolist()]
            check.add_found(piece, texts, places)
            newlines += piece.text.count(b"\n")
            del held[:end]
            at += end

    with opened_blocks(part, advance, frames) as blocks:
        for block in blocks:
            held += block
            take(scan.add(block))
    take(scan.finish())
    newlines += held.count(b"\n")
    return PartFound(check.records, check.aside, newlines, frames.as_tuples, scan.facts())


def scan_lines(
    part: FilePart, scanner: Scanner, look: Look, advance: Callable[[int], object]
) -> PartFound:
    """Return the records among the lines of a part; long lines are not kept in memory."""
    check, frames = LineCheck(look, scanner.decode), ScannedFrames()
    with opened_lines(part, advance, look.checks.max_line_bytes, frames) as lines:
        for piece in lines:
            check.add(piece)
    return PartFound(check.records, check.aside, lines.newlines, frames.as_tuples)
