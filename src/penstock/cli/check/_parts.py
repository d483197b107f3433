"""Parts of files that are checked one by one: what is wrong in each, and what was seen."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from penstock.cli._reading import (
    BadLine,
    Line,
    Text,
    begins,
    lines_of,
    read_fast,
    read_line,
    read_lines,
    texts_of,
)
from penstock.cli._sampling import SampledLines
from penstock.errors import CorruptFileError, ObjectNotFoundError
from penstock.index import JSON_NAMES, LinePiece, LinePieces
from penstock.jsonl import compression_of, reason_text
from penstock.storage import LocalStore, is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.cli._paths import Found
    from penstock.jsonl import JsonlFile
    from penstock.storage import OpenFile

Kind = Literal[
    "malformed line",
    "non-object line",
    "malformed row",
    "malformed header",
    "unreadable row group",
    "differing schema",
    "damaged file",
    "changed file",
    "missing file",
    "unknown file",
    "unusable index",
    "missing index",
    "leftover",
]
_BLOCK_BYTES = 256 << 10


class Finding(msgspec.Struct, frozen=True):
    """Something wrong, and where."""

    kind: Kind
    path: str
    line: int | None
    """Counted from 1, from where the part begins."""
    reason: str
    begins: str | None = None

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        start = "" if self.begins is None else f"; the line begins {self.begins}"
        return f"{place}: {self.kind}: {self.reason}{start}"


class Seen(msgspec.Struct):
    """What a look at a part saw."""

    records: int = 0
    text_bytes: int = 0
    newlines: int = 0
    """In the part; lines of the next one are counted on from there."""
    errors: list[tuple[str, str]] = []
    """Files that could not be read, and why."""


class CheckPart(Protocol):
    """Some records that any process can check by itself; small and picklable."""

    @property
    def path(self) -> str:
        """The file, as the user named it."""
        ...

    @property
    def size(self) -> int:
        """Stored bytes."""
        ...

    @property
    def start(self) -> int:
        """Where in its file it begins."""
        ...

    def look(self, seen: Seen, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield what is wrong, in order; note in `seen` what was seen."""
        ...


class Sample(msgspec.Struct, frozen=True):
    """Which lines are looked at, if not all."""

    share: float
    seed: str

    def lines(self) -> SampledLines:
        """Return what chooses them, from the beginning of a file on."""
        return SampledLines(self.share, self.seed)


@dataclass(frozen=True, slots=True)
class LinePart:
    """The lines that begin between two bytes of a file, or all of them."""

    file: JsonlFile
    size: int
    sample: Sample | None = None
    start: int = 0
    stop: int | None = None
    """None: to the end, however the file is compressed."""

    @property
    def path(self) -> str:
        """The file."""
        return self.file.path

    def look(self, seen: Seen, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield bad lines; lines count from where the part begins."""
        chosen = None if self.sample is None else self.sample.lines()
        texts = (
            texts_of(self.file, _Advancing(advance))
            if self.stop is None
            else self._cut(self.stop, seen, advance)
        )
        try:
            for text in texts:
                seen.text_bytes += len(text.text)
                if chosen is not None:
                    yield from _findings_in(_sampled(text, chosen), text, seen)
                    continue
                values = read_fast(text)
                if values is not None and set(map(type, values)) == {dict}:
                    seen.records += len(values)
                else:
                    yield from _findings_in(read_lines(text), text, seen)
        except CorruptFileError as failure:
            reason = str(failure).removeprefix(f"{getattr(failure, 'path', '')} ")
            yield Finding("damaged file", self.path, None, reason)
        except ObjectNotFoundError as failure:
            yield Finding("missing file", self.path, None, str(failure))
        except OSError as failure:
            seen.errors.append((self.path, str(failure)))

    def _cut(self, stop: int, seen: Seen, advance: Callable[[int], object]) -> Iterator[Text]:
        store, name, known = self.file.source()
        with closing(store.open(name, known)) as file:
            is_begun = not self.start or file.read_at(self.start - 1, 1) == b"\n"
            pieces = LinePieces(self.start, stop, is_begun=is_begun)
            for piece in pieces.of(self._blocks(file, stop, advance)):
                if isinstance(piece, LinePiece):
                    yield Text(self.path, piece.newlines + 1, piece.text)
            seen.newlines = pieces.newlines

    def _blocks(
        self, file: OpenFile, stop: int, advance: Callable[[int], object]
    ) -> Iterator[bytes]:
        """Yield the part, and then what follows, until its last line ends."""
        for at in range(self.start, file.size, _BLOCK_BYTES):
            block = file.read_at(at, min(_BLOCK_BYTES, file.size - at))
            yield block
            advance(max(0, min(len(block), stop - at)))


class _Advancing:
    """Bytes that one thread reads, and another one tells of."""

    def __init__(self, advance: Callable[[int], object]) -> None:
        self._advance = advance
        self._read = self._told = 0

    def read(self, count: int) -> None:
        self._read += count

    def show(self) -> None:
        count = self._read - self._told
        self._told += count
        self._advance(count)


def line_parts(
    found: Found, size_of: Callable[[JsonlFile], int], sample: Sample | None, part_bytes: int
) -> Iterator[LinePart]:
    """Yield all files in parts: plain local ones are cut, unless only a sample is looked at."""
    for number, file in enumerate(found.files):
        size = size_of(file)
        own = None if sample is None else Sample(sample.share, f"{sample.seed}/{number}")
        if own is not None or size <= part_bytes or not _is_cut(file):
            yield LinePart(file, size, own)
            continue
        for start, stop in pairwise([*range(0, size, part_bytes), size]):
            yield LinePart(file, stop - start, None, start, stop)


def _is_cut(file: JsonlFile) -> bool:
    """Whether lines can be found from the middle of a file on, cheaply."""
    is_local = not is_remote(file.path) and isinstance(file.source().store, LocalStore)
    return is_local and compression_of(file.path) is None


def _sampled(text: Text, chosen: SampledLines) -> Iterator[Line | BadLine]:
    lines = lines_of(text)
    for index in chosen.among(text.first_line, len(lines)):
        line = read_line(text, index, lines[index])
        if line is not None:
            yield line


def _findings_in(lines: Iterable[Line | BadLine], text: Text, seen: Seen) -> Iterator[Finding]:
    for line in lines:
        if isinstance(line, BadLine):
            reason, start = reason_text(line.reason), begins(line.text)
            yield Finding("malformed line", text.path, line.number, reason, start)
            continue
        seen.records += 1
        if type(line.value) is not dict:
            reason, start = JSON_NAMES[type(line.value)], begins(line.text)
            yield Finding("non-object line", text.path, line.number, reason, start)
