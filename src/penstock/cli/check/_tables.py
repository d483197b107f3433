"""Parts that are checked one by one: JSON arrays, CSV files, and files that are read by units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock._words import plural
from penstock.cli.check._parts import (
    CheckPart,
    Finding,
    PartFindings,
    Sample,
    ToCheck,
    begins,
    reason_of,
)
from penstock.datasets import read_head
from penstock.decode import bad_texts
from penstock.errors import CorruptFileError, MalformedLineError, OptionError, SchemaMismatchError
from penstock.index import (
    ArrayScanner,
    Checks,
    CsvScanner,
    FilePart,
    Found,
    LineCheck,
    Look,
    check_part,
    scan_rows,
)
from penstock.index.csv import DELIMITERS, check_columns
from penstock.jsonl import compression_of
from penstock.tables import CommonColumns, UnifiedSchema, partitions_of
from penstock.work import grouped

if TYPE_CHECKING:
    from penstock.storage import StorageOptions

_BEFORE = 1 << 20


@dataclass(frozen=True, slots=True)
class ArrayPart(CheckPart):
    """The array of a file."""

    sampled: ClassVar = "elements"

    def findings(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield elements that are no objects, or no JSON, and what is wrong with the array."""
        sizes: list[int] = []
        checks, add = Checks(validate=True), lambda rows: sizes.extend(rows[:, 1])
        check = LineCheck(Look(checks, None, add, self.chosen))
        broken = ""
        try:
            check_part(self.part, ArrayScanner(), check, advance)
        except MalformedLineError as failure:
            broken = reason_of(failure)
        seen.records += check.records
        seen.text_bytes += int(sum(sizes)) + sum(aside.size for aside in check.aside)
        for aside in check.aside:
            yield Finding("malformed element", self.path, aside.newlines + 1, aside.reason)
        if broken:
            yield Finding("malformed element", self.path, None, broken)


def array_parts(asked: ToCheck) -> Iterator[ArrayPart]:
    """Yield all files."""
    for path, part, sample in asked.whole():
        yield ArrayPart(path, part, sample=sample)


