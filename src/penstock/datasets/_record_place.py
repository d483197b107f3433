"""Where a record lies, as messages name it: a file, and there a line, a row or a byte."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.datasets._stream import own_numbers
from penstock.datasets.text._line_numbers import is_too_far, line_number
from penstock.datasets.views._views import bare_origins
from penstock.jsonl import decompressed
from penstock.storage import locate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.datasets._source import Source
    from penstock.storage import StorageOptions

_BLOCK = 1 << 20


class RecordPlace(NamedTuple):
    """The place of a record in a file."""

    path: str
    line: int | None
    """Counted from 1; None where records are no lines, or lie too far behind to be counted."""
    offset: int
    """The first byte of the record; of a table its row, of a stream its number in the unit."""
    is_row: bool

    def __str__(self) -> str:
        if self.line is not None:
            return f"{self.path}, line {self.line:,}"
        return f"{self.path}{', row' if self.is_row else ' at'} {self.offset:,}"


def record_place(source: Source, number: int, *, with_line: bool = True) -> RecordPlace | None:
    """Return the place of one record; None where it lies in no file."""
    return _place(source, number, line_number if with_line else None)


def _place(
    source: Source, number: int, count: Callable[[str, int, StorageOptions], int | None] | None
) -> RecordPlace | None:
    home: Source | None = getattr(source, "home", None)
    if home is not None:
        source, number = home, int(own_numbers(np.array([number]))[0])
    if not source.files:
        return None
    path, offset, size = source.location(number)
    origin = next((one for one in bare_origins(source) if path in one.files), source)
    if not origin.has_lines:
        is_row = not size and not hasattr(source, "home")
        return RecordPlace(path, None, offset, is_row)
    line = None if count is None else count(path, offset, origin.storage_options)
    return RecordPlace(path, line, offset, is_row=False)


class RecordPlaces:
    """Finds the places of records; for rising numbers each line is counted once.

    So are those of compressed files, of which `record_place` counts from the beginning.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._path, self._line, self._at = "", 1, 0
        """Up to where lines were counted, and the line that begins there."""
        self._block = (0, b"")
        """The text there, and where it begins; `_blocks` yields what follows."""
        self._blocks: Iterator[bytes] = iter(())

    def __call__(self, number: int) -> RecordPlace | None:
        """Return the place of a record; None where it lies in no file."""
        return _place(self._source, number, self._line_at)

    def _line_at(self, path: str, offset: int, options: StorageOptions) -> int | None:
        if is_too_far(path, offset):
            return None
        if path != self._path or offset < self._at:
            self._path, self._line, self._at = path, 1, 0
            self._blocks, self._block = _text_of(path, options), (0, b"")
        begin, block = self._block
        while self._at < offset:
            if self._at == begin + len(block):
                begin, block = self._block = self._at, next(self._blocks, b"")
                if not block:
                    break  # The file is shorter by now.
            stop = min(offset, begin + len(block))
            self._line += block.count(b"\n", self._at - begin, stop - begin)
            self._at = stop
        return self._line


def _text_of(path: str, options: StorageOptions) -> Iterator[bytes]:
    store, name = locate(path, options)
    with closing(store.open(name)) as file:
        yield from decompressed(file, _BLOCK)
