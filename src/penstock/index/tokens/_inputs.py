"""What is tokenised: JSON Lines as files, or any other source by its records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.decode import OF_A_RECORD, as_records, read_around_bad
from penstock.errors import ObjectNotFoundError, OptionError, PenstockError, StaleIndexError
from penstock.index._detect import look_at
from penstock.index._formats import LINES, format_by_name, load
from penstock.index._listing import Found, Listing, list_files
from penstock.index._parts import FilePart, LinePiece, opened_lines, parts_of
from penstock.index._scan import LineScanner
from penstock.index.checked._checks import Aside
from penstock.index.tokens._documents import BATCH_BYTES, DocumentMaker, LineDocuments, TokenProbe
from penstock.index.tokens._texts import BadText, Document
from penstock.index.tokens._units import TextInput, TokensFound, TokenUnit
from penstock.jsonl import compression_of
from penstock.work import shares

if TYPE_CHECKING:
    from penstock.index.tokens._documents import TokenWork, Write
    from penstock.storage import StorageOptions

_LOOK_BYTES = 32 << 10
_LONGEST = 1 << 20
"""Bytes of a line that the estimate looks at."""
_COMPRESSED = 3
"""Bytes of text a compressed byte, about."""
_FIRST = 64
"""Records by which the size of all is estimated."""
_FILE_BYTES = 4 << 30
"""Text of a token file, about."""


@dataclass(frozen=True)
class LineFiles(TextInput):
    """Files of JSON Lines."""

    listing: Listing
    options: StorageOptions

    @cached_property
    def names(self) -> list[str]:
        return [*map(self.listing.relative, self.listing.files)]

    @property
    def bytes(self) -> int:
        return self.listing.bytes

    @property
    def folder(self) -> str | None:
        return self.listing.folder

    def again(self) -> LineFiles:
        named = self.listing.named
        what = named if len(named) > 1 else named[0]
        listing = listed_lines(what, self.options)
        if not listing.files:
            raise ObjectNotFoundError(f"{named[0]} holds no JSON Lines any more.", path=named[0])
        return LineFiles(listing, self.options)

    def refuse_changed(self) -> None:
        now, text = {}, "it is gone"
        with suppress(ObjectNotFoundError):
            now = {found.path: found.entry for found in self.again().listing.files}
        for found in self.listing.files:
            was, entry = found.entry, now.get(found.path)
            if entry == was:
                continue
            if entry is not None:
                text = f"{was.size:,} bytes then, {entry.size:,} now"
            raise StaleIndexError(
                f"{found.path} changed while it was tokenised ({text}), so nothing is published. "
                "Tokenise again when it is complete.",
                path=found.path,
            )

    def key(self) -> object:
        return [
            [found.path, found.entry.size, found.entry.modified, found.entry.version]
            for found in self.listing.files
        ]

    def probes(self) -> Iterator[TokenProbe]:
        whole = sum(map(_text_bytes, self.listing.files))
        for found in self.listing.files:
            piece = _first_lines(found)
            if piece is not None:

                def tokenise(
                    work: TokenWork, write: Write, found: Found = found, piece: LinePiece = piece
                ) -> None:
                    LineDocuments(work, found, write).add(piece)

                yield TokenProbe(tokenise, whole / len(piece.text))

    def parts(self, unit_bytes: int) -> list[FilePart]:
        scanner = LineScanner()
        files = (parts_of(one, 0, scanner, unit_bytes, None) for one in self.listing.files)
        return [*chain.from_iterable(files)]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {found.path: number for number, found in enumerate(self.listing.files)}

    def number_of(self, part: FilePart) -> int:
        return self._numbers[part.found.path]


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Records with consecutive numbers, which belong to one token file."""

    text: int
    start: int
    stop: int
    size: int
    """Bytes, about."""


class RecordWork(NamedTuple):
    """What units of records have in common."""

    work: TokenWork
    source: Any
    at_once: int
    """Records that are read together."""


