"""The lines that begin in a part of a file, some whole ones at a time, wherever blocks are cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.jsonl import BOM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Piece(NamedTuple):
    """Whole lines; only the last of a file may be without its newline."""

    offset: int
    newlines: int
    """How many there are before it, from where the part begins."""
    text: bytes


class LongLine(NamedTuple):
    """A line that is too long to be held; blank ones are passed over."""

    offset: int
    newlines: int
    size: int


class LinePieces:
    r"""Cuts the blocks of a file, from byte `start` on, into pieces of the lines before `stop`.

    A line belongs where it begins. Unless `is_begun`, the first bytes are the end of a line that
    began before. Lines of more than `longest` bytes are not held.

    >>> lines = LinePieces(2, 9, is_begun=False)
    >>> [piece.text for piece in lines.of([b"a\nbb", b"b\nc", b"c\nd\n"])], lines.newlines
    ([b'bbb\n', b'cc\n'], 2)
    """

    def __init__(
        self, start: int, stop: float, *, is_begun: bool = True, longest: int | None = None
    ) -> None:
        self._at = start  # Where the next block begins,
        self._begun = start  # and where the line that is not at its end yet.
        self._stop = stop
        self._is_begun = is_begun
        self._longest = float("inf") if longest is None else longest
        self._held: list[bytes] = []  # What there is of that line,
        self._held_bytes = 0
        self._is_long = False  # unless it is too long,
        self._is_blank = True  # and then only this is known.
        self.newlines = 0
        """In the part: not before `start`, and before `stop`."""

    def of(self, blocks: Iterable[bytes]) -> Iterator[Piece | LongLine]:
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

    def _cut(self, block: bytes) -> Iterator[Piece | LongLine]:
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
            # All lines that end here and begin before the stop: the last of those, if it ends
            # here, ends with the first newline that is not before the byte before the stop.
            last = self._stop - 1 - start
            end = block.find(b"\n", max(done, int(last))) + 1 if last < len(block) else 0
            end = end or block.rfind(b"\n", done) + 1
            if end > done:
                yield from self._finished(block[done:end])
                done = end
        self._hold(block[done:])

    def _finished(self, end: bytes) -> Iterator[Piece | LongLine]:
        """Yield what is held, and lines that end here."""
        offset, newlines = self._begun, self.newlines
        size = self._held_bytes + len(end)
        is_long, is_blank = self._is_long, self._is_blank and not end.strip()
        text = b"".join([*self._held, end])
        self._held, self._held_bytes, self._is_long, self._is_blank = [], 0, False, True
        self._begun += size
        if end:
            self.newlines += end.count(b"\n") - (self._begun > self._stop)
        if not is_long:
            yield Piece(offset, newlines, text)
        elif not is_blank:
            yield LongLine(offset, newlines, size)

    def _hold(self, rest: bytes) -> None:
        self._held_bytes += len(rest)
        self._held.append(rest)
        if self._held_bytes > self._longest:
            self._is_long = True
            self._is_blank = self._is_blank and not any(part.strip() for part in self._held)
            self._held = []
