"""Finds the elements of a JSON array, without reading what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.decode import decode_as_json
from penstock.errors import MalformedLineError
from penstock.index._scan import FileScan, Scanner, escaped_bytes
from penstock.jsonl import BOM

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_ELEMENT = 256 << 20
"""Bytes; without a limit, a quote that is never closed makes the rest of the file one element."""
_QUOTE, _BACKSLASH, _COMMA, _BEGIN, _END, _OPEN, _CLOSE = b'"\\,[]{}'
_NONE = np.empty((0, 2), np.int64)
_STEPS = 64
_DEPTH = np.zeros(256, np.int64)
_DEPTH[list(b"[{")], _DEPTH[list(b"]}")] = 1, -1


class ArrayScanner(Scanner):
    """Every element of the array that a file holds is a record, without the space around it."""

    kind = "json"
    decode = staticmethod(decode_as_json)

    def begin(self, path: str, facts: Mapping[str, Any] | None = None, start: int = 0) -> ArrayScan:
        return ArrayScan(path, start)


class ArrayScan(FileScan):
    r"""Finds elements.

    Brackets and commas count outside of quotes alone, and only whether the brackets close is
    checked: an element that is no JSON is found when it is read, as a bad line is.

    >>> scan = ArrayScan("a.json")
    >>> scan.add(b'[{"a": "]"},\n {"b"').tolist(), scan.add(b": [1, 2]} ]\n").tolist()
    ([[1, 10]], [[14, 13]])
    """

    def __init__(self, path: str, start: int = 0, largest: int = LARGEST_ELEMENT) -> None:
        self._path, self._start, self._largest = path, start, largest
        self._at = 0  # Where the next block begins.
        self._depth = 0
        self._is_begun = self._is_over = bool(start)  # A whole array may only have space behind it.
        self._is_quoted = False  # Whether a quote is open there,
        self._is_escaped = False  # and whether the first byte of the next block is escaped.
        self._elements = 0
        self._first = self._last = -1  # First and last byte of the element so far, if it has some.

    def add(self, block: bytes | memoryview) -> NDArray[np.int64]:
        data = np.frombuffer(block, np.uint8)
        filled = _Filled(data)
        start = 0 if self._is_begun else self._begin(data, filled)
        rows = _NONE
        if self._is_begun and not self._is_over:
            rows, start = self._elements_in(data, filled, start)
        if self._is_over and (at := filled.first(start)) < len(data):
            raise self._wrong("something stands behind the end of the array", self._at + at)
        self._at += len(data)
        if self._first >= 0 and self._at - self._first > self._largest:
            why = f"an element is longer than {self._largest:,} bytes: a quote or a bracket is open"
            raise self._wrong(why, self._first)
        return rows

    def finish(self) -> NDArray[np.int64]:
        if self._is_begun and not self._is_over:
            why = "the file ends inside of a text" if self._is_quoted else "the array has no end"
            raise self._wrong(why, self._at)
        return _NONE

    def _begin(self, data: NDArray[np.uint8], filled: _Filled) -> int:
        """Find the bracket that begins the array; return where it stands, or the block ends."""
        is_marked = not self._at and data[: len(BOM)].tobytes() == BOM
        first = filled.first(len(BOM) if is_marked else 0)
        if first < len(data):
            if data[first] != _BEGIN:
                raise self._wrong("no array begins", self._at + first)
            self._is_begun = True
        return first

    def _elements_in(
        self, data: NDArray[np.uint8], filled: _Filled, start: int
    ) -> tuple[NDArray[np.int64], int]:
        """Return the elements that end in a block, and where the byte behind them is."""
        marks = self._unquoted(data)
        depths = self._depth + np.cumsum(_DEPTH[data[marks]])
        over = np.flatnonzero(depths == 0)
        if len(over):
            marks, depths = marks[: int(over[0]) + 1], depths[: int(over[0]) + 1]
        borders = marks[((depths == 1) & (data[marks] == _COMMA)) | (depths == 0)]
        start += not self._depth and bool(len(marks))  # Behind the bracket of the array itself.
        self._depth = int(depths[-1]) if len(depths) else self._depth
        rows = _NONE
        if len(borders):
            starts = np.concatenate([[start], borders[:-1] + 1])
            rows = self._rows(filled, starts, borders, is_last=bool(len(over)))
            start = int(borders[-1]) + 1
        if len(over):
            self._is_over = True
            if data[start - 1] != _END:
                raise self._wrong("a bracket closes that none opened", self._at + start - 1)
        elif (first := filled.first(start)) < len(data):
            self._first = self._at + first if self._first < 0 else self._first
            self._last = self._at + int(filled.before(np.array([len(data)]))[0])
        return rows, start

    def _rows(
        self,
        filled: _Filled,
        starts: NDArray[np.int64],
        borders: NDArray[np.int64],
        *,
        is_last: bool,
    ) -> NDArray[np.int64]:
        """Return offset and bytes of the elements between places and the borders behind them."""
        firsts, lasts = filled.behind(starts), filled.before(borders)
        is_empty = firsts >= borders
        rows = self._at + np.stack([firsts, lasts + 1], axis=1)
        if self._first >= 0:
            rows[0] = self._first, self._last + 1 if is_empty[0] else rows[0, 1]
            is_empty[0] = False
        if is_last and is_empty[-1] and not self._elements and len(borders) == 1:
            return _NONE  # An array of nothing.
        if is_empty.any():
            at = int(borders[int(np.argmax(is_empty))])
            raise self._wrong("an element is missing", self._at + at)
        rows[:, 1] -= rows[:, 0]
        self._first = self._last = -1
        self._elements += len(rows)
        return rows

    def _unquoted(self, data: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return where brackets and commas stand outside of quotes."""
        quotes = np.flatnonzero(data == _QUOTE)
        escapes = np.flatnonzero(data == _BACKSLASH)
        if len(escapes) or self._is_escaped:
            escaped = escaped_bytes(len(data), escapes, is_first=self._is_escaped)
            quotes, self._is_escaped = quotes[~escaped[quotes]], bool(escaped[-1])
        brackets = data | 0x20  # [ and ] become { and }.
        is_mark = (data == _COMMA) | (brackets == _OPEN) | (brackets == _CLOSE)
        marks = np.flatnonzero(is_mark)
        is_odd = (np.searchsorted(quotes, marks) & 1).astype(bool)
        outside: NDArray[np.int64] = marks[is_odd == self._is_quoted]
        self._is_quoted ^= bool(len(quotes) & 1)
        return outside

    def _wrong(self, why: str, at: int) -> MalformedLineError:
        offset = self._start + at
        return MalformedLineError(
            f"{self._path} is no JSON array: {why}, at byte {offset:,}. Write the file again; if "
            "each of its lines is a record, name it .jsonl.",
            path=self._path,
            offset=offset,
        )


class _Filled:
    """Finds the bytes of a block that are no space."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        # A byte before and one behind the block count as filled, so that every search ends.
        self._blank = np.zeros(len(data) + 2, bool)
        inside = self._blank[1:-1]
        for space in b" \t\r\n":
            inside |= data == space

    def first(self, place: int) -> int:
        """Return the first one from a place on; the length of the block where there is none."""
        return int(self.behind(np.array([place]))[0])

    def behind(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first one from each place on."""
        return self._stepped(places + 1, 1)

    def before(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the last one before each place."""
        return self._stepped(places, -1)

    def _stepped(self, at: NDArray[np.int64], step: int) -> NDArray[np.int64]:
        for _ in range(_STEPS):
            is_blank = self._blank[at]
            if not is_blank.any():
                return at - 1
            at = at + step * is_blank
        filled = np.flatnonzero(~self._blank)
        side: Literal["left", "right"] = "left" if step > 0 else "right"
        found: NDArray[np.int64] = filled[np.searchsorted(filled, at, side) - (step < 0)]
        return found - 1