@dataclass(frozen=True)
class RecordUnit(TokenUnit):
    """Ranges of records that are tokenised."""

    def __str__(self) -> str:
        return f"records {self.parts[0].start:,} to {self.parts[-1].stop - 1:,}"

    def _tokenised(
        self, part: RecordRange, add: Write, advance: Callable[[int], object]
    ) -> TokensFound:
        shared: RecordWork = self.shared.value
        maker = RecordDocuments(shared.work, shared.source, add)
        borders = [*range(part.start, part.stop, shared.at_once), part.stop]
        for start, stop in pairwise(borders):
            maker.add(start, stop)
            advance(part.size * (stop - start) // (part.stop - part.start))
        return TokensFound.of(maker)


class RecordDocuments(DocumentMaker):
    """Documents of the records of a source."""

    def __init__(self, work: TokenWork, source: Any, write: Write) -> None:  # noqa: ANN401 (a `Source`)
        super().__init__(work, write)
        self._source, self._start = source, 0
        self._records: Sequence[Any] = ()

    def add(self, start: int, stop: int) -> None:
        """Add the records of some numbers."""
        self._start = start
        self._records = records_of(self._source, start, stop, self._work.text.fields)
        self._add([*range(len(self._records))])

    def _text(self, number: int) -> Document:
        record = self._records[number]
        if isinstance(record, PenstockError):
            fact = record.fact.removeprefix(f"record {self._start + number:,}: ")
            raise BadText(fact.rstrip("."))
        if not hasattr(record, "keys"):
            raise BadText(f"it is a {type(record).__qualname__}, not a dict")
        return self._work.text.of(record)

    def _place(self, number: int) -> tuple[int, str]:
        record = self._start + number
        with suppress(OptionError):  # Records in memory lie in no file.
            at = self._source.location(record)
            self.path = str(at.file)
            what = "byte" if at.bytes else "row"
            return record + 1, f"record {record:,} ({what} {at.offset:,} of {self.path})"
        return record + 1, f"record {record:,}"

    def _aside(self, number: int, reason: str) -> Aside:
        return Aside(self._start + number, 0, 0, f"{self._place(number)[1]}: {reason}")


def records_of(source: Any, start: int, stop: int, fields: Sequence[str] | None) -> list[Any]:  # noqa: ANN401 (a `Source`)
    """Return records as mappings; only these fields where the source can leave out others.

    In place of a record that cannot be read there is its error.
    """
    names: list[str] = []
    if fields is not None and source.schema_is_complete:
        paths = [f"{path}." for path in fields]
        names = [
            name
            for name in source.schema.names
            if any(path.startswith(f"{name}.") for path in paths)
        ]

    def read(low: int, high: int) -> list[Any]:
        ids = np.arange(start + low, start + high, dtype=np.int64)
        return as_records(source.read(ids, names), ids) if names else list(source.read(ids))

    records: list[Any] = []
    for found in read_around_bad(stop - start, read, OF_A_RECORD):
        records += found.value if found.why is None else [found.why]
    return records


@dataclass(frozen=True)
class SourceRecords(TextInput):
    """The records of a source; see `TextInput`."""

    source: Any
    what: Any
    """What it was opened from; None where it was given as a source."""
    options: StorageOptions
    unit = RecordUnit

    @property
    def files(self) -> int:
        return len(self.source.files)

    @property
    def in_memory(self) -> bool:
        return not self.source.files

    @cached_property
    def _record_bytes(self) -> int:
        """Bytes of a record, about; the same for the same records."""
        some = records_of(self.source, 0, min(_FIRST, len(self.source)), None)
        return max(1, sum(len(str(record)) for record in some) // max(1, len(some)))

    @property
    def bytes(self) -> int:
        return len(self.source) * self._record_bytes

    @cached_property
    def _texts(self) -> list[tuple[int, int]]:
        """The records of each token file."""
        return self._cut(0, len(self.source), _FILE_BYTES) or [(0, 0)]

    def _cut(self, start: int, stop: int, most: int) -> list[tuple[int, int]]:
        """Cut records into ranges of about `most` bytes, between units of reading."""
        records = max(1, most // self._record_bytes)
        if self.in_memory:
            return [*pairwise([*range(start, stop, records), stop])]
        borders = self.source.unit_borders
        inside = borders[borders > start] - start
        ranges = shares(stop - start, inside, records)
        return [(start + low, start + high) for low, high in ranges]

    @property
    def names(self) -> list[str]:
        return [f"part-{number:05}" for number in range(len(self._texts))]

    def again(self) -> SourceRecords:
        if self.what is None:
            return self
        opens = load("penstock.datasets:open")
        return replace(self, source=opens(self.what, storage_options=self.options))

    def refuse_changed(self) -> None:
        """A source compares its files with its index whenever it reads them."""

    def key(self) -> object:
        if any(origin.no_columns for origin in load("penstock.datasets:origins_of")(self.source)):
            return None  # Their fingerprint does not change with the records.
        return ["source", self.source.fingerprint, len(self.source)]

    def probes(self) -> Iterator[TokenProbe]:
        count = min(_FIRST, len(self.source))
        if count:
            yield TokenProbe(
                lambda work, write: RecordDocuments(work, self.source, write).add(0, count),
                len(self.source) / count,
            )

    def shared(self, work: TokenWork) -> RecordWork:
        return RecordWork(work, self.source, max(1, BATCH_BYTES // self._record_bytes))

    def parts(self, unit_bytes: int) -> list[RecordRange]:
        return [
            RecordRange(number, start, stop, (stop - start) * self._record_bytes)
            for number, text in enumerate(self._texts)
            for start, stop in self._cut(*text, unit_bytes)
        ]

    def number_of(self, part: RecordRange) -> int:
        return part.text


def given_input(base: object, paths: Sequence[Any] | None) -> object:
    """Return what is tokenised: some files, or else a folder or a source."""
    what = base if paths is None else paths
    if what is None:
        raise OptionError(
            "nothing says what to tokenise. Give input_base_path=, a folder of JSON Lines files or "
            "what else penstock.open opens, or input_file_paths=, the files themselves."
        )
    return what


def listed_lines(what: Any, options: StorageOptions) -> Listing:  # noqa: ANN401 (paths)
    """Return files of lines; beside those whose names say so, a `.json` is no data."""
    listing = list_files(what, LINES.endings, options)
    sure = [found for found in listing.files if LINES.names(found.entry.name)]
    is_chosen = listing.folder is not None or listing.is_pattern
    return replace(listing, files=sure) if sure and is_chosen else listing


def input_of(what: Any, options: StorageOptions) -> TextInput:  # noqa: ANN401 (as `open` has it)
    """Return what is to be tokenised: JSON Lines, or anything that `penstock.open` opens."""
    if isinstance(what, TextInput):
        return what
    if (lines := _lines(what, options)) is not None:
        return lines
    source = what
    if not isinstance(what, load("penstock.datasets:Source")):
        source = load("penstock.datasets:open")(what, storage_options=options)
    if source.is_tokens:
        raise OptionError(f"{what!r} holds tokens already, and no text to make some of.")
    return SourceRecords(source, None if source is what else what, options)


def _lines(what: Any, options: StorageOptions) -> LineFiles | None:  # noqa: ANN401 (likewise)
    """Return the JSON Lines of a path, a folder, a pattern or a list of those; None for others."""
    paths: Sequence[Any] = [what] if isinstance(what, str | os.PathLike) else what
    if not isinstance(paths, list | tuple) or not paths:
        return None
    if not all(isinstance(path, str | os.PathLike) for path in paths):
        return None
    try:
        listing = listed_lines(what, options)
    except ObjectNotFoundError:
        return None
    kinds = {format_by_name(found.path) for found in listing.files}
    if not kinds or not kinds <= {LINES, None}:
        return None
    row = LINES
    with suppress(PenstockError):  # A killed builder's index, which the next one mends.
        detected = look_at(what, options)
        row = detected.format
        is_sure = any(LINES.names(found.entry.name) for found in listing.files)
        if detected.trouble is not None and not is_sure:
            return None
    # Tokens may lie beside the lines that they were made of.
    return LineFiles(listing, options) if row is LINES or row.is_tokens else None


def _first_lines(found: Found) -> LinePiece | None:
    """Return the first lines of a file, about 32 KiB of them; None if all are blank or too long."""
    part = FilePart(found, 0, found.entry.size)
    with opened_lines(part, lambda _: None, _LONGEST) as pieces:
        for piece in pieces:
            if piece.text.strip():
                stop = piece.text.find(b"\n", _LOOK_BYTES) + 1
                return piece._replace(text=piece.text[: stop or None])
    return None


def _text_bytes(found: Found) -> int:
    is_plain = compression_of(found.entry.name) is None
    return found.entry.size * (1 if is_plain else _COMPRESSED)
