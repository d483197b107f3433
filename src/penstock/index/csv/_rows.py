"""Finds the rows of CSV text."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from penstock.decode import decode_as_json
from penstock.errors import MalformedLineError, OptionError
from penstock.index._scan import escaped_bytes
from penstock.jsonl import BOM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index.csv._types import Dialect

_LF = 10
_CR = 13
_NEUTRAL = 0
LARGEST_ROW = 256 << 20
"""Bytes; without a limit, a quote that is never closed reads the whole file into memory."""


class RowFinder:
    r"""Finds rows in blocks of any size; a row includes its line end, and blank lines are no rows.

    A quote opens only at the beginning of a field, as in Python's `csv` and Arrow, so a stray one
    in the middle (`5" pipe`) is text. Lines end with LF, CRLF or CR.

    >>> from penstock.index.csv._types import Dialect
    >>> finder = RowFinder(Dialect(), "a.csv")
    >>> finder.add(b'a,"x\n').tolist(), finder.add(b'y"\n\nb').tolist(), finder.finish().tolist()
    ([], [[0, 8]], [[9, 1]])
    """

    def __init__(
        self, dialect: Dialect, path: str, start: int = 0, largest_row: int = LARGEST_ROW
    ) -> None:
        self._path = path
        self._largest_row = largest_row
        self._start = start  # Where the first block lies in the file, for errors.
        self._quote = ord(dialect.quote) if dialect.quote else None
        self._escape = ord(dialect.escape) if dialect.escape else None
        # Bytes before the first byte of a field.
        self._borders = np.zeros(256, bool)
        self._borders[[ord(dialect.delimiter), _LF, _CR]] = True
        self._is_started = False
        self._held = b""  # Received but not searched yet: the next byte may decide.
        self._at = 0  # Where `_held` begins.
        self._before = _LF  # The byte before that, unless it was escaped.
        self._is_escaped = False  # Whether the first byte of `_held` is.
        self._begun = 0  # Where the unfinished row begins.
        self._begun_with = -1  # Its first byte.
        self._is_inside = False  # Whether a quote is open at `_at`.
        self._opened = 0  # Where it was opened.
        self._last_quote = -1  # The last quote that opened or closed a field.

    def add(self, block: bytes | memoryview) -> NDArray[np.int64]:
        """Return offset and bytes (k × 2) of each row that this block finished."""
        data = self._held + block
        if not self._is_started:
            if len(data) <= len(BOM):
                self._held = data
                return _NO_ROWS
            data = self._without_mark(data)
        # The last byte waits: a CR ends a row by itself only where no LF follows.
        return self._look(data, len(data) - 1)

    def finish(self) -> NDArray[np.int64]:
        data = self._held if self._is_started else self._without_mark(self._held)
        rows = self._look(data + b"\0", len(data))
        self._held = b""
        if self._is_inside:
            opened = self._start + self._opened
            raise MalformedLineError(
                f"{self._path}: the quote at byte {opened:,} is never closed, so the rest of the "
                "file would be one row. Close it, or open the file with another quote= or escape=.",
                path=self._path,
                offset=opened,
            )
        if self._begun == self._at:
            return rows
        rest = np.array([[self._begun, self._at - self._begun]], np.int64)
        self._begun = self._at
        return np.concatenate([rows, rest])

    def _without_mark(self, data: bytes) -> bytes:
        self._is_started = True
        if not self._start:
            _refuse_json(self._path, data)
        if data.startswith(BOM):
            self._at = self._begun = len(BOM)
            return data[len(BOM) :]
        return data

    def _look(self, data: bytes, count: int) -> NDArray[np.int64]:
        """Search the first `count` bytes; the byte behind them is known. Keep the rest."""
        if count <= 0:
            self._held = data[:count] if count else data
            return _NO_ROWS
        seen = np.frombuffer(data, np.uint8)
        if self._begun == self._at:
            self._begun_with = int(seen[0])
        escaped = self._escaped(seen[:count])
        ends = _unescaped(line_ends(seen, count), escaped)
        if self._quote is not None:
            quotes = _unescaped(np.flatnonzero(seen[:count] == self._quote), escaped)
            quotes = self._counting(quotes, self._at_border(seen, quotes, escaped))
            ends = self._outside(ends, quotes)
            self._pass_quotes(quotes)
        rows = self._rows(seen, ends, count)
        self._before = _NEUTRAL if escaped is not None and escaped[-1] else int(seen[count - 1])
        self._held = data[count:]
        self._at += count
        self._check_size()
        return rows

    def _escaped(self, body: NDArray[np.uint8]) -> NDArray[np.bool_] | None:
        """Return which bytes are escaped by the one before them."""
        if self._escape is None:
            return None
        escapes = np.flatnonzero(body == self._escape)
        escaped = escaped_bytes(len(body), escapes, is_first=self._is_escaped)
        self._is_escaped = bool(escaped[-1])
        return escaped[:-1]

    def _at_border(
        self, seen: NDArray[np.uint8], quotes: NDArray[np.int64], escaped: NDArray[np.bool_] | None
    ) -> NDArray[np.bool_]:
        """Return which quotes are at the beginning of a field."""
        at_border = self._borders[seen[quotes - 1]]
        if escaped is not None:
            at_border &= ~escaped[quotes - 1]
        if len(quotes) and not quotes[0]:
            at_border[0] = self._borders[self._before]
        return at_border

    def _outside(self, ends: NDArray[np.int64], quotes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the line ends outside of quotes: an even number of quotes is before them."""
        is_odd = (np.searchsorted(quotes, ends) & 1).astype(bool)
        outside: NDArray[np.int64] = ends[is_odd == self._is_inside]
        return outside

    def _counting(
        self, quotes: NDArray[np.int64], at_border: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Return the quotes that open or close a field; the others are text."""
        # Quotes open and close in turn, unless one of them would open inside a field.
        follows = np.diff(quotes, prepend=self._last_quote - self._at) == 1
        is_opening = (np.arange(len(quotes)) + self._is_inside) % 2 == 0
        odd = np.flatnonzero(is_opening & ~at_border & ~follows)
        if not len(odd):
            return quotes
        first = int(odd[0])
        counting = quotes[:first].tolist()
        last = counting[-1] if counting else self._last_quote - self._at
        is_inside = False
        for quote, border in zip(quotes[first:].tolist(), at_border[first:].tolist(), strict=True):
            # A quote right after a closing one makes both a quote inside the field.
            if is_inside or border or last == quote - 1:
                is_inside = not is_inside
                last = quote
                counting.append(quote)
        return np.array(counting, np.int64)

    def _pass_quotes(self, quotes: NDArray[np.int64]) -> None:
        if not len(quotes):
            return
        is_first = np.diff(quotes, prepend=self._last_quote - self._at) != 1
        openings = quotes[int(self._is_inside) :: 2][is_first[int(self._is_inside) :: 2]]
        if len(openings):
            self._opened = self._at + int(openings[-1])
        self._is_inside = bool((len(quotes) + self._is_inside) % 2)
        self._last_quote = self._at + int(quotes[-1])

    def _rows(
        self, seen: NDArray[np.uint8], ends: NDArray[np.int64], count: int
    ) -> NDArray[np.int64]:
        if not len(ends):
            return _NO_ROWS
        rows = np.empty((len(ends), 2), np.int64)
        stops = ends + 1
        rows[0, 0] = self._begun - self._at
        rows[1:, 0] = stops[:-1]
        np.subtract(stops, rows[:, 0], out=rows[:, 1])
        firsts = seen[np.maximum(rows[:, 0], 0)]
        firsts[0] = self._begun_with
        is_blank = (firsts == _LF) | (firsts == _CR)
        rows[:, 0] += self._at
        stop = int(stops[-1])
        self._begun = self._at + stop
        if stop < count:
            self._begun_with = int(seen[stop])
        return rows[~is_blank] if is_blank.any() else rows

    def _check_size(self) -> None:
        if self._at - self._begun <= self._largest_row:
            return
        begun, opened = self._start + self._begun, self._start + self._opened
        why = f"the quote at byte {opened:,} is not closed" if self._is_inside else "it has no end"
        raise MalformedLineError(
            f"{self._path}: the row at byte {begun:,} is longer than {self._largest_row:,} bytes: "
            f"{why}. Correct it, or open the file with another quote= or escape=.",
            path=self._path,
            offset=begun,
        )


_NO_ROWS = np.empty((0, 2), np.int64)


def _refuse_json(path: str, data: bytes) -> None:
    """Raise where the first line of a file is JSON: an object, or the beginning of an array."""
    line = data.removeprefix(BOM).lstrip().partition(b"\n")[0].strip()
    name = {b"{": "jsonl", b"[": "json"}.get(line[:1])
    if name is None:
        return
    is_json = len(line) == 1
    for text in (line, line.rstrip(b",") + b"]"):
        with suppress(ValueError):
            value = decode_as_json(text)
            rows = value if isinstance(value, list) else [value]
            is_json |= bool(rows) and all(isinstance(row, dict) for row in rows)
    if is_json:
        raise OptionError(
            f"{path} holds JSON, where CSV is expected.",
            remedy=f"Give format={name!r} (--format {name}), or a name that says so.",
        )


def line_ends(seen: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    """Return the last byte of each LF, CRLF or CR among the first `count` bytes."""
    ends = np.flatnonzero(seen[:count] == _LF)
    returns = np.flatnonzero(seen[:count] == _CR)
    returns = returns[seen[returns + 1] != _LF]
    return np.sort(np.concatenate([ends, returns])) if len(returns) else ends


def _unescaped(places: NDArray[np.int64], escaped: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    return places if escaped is None else places[~escaped[places]]
