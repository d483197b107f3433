"""Parts of CSV and Parquet files that are checked one by one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.cli._paths import as_typed
from penstock.cli.check._parts import (
    CheckPart,
    Finding,
    PartFindings,
    SampledLines,
    begins,
    reason_of,
)
from penstock.errors import CorruptFileError, MalformedLineError, OptionError, SchemaMismatchError
from penstock.index import Checks, CsvScanner, FilePart, Found, Look, scan_rows
from penstock.index.csv import DELIMITERS
from penstock.index.parquet import UnifiedSchema, read_footer, read_group
from penstock.jsonl import compression_of
from penstock.storage import MeteredFile
from penstock.work import grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.index import Detected
    from penstock.index.parquet import Footer
    from penstock.storage import OpenFile

_BEFORE = 1 << 20


@dataclass(frozen=True, slots=True)
class CsvPart(CheckPart):
    """The rows of a file."""

    dialect: dict[str, Any]
    is_chosen: bool = False
    """Whether the delimiter was given, so that a single column is what was meant."""

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

    def _rows(
        self, part: FilePart, seen: PartFindings, advance: Callable[[int], object]
    ) -> Iterator[Finding]:
        look = Look(Checks(validate=True))
        scanned = scan_rows(part, CsvScanner(**self.dialect), look, advance)
        seen.records += scanned.records
        seen.text_bytes += scanned.text_bytes
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


def csv_parts(  # noqa: PLR0913, PLR0917 (as `Format.check` is called)
    path: str,
    at_path: Detected,
    made_with: Mapping[str, Any] | None,
    share: float | None,
    seed: int,
    part_bytes: int,
) -> Iterator[CsvPart]:
    """Yield all files, in the dialect of their index, or else of their names."""
    del seed, part_bytes
    if share is not None:
        raise OptionError(
            "--sample: where rows of CSV begin is known only after reading all before them. "
            "Check all of it."
        )
    dialect = at_path.scanner(made_with).options()
    for found in at_path.listing.files:
        part = FilePart(found, 0, found.entry.size)
        yield CsvPart(as_typed(path, found.path), part, dialect, "delimiter" in at_path.given)


@dataclass(frozen=True, slots=True)
class GroupsPart(CheckPart):
    """Row groups of a Parquet file."""

    groups: tuple[int, ...]
    sampled: ClassVar = "row groups"
    content: ClassVar = "values"

    def findings(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield row groups that cannot be read."""
        store, entry = self.part.found
        footer = read_footer(self.part.found)
        with closing(MeteredFile(store.open(entry.name, entry), lambda _: None)) as file:
            for group in self.groups:
                yield from self._group(file, footer, group, seen)
                advance(self.size // len(self.groups))

    def _group(
        self, file: OpenFile, footer: Footer, group: int, seen: PartFindings
    ) -> Iterator[Finding]:
        try:
            batch = read_group(file, footer.metadata, group, footer.schema, at_once=True)
            batch.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as failure:
            reason = f"number {group} of its row groups: {failure}"
            yield Finding("unreadable row group", self.path, None, reason)
            return
        seen.records += batch.num_rows
        seen.text_bytes += batch.nbytes


def parquet_parts(  # noqa: PLR0913, PLR0917 (as `Format.check` is called)
    path: str,
    at_path: Detected,
    made_with: Mapping[str, Any] | None,
    share: float | None,
    seed: int,
    part_bytes: int,
) -> Iterator[GroupsPart | Finding | tuple[str, str]]:
    """Yield row groups to read, findings in footers, and files with their errors."""
    del made_with
    unified = UnifiedSchema()
    for number, found in enumerate(at_path.listing.files):
        name = as_typed(path, found.path)
        try:
            footer = read_footer(found)
            unified.add(footer.schema, name)
        except CorruptFileError as failure:
            yield Finding("damaged file", name, None, reason_of(failure))
            continue
        except SchemaMismatchError as failure:
            yield Finding("differing schema", name, None, str(failure))
            continue
        except OSError as failure:
            yield name, str(failure)
            continue
        sizes = footer.group_bytes.tolist()
        groups: Iterable[int] = range(len(sizes))
        if share is not None:
            groups = SampledLines(share, f"{seed}/{number}").among(1, len(sizes))
        single = [GroupsPart(name, FilePart(found, 0, sizes[one]), (one,)) for one in groups]
        for some in grouped(single, part_bytes):
            part = FilePart(found, 0, sum(one.size for one in some))
            yield GroupsPart(name, part, tuple(one.groups[0] for one in some))