@dataclass(frozen=True, slots=True)
class CsvPart(CheckPart):
    """The rows of a file."""

    dialect: dict[str, Any]
    is_chosen: bool = False
    """Whether the delimiter was given, so that a single column is what was meant."""
    sampled: ClassVar = "rows"

    def findings(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield rows that cannot be read, or have other fields than the header names."""
        try:
            yield from self._rows(self.part, seen, advance)
        except MalformedLineError as failure:
            # Rows before it are still checked; behind it no row's beginning is known.
            offset = getattr(failure, "offset", None) or 0
            is_plain = compression_of(self.path) is None
            if is_plain and (before := self._last_end(offset)):
                store, entry = self.part.found
                found = Found(store, replace(entry, size=before))
                yield from self._rows(FilePart(found, 0, before), seen, lambda _: None)
            yield Finding("malformed row", self.path, None, reason_of(failure))
        except OptionError as failure:
            yield Finding("malformed header", self.path, None, str(failure))

    def misfit(self, columns: Mapping[str, list[str]]) -> str:
        """Return what opening the files raises."""
        try:
            check_columns(columns.items(), self.dialect)
        except SchemaMismatchError as failure:
            return str(failure)
        return ""

    def _rows(
        self, part: FilePart, seen: PartFindings, advance: Callable[[int], object]
    ) -> Iterator[Finding]:
        look = Look(Checks(validate=True), chosen=self.chosen)
        scanned = scan_rows(part, CsvScanner(**self.dialect), look, advance)
        seen.records += scanned.records
        seen.text_bytes += scanned.text_bytes
        seen.columns = scanned.facts["columns"] if scanned.records else []
        first, *others = scanned.facts["columns"] or [""]
        if not others and not self.is_chosen and any(sign in first for sign in DELIMITERS):
            shown = self.dialect["delimiter"]
            reason = (
                f"one column with the delimiter {shown!r}, and no other delimiter cuts the rows "
                "into the same number of fields; --delimiter chooses"
            )
            yield Finding("malformed header", self.path, 1, reason, begins(first.encode()))
        for aside in scanned.aside:
            start = begins(aside.begins.rstrip(b"\r\n"))
            yield Finding("malformed row", self.path, aside.newlines + 1, aside.reason, start)

    def _last_end(self, offset: int) -> int:
        """Return where the last line ends that ends before a byte."""
        first = max(0, offset - _BEFORE)
        with self.part.found.open() as file:
            return first + file.read_at(first, offset - first).rfind(b"\n") + 1 if offset else 0


def csv_parts(asked: ToCheck) -> Iterator[CsvPart]:
    """Yield all files, in the dialect of their index, or else of their names."""
    dialect = asked.at_path.scanner(asked.made_with).options()
    is_chosen = "delimiter" in asked.at_path.given
    for path, part, sample in asked.whole():
        yield CsvPart(path, part, dialect, is_chosen, sample=sample)


@dataclass(frozen=True, slots=True)
class UnitsPart(CheckPart):
    """Units of a table file."""

    format_name: str
    options: StorageOptions
    given: Mapping[str, Any]
    """Options of the format."""
    unit: str
    """What the format calls its units."""
    units: tuple[int, ...]
    content: ClassVar = "values"

    @property
    def sampled(self) -> str:  # type: ignore[override]
        """What `--sample` takes a share of."""
        return plural(self.unit)

    def findings(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield units that cannot be read, and texts that are not UTF-8."""
        head = read_head(self.format_name, self.part.found, self.options, self.given)
        with self.part.found.open() as file:
            for unit in self.units:
                try:
                    batch = head.read(file, unit, head.schema, at_once=True)
                except CorruptFileError as failure:
                    yield Finding(f"unreadable {head.unit}", self.path, None, reason_of(failure))
                else:
                    first, bad = int(head.unit_rows[:unit].sum()), set()
                    for row, name in bad_texts(batch):
                        bad.add(row)
                        reason = f"row {first + row:,}: field {name!r} is not UTF-8"
                        yield Finding("malformed text", self.path, None, reason)
                    seen.records += batch.num_rows - len(bad)
                    seen.text_bytes += batch.nbytes
                advance(self.size // len(self.units))


def unit_parts(asked: ToCheck) -> Iterator[UnitsPart | Finding | tuple[str, str]]:
    """Yield units to read, findings in heads, and files with their errors."""
    at_path = asked.at_path
    unified, common = UnifiedSchema(), CommonColumns()
    kind, options, given = at_path.format.name, at_path.options, at_path.given
    relative = [at_path.listing.relative(found) for found in at_path.listing.files]
    partitions, values = partitions_of(relative)
    for (name, whole, sample), stated in zip(asked.whole(), values, strict=True):
        try:
            head = read_head(kind, whole.found, options, given)
            unified.add(head.schema, name)
            own = [partitions.field(one) for one in stated if one not in head.schema.names]
            unified.add(pa.schema(own), name)
            if head.unit_rows.any():
                common.add(head.schema, name)
        except CorruptFileError as failure:
            yield Finding("damaged file", name, None, reason_of(failure))
            continue
        except SchemaMismatchError as failure:
            yield Finding("differing schema", name, None, str(failure))
            continue
        except OSError as failure:
            yield name, str(failure)
            continue
        sizes = head.unit_bytes.tolist()
        units: Iterable[int] = range(len(sizes))
        if sample is not None:
            units = Sample(*sample)(len(sizes))
        units = [one for one in units if head.unit_rows[one]]  # Others may have no columns.
        same = (kind, options, given, head.unit)
        single = [UnitsPart(name, replace(whole, stop=sizes[one]), *same, (one,)) for one in units]
        for some in grouped(single, asked.part_bytes):
            part = replace(whole, stop=sum(one.size for one in some))
            yield replace(some[0], part=part, units=tuple(one.units[0] for one in some))
