"""Cuts blocks of bytes into the whole lines that begin in a part of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.jsonl import BOM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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
