"""Finding records in a stream of bytes: the contract, and lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from penstock.decode import blank_lines
from penstock.jsonl import BOM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_NEWLINE = 10
_DENSE = 8
"""Where one in so many runs of eight bytes holds a newline, looking at each byte is quicker."""


class FileScan(Protocol):
    """Finds the records of one file, whose blocks come one after the other."""

    def add(self, block: bytes | memoryview) -> NDArray[np.int64]:
        """Return offset and bytes (k × 2) of each record that this block finished.

        The first block has at least three bytes, if the file has, so that a mark is seen. A view
        holds only until the next call.
        """
        ...

    def finish(self) -> NDArray[np.int64]:
        """Return the same for what is left at the end of the file."""
        ...

    def facts(self) -> dict[str, object]:
        """Return what was learned on the way, as plain JSON; kept for the file in `meta.json`."""
        ...


class Scanner(Protocol):
    """Knows what a record is; small, immutable, picklable."""

    kind: str

    def options(self) -> dict[str, object]:
        """Return what makes one index differ from another, as plain JSON."""
        ...

    def begin(
        self, path: str, facts: Mapping[str, object] | None = None, start: int = 0
    ) -> FileScan:
        """Begin a file.

        One that grew goes on at byte `start` with the facts found before; offsets are counted
        from there.
        """
        ...


class LineScanner:
    """Every line that is not blank is a record; its newline counts in."""

    kind = "jsonl"

    def options(self) -> dict[str, object]:
        """Lines are lines."""
        return {}

    def begin(
        self, path: str, facts: Mapping[str, object] | None = None, start: int = 0
    ) -> LineScan:
        """Begin a file, or go on with one that grew."""
        return LineScan(may_be_marked=not start)


class LineScan:
    r"""Finds lines.

    >>> scan = LineScan()
    >>> scan.add(b"one\n\ntw").tolist(), scan.add(b"o\nthree").tolist(), scan.finish().tolist()
    ([[0, 4]], [[5, 4]], [[9, 5]])
    """

    def __init__(self, *, may_be_marked: bool = True) -> None:
        self._may_be_marked = may_be_marked
        self._at = 0  # Where the next block begins.
        self._begun = 0  # Where the unfinished line begins.
        self._is_blank = True  # Whether that line holds nothing but white space so far.
        self._finder = LineFinder()

    def add(self, block: bytes | memoryview) -> NDArray[np.int64]:
        """Return offset and bytes of each line that this block finished."""
        return self.add_found(self._finder.find(block))

    def add_found(self, found: LineEnds) -> NDArray[np.int64]:
        """Do the same with what was found in a block, ahead of time and in any thread."""
        if self._may_be_marked and not self._at and found.is_marked:
            self._begun = len(BOM)
            found = found._replace(begins_blank=found.begins_blank_after_mark)
        rows = np.empty((len(found.ends), 2), np.int64)
        if len(found.ends):
            stops = found.ends + (self._at + 1)
            rows[0, 0] = self._begun
            rows[1:, 0] = stops[:-1]
            np.subtract(stops, rows[:, 0], out=rows[:, 1])
            found.blank[0] = self._is_blank and found.begins_blank
            rows = rows[~found.blank] if found.blank.any() else rows
            self._begun = int(stops[-1])
            self._is_blank = found.ends_blank
        else:
            self._is_blank = self._is_blank and found.begins_blank
        self._at += found.size
        return rows

    def finish(self) -> NDArray[np.int64]:
        """Return the last line, when no newline ends it."""
        if self._is_blank:
            return np.empty((0, 2), np.int64)
        return np.array([[self._begun, self._at - self._begun]], np.int64)

    def facts(self) -> dict[str, object]:
        """Nothing is known of lines but where they are."""
        return {}


class LineEnds(NamedTuple):
    """What a block says of its lines, wherever the first one began and the last one ends."""

    size: int
    ends: NDArray[np.int64]
    """Where newlines stand."""
    blank: NDArray[np.bool_]
    """Which lines that end here hold nothing but white space; of the first nothing is known."""
    begins_blank: bool
    """Whether there is only white space up to the first newline, or at all."""
    ends_blank: bool
    """The same from the last newline on."""
    is_marked: bool
    """Whether it begins with what may be a byte order mark."""
    begins_blank_after_mark: bool
    """The same as `begins_blank`, not counting that."""


class LineFinder:
    """Finds lines, with arrays that are used again: fresh memory costs more than the search."""

    def __init__(self) -> None:
        self._is_newline = np.empty(0, bool)
        self._in_eight = np.empty(0, bool)

    def find(self, block: bytes | memoryview) -> LineEnds:
        """Look at one block; nothing is remembered of it."""
        ends = self._newlines(block)
        is_marked = bytes(block[:3]) == BOM
        blank = np.zeros(len(ends), bool)
        if len(ends) > 1:
            blank[1:] = blank_lines(block, ends[:-1] + 1, ends[1:])
        begins = block[: int(ends[0])] if len(ends) else block
        rest = block[int(ends[-1]) + 1 :] if len(ends) else block
        return LineEnds(
            len(block),
            ends,
            blank,
            _is_blank(begins),
            _is_blank(rest),
            is_marked,
            is_marked and _is_blank(begins[len(BOM) :]),
        )

    def _newlines(self, block: bytes | memoryview) -> NDArray[np.int64]:
        size = -(-len(block) // 8) * 8
        if len(self._is_newline) < size:
            self._is_newline = np.empty(size, bool)
            self._in_eight = np.empty(size // 8, bool)
        found = self._is_newline[:size]
        np.equal(np.frombuffer(block, np.uint8), _NEWLINE, out=found[: len(block)])
        found[len(block) :] = False
        # Most runs of eight bytes hold none, and eight are passed over at the price of one.
        eights = found.view(np.uint64)
        some = self._in_eight[: size // 8]
        np.not_equal(eights, 0, out=some)
        groups = np.flatnonzero(some)
        if len(groups) > len(some) // _DENSE:
            return np.flatnonzero(found)
        inside = np.flatnonzero(eights[groups].view(bool))
        places: NDArray[np.int64] = (groups[inside >> 3] << 3) + (inside & 7)
        return places


def _is_blank(part: bytes | memoryview) -> bool:
    # The first letter decides nearly always, and a long part is not copied for it.
    return not bytes(part[:64]).strip() and not bytes(part).strip()
