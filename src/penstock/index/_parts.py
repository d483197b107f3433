"""Parts of files: the lines that begin in one, and units of work that go over some of them."""

from __future__ import annotations

import os
import shlex
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from penstock.errors import CorruptFileError
from penstock.index._scan import (
    TEXT_BYTES,
    LineScanner,
    ScannedFrames,
    is_local_text,
    opened,
    text_blocks,
)
from penstock.jsonl import BOM
from penstock.work import PublishedUnit

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Generator, Iterable, Iterator

    from penstock.index._listing import Found
    from penstock.index._scan import Scanner
    from penstock.storage import Draft, OpenFile

_LEAST = 4
"""Bytes of a part, so that a first line behind a byte order mark begins in the first part."""
_LENGTH_BYTES = 8
T = TypeVar("T")


class LinePiece(NamedTuple):
    """Whole lines; only the last line of a file may lack its newline."""

    offset: int
    newlines: int
    """Newlines before it, in its part."""
    text: bytes


class LongLine(NamedTuple):
    """A line that is too long to keep in memory; blank ones are skipped."""

    offset: int
    newlines: int
    size: int


class LinePieces:
    r"""Cuts the blocks of a file, from byte `start` on, into pieces of the lines before `stop`.

    A line belongs to the part in which it begins. Unless `is_begun`, the first bytes are the end of
    a line that began before. Lines of more than `longest` bytes are not kept in memory.

    >>> lines = LinePieces(2, 9, is_begun=False)
    >>> [piece.text for piece in lines.of([b"a\nbb", b"b\nc", b"c\nd\n"])], lines.newlines
    ([b'bbb\n', b'cc\n'], 2)
    """

    def __init__(
        self, start: int, stop: float, *, is_begun: bool = True, longest: int | None = None
    ) -> None:
        self._at = start  # Where the next block begins.
        self._begun = start  # Where the unfinished line begins.
        self._stop = stop
        self._is_begun = is_begun
        self._longest = float("inf") if longest is None else longest
        self._held: list[bytes] = []  # The bytes of that line so far, unless it is too long.
        self._held_bytes = 0
        self._is_long = False
        self._is_blank = True  # Of a line that is too long.
        self.newlines = 0
        """Newlines in the part, as far as it is read."""

    def of(self, blocks: Iterable[bytes]) -> Iterator[LinePiece | LongLine]:
        """Yield the lines of all blocks; the first has three bytes or more, if the file has."""
        for block in blocks:
            if not self._at and block.startswith(BOM):
                self._at = self._begun = len(BOM)
                yield from self._cut(block[len(BOM) :])
            else:
                yield from self._cut(block)
            if (self._begun if self._is_begun else self._at) >= self._stop:
                return
        if self._held_bytes:
            yield from self._finished(b"")

    def _cut(self, block: bytes) -> Iterator[LinePiece | LongLine]:
        start, done = self._at, 0
        self._at += len(block)
        if not self._is_begun:
            done = block.find(b"\n") + 1
            if not done:
                return
            self._is_begun = True
            self._begun = start + done
            self.newlines += self._begun <= self._stop
        if self._is_long:
            done = block.find(b"\n") + 1
            if done:
                yield from self._finished(block[:done])
        if self._begun >= self._stop:
            return
        if not self._is_long:
            # All lines that end here and begin before the stop: the last of them ends at the first
            # newline from the last byte of the part on.
            last = self._stop - 1 - start
            end = block.find(b"\n", max(done, int(last))) + 1 if last < len(block) else 0
            end = end or block.rfind(b"\n", done) + 1
            if end > done:
                yield from self._finished(block[done:end])
                done = end
        self._hold(block[done:])

    def _finished(self, end: bytes) -> Iterator[LinePiece | LongLine]:
        """Yield the line that was unfinished, and the lines that end here."""
        offset, newlines = self._begun, self.newlines
        size = self._held_bytes + len(end)
        is_long, is_blank = self._is_long, self._is_blank and not end.strip()
        text = b"".join([*self._held, end])
        self._held, self._held_bytes, self._is_long, self._is_blank = [], 0, False, True
        self._begun += size
        if end:
            self.newlines += end.count(b"\n") - (self._begun > self._stop)
        if not is_long:
            yield LinePiece(offset, newlines, text)
        elif not is_blank:
            yield LongLine(offset, newlines, size)

    def _hold(self, rest: bytes) -> None:
        self._held_bytes += len(rest)
        self._held.append(rest)
        if self._held_bytes > self._longest:
            self._is_long = True
            self._is_blank = self._is_blank and not any(part.strip() for part in self._held)
            self._held = []


@dataclass(frozen=True, slots=True)
class FilePart:
    """A range of stored bytes of a file; the records that begin there belong to it."""

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


class PartLines(LinePieces):
    """The lines that begin in a part, some whole ones at a time."""

    blocks: Iterator[bytes]
    scanned: ScannedFrames

    def __iter__(self) -> Iterator[LinePiece | LongLine]:
        return self.of(self.blocks)

    @property
    def frames(self) -> list[tuple[int, int, int, int]]:
        return [(begin, size, *text) for begin, size, *text in self.scanned.rows.tolist()]


@contextmanager
def opened_lines(
    part: FilePart, advance: Callable[[int], object], longest: int | None = None
) -> Iterator[PartLines]:
    """Open the lines of a part; lines of more than `longest` bytes are not kept in memory."""
    frames = ScannedFrames()
    with opened(part.found) as file:
        start, is_begun, stop = part.start, True, float("inf")
        if is_local_text(part.found.path):
            is_begun = not start or file.read_at(start - 1, 1) == b"\n"
            stop = part.stop
            blocks = _local_blocks(file, part, advance)
        else:
            blocks = text_blocks(file, start, advance, frames)
        lines = PartLines(start, stop, is_begun=is_begun, longest=longest)
        lines.blocks, lines.scanned = blocks, frames
        try:
            yield lines
        finally:
            blocks.close()  # No thread may read ahead in a closed file.


def _local_blocks(
    file: OpenFile, part: FilePart, advance: Callable[[int], object]
) -> Generator[bytes, None, None]:
    """Yield the blocks of a part, and those behind it, in which its last line ends."""
    for at in range(part.start, file.size, TEXT_BYTES):
        block = file.read_at(at, min(TEXT_BYTES, file.size - at))
        yield block
        advance(max(0, min(len(block), part.stop - at)))


def parts_of(
    found: Found, start: int, scanner: Scanner, unit_bytes: int, facts: dict[str, Any] | None
) -> list[FilePart]:
    """Return the parts in which a file is scanned, from a byte on."""
    size = found.entry.size
    if start >= size or not isinstance(scanner, LineScanner) or not is_local_text(found.path):
        return [FilePart(found, start, size, facts)]
    cuts = [*range(start, size, max(unit_bytes, _LEAST)), size]
    return [FilePart(found, *ends, facts) for ends in pairwise(cuts)]
