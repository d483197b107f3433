"""Parts of CSV and Parquet files that are checked one by one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.cli._paths import as_typed
from penstock.cli._reading import begins
from penstock.cli.check._parts import Finding, PartFindings, SampledLines
from penstock.errors import CorruptFileError, MalformedLineError, OptionError, SchemaMismatchError
from penstock.index import Checks, CsvScanner, FilePart, Found, Look, scan_rows
from penstock.index.parquet import UnifiedSchema, read_footer, read_group
from penstock.storage import MeteredFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.index import Aside, Detected
    from penstock.index.parquet import Footer
    from penstock.storage import OpenFile

_BEGINNING = 64
_BEFORE = 1 << 20


@dataclass(frozen=True, slots=True)
class CsvPart:
    """The rows of a file."""

    path: str
    found: Found
    dialect: dict[str, Any]
    start: int = 0

    @property
    def size(self) -> int:
        """Stored bytes."""
        return self.found.entry.size

    def look(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield rows that cannot be read, or have other fields than the header names."""
        try:
            yield from self._rows(self.found, seen, advance)
            seen.text_bytes += self.size
        except MalformedLineError as failure:
            # Rows before it are still checked; behind it no row's beginning is known.
            offset = getattr(failure, "offset", None) or 0
            if before := self._last_end(offset):
                entry = replace(self.found.entry, size=before)
                yield from self._rows(Found(self.found.store, entry), seen, lambda _: None)
                seen.text_bytes += before
            reason = str(failure).removeprefix(self.found.path).lstrip(": ")
            yield Finding("malformed row", self.path, None, reason)
        except OptionError as failure:
            if self.path.lower().endswith((".gz", ".zst")):
                seen.errors.append((self.path, str(failure)))
            else:
                yield Finding("malformed header", self.path, None, str(failure))
        except OSError as failure:
            seen.errors.append((self.path, str(failure)))

    def _rows(
        self, found: Found, seen: PartFindings, advance: Callable[[int], object]
    ) -> Iterator[Finding]:
        part = FilePart(found, 0, found.entry.size)
        look = Look(Checks(validate=True))
        scanned = scan_rows(part, CsvScanner(**self.dialect), look, advance)
        seen.records += scanned.records
        if not scanned.aside:
            return
        with closing(found.store.open(found.entry.name, found.entry)) as file:
            for aside in scanned.aside:
                start = begins(_text_of(file, aside))
                line = aside.newlines + 1
                yield Finding("malformed row", self.path, line, aside.reason, start)

    def _last_end(self, offset: int) -> int:
        """Return where the last line ends that ends before a byte."""
        found = self.found
        first = max(0, offset - _BEFORE)
        with closing(found.store.open(found.entry.name, found.entry)) as file:
            return first + file.read_at(first, offset - first).rfind(b"\n") + 1 if offset else 0


def _text_of(file: OpenFile, aside: Aside) -> bytes:
    return file.read_at(aside.offset, min(aside.size, _BEGINNING)).rstrip(b"\r\n")


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
    files = at_path.listing.files
    dialect = made_with or at_path.format.options_for([found.path for found in files])
    for found in files:
        yield CsvPart(as_typed(path, found.path), found, dict(dialect))


@dataclass(frozen=True, slots=True)
class GroupsPart:
    """Row groups of a Parquet file."""

    path: str
    found: Found
    groups: tuple[int, ...]
    size: int
    start: int = 0
    sampled: ClassVar = "row groups"
    content: ClassVar = "values"

    def look(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield row groups that cannot be read."""
        store, entry = self.found
        try:
            footer = read_footer(self.found)
            with closing(MeteredFile(store.open(entry.name, entry), lambda _: None)) as file:
                for group in self.groups:
                    yield from self._group(file, footer, group, seen)
                    advance(self.size // len(self.groups))
        except CorruptFileError as failure:
            yield Finding("damaged file", self.path, None, str(failure))
        except OSError as failure:
            seen.errors.append((self.path, str(failure)))

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
            reason = str(failure).removeprefix(f"{found.path} ")
            yield Finding("damaged file", name, None, reason)
            continue
        except SchemaMismatchError as failure:
            yield Finding("differing schema", name, None, str(failure))
            continue
        except OSError as failure:
            yield name, str(failure)
            continue
        sizes = footer.group_bytes.tolist()
        groups: list[int] = list(range(len(sizes)))
        if share is not None:
            groups = list(SampledLines(share, f"{seed}/{number}").among(1, len(sizes)))
        yield from _grouped(name, found, groups, sizes, part_bytes)


def _grouped(
    name: str, found: Found, groups: Sequence[int], sizes: Sequence[int], part_bytes: int
) -> Iterator[GroupsPart]:
    some: list[int] = []
    for group in groups:
        some.append(group)
        if sum(sizes[one] for one in some) >= part_bytes:
            yield GroupsPart(name, found, tuple(some), sum(sizes[one] for one in some))
            some = []
    if some:
        yield GroupsPart(name, found, tuple(some), sum(sizes[one] for one in some))
