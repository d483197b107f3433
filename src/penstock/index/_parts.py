"""Parts of files: the lines that begin in one, and units of work that go over some of them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from penstock.errors import CorruptFileError
from penstock.index._scan import TEXT_BYTES, ScannedFrames, is_local_text, opened, text_blocks
from penstock.jsonl import BOM
from penstock.work import PublishedUnit

if TYPE_CHECKING:
    import mmap

    from penstock.index._listing import Found
    from penstock.index._scan import Scanner
    from penstock.storage import Draft, OpenFile

_LENGTH_BYTES = 8
T = TypeVar("T")


class LinePiece(NamedTuple):
    """Whole lines; only the last line of a file may lack its newline."""

    offset: int
    newlines: int
    """Newlines before it, in its part."""
    text: bytes
    too_long: int = 0
    """Bytes of one line that is too long to keep in memory, and not in `text`."""


class LinePieces:
    r"""Cuts the blocks of a file, from byte `start` on, where a line begins, into pieces of lines.

    Lines of more than `longest` bytes are not kept in memory, and skipped where they are blank.

    >>> lines = LinePieces(4, [b"bb", b"b\nc", b"c\n"])
    >>> [piece.text for piece in lines], lines.newlines
    ([b'bbb\n', b'cc\n'], 2)
    """

    def __init__(self, start: int, blocks: Iterable[bytes], longest: int | None = None) -> None:
        self._blocks = blocks
        self._begun = start  # Where the unfinished line begins.
        self._longest = float("inf") if longest is None else longest
        self._held: list[bytes] = []  # The bytes of that line so far, unless it is too long.
        self._held_bytes = 0
        self._is_long = False
        self._is_blank = True  # Of a line that is too long.
        self.newlines = 0
        """Newlines in the part, as far as it is read."""

    def __iter__(self) -> Iterator[LinePiece]:
        # The first block has three bytes or more, if the file has.
        for block in self._blocks:
            if not self._begun and not self._held_bytes and block.startswith(BOM):
                self._begun = len(BOM)
                yield from self._cut(block[len(BOM) :])
            else:
                yield from self._cut(block)
        if self._held_bytes:
            yield from self._finished(b"")

    def _cut(self, block: bytes) -> Iterator[LinePiece]:
        done = 0
        if self._is_long:
            done = block.find(b"\n") + 1
            if done:
                yield from self._finished(block[:done])
        if not self._is_long:
            end = block.rfind(b"\n", done) + 1
            if end:
                yield from self._finished(block[done:end])
                done = end
        self._hold(block[done:])

    def _finished(self, end: bytes) -> Iterator[LinePiece]:
        """Yield the line that was unfinished, and the lines that end here."""
        offset, newlines = self._begun, self.newlines
        size = self._held_bytes + len(end)
        is_long, is_blank = self._is_long, self._is_blank and not end.strip()
        text = b"".join([*self._held, end])
        self._held, self._held_bytes, self._is_long, self._is_blank = [], 0, False, True
        self._begun += size
        self.newlines += end.count(b"\n")
        if not is_long:
            yield LinePiece(offset, newlines, text)
        elif not is_blank:
            yield LinePiece(offset, newlines, b"", size)

    def _hold(self, rest: bytes) -> None:
        self._held_bytes += len(rest)
        self._held.append(rest)
        if self._held_bytes > self._longest:
            self._is_long = True
            self._is_blank = self._is_blank and not any(part.strip() for part in self._held)
            self._held = []


@dataclass(frozen=True, slots=True)
class FilePart:
    """A range of stored bytes of a file, of whole records."""

    found: Found
    start: int
    stop: int
    facts: dict[str, Any] | None = field(default=None, hash=False)
    """Of a file that grew: the facts of the bytes before."""

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class PartsUnit(PublishedUnit):
    """Parts that are read one after the other."""

    parts: tuple[FilePart, ...]

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def __str__(self) -> str:
        first = self.parts[0]
        if len(self.parts) > 1:
            return f"{len(self.parts):,} parts of files, first {first.found.path}"
        return f"bytes {first.start:,} to {first.stop:,} of {first.found.path}"

    def describe(self, draft: Draft, description: object) -> None:
        """Write the description behind the array, and its length at the end of the file."""
        text = msgspec.msgpack.encode(description)
        draft.write(text + len(text).to_bytes(_LENGTH_BYTES, "little"))

    def opened(self, type_: type[T]) -> tuple[mmap.mmap | bytes, int, T]:
        """Return the array, its bytes, and the description; or raise `CorruptFileError`."""
        try:
            data = self.result()
            end = len(data) - _LENGTH_BYTES
            start = end - int.from_bytes(data[end:], "little")
            with memoryview(data) as view, view[max(0, start) : max(0, end)] as text:
                return data, start, msgspec.msgpack.decode(text, type=type_)
        except (OSError, ValueError, RecursionError) as why:
            raise self.damaged(why) from None

    def damaged(self, why: object) -> CorruptFileError:
        """Return the error for a result that cannot be used."""
        folder = shlex.quote(os.path.dirname(self.name))
        return CorruptFileError(
            f"{self.name} is damaged ({why}). Remove the folder that a killed builder left, and "
            f"build again: rm -r {folder}",
            path=self.name,
        )


@contextmanager
def opened_lines(
    part: FilePart,
    advance: Callable[[int], object],
    longest: int | None = None,
    frames: ScannedFrames | None = None,
) -> Iterator[LinePieces]:
    """Open the lines of a part; lines of more than `longest` bytes are not kept in memory."""
    with opened_blocks(part, advance, frames or ScannedFrames()) as blocks:
        yield LinePieces(part.start, blocks, longest)


@contextmanager
def opened_blocks(
    part: FilePart, advance: Callable[[int], object], frames: ScannedFrames
) -> Iterator[Iterator[bytes]]:
    """Open the text of a part, in blocks; `advance` is called with the bytes read."""
    with opened(part.found) as file:
        if is_local_text(part.found.path):
            blocks = _local_blocks(file, part, advance)
        else:
            blocks = text_blocks(file, part.start, advance, frames)
        with closing(blocks):  # No thread may read ahead in a closed file.
            yield blocks


def _local_blocks(
    file: OpenFile, part: FilePart, advance: Callable[[int], object]
) -> Generator[bytes, None, None]:
    for at in range(part.start, part.stop, TEXT_BYTES):
        block = file.read_at(at, min(TEXT_BYTES, part.stop - at))
        yield block
        advance(len(block))


def parts_of(
    found: Found, start: int, scanner: Scanner, unit_bytes: int, facts: dict[str, Any] | None
) -> list[FilePart]:
    """Return the parts in which a file is scanned, from a byte on."""
    size, cuts = found.entry.size, []
    if size - start > unit_bytes and is_local_text(found.path):
        with opened(found) as file:
            cuts = list(scanner.cuts(file, start, unit_bytes))
    return [FilePart(found, *ends, facts) for ends in pairwise([start, *cuts, size])]
