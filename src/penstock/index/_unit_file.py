"""The file in which a unit publishes what it found: rows as they come, the rest behind them."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.index._checks import UnitFound
from penstock.storage import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from numpy.typing import NDArray

_ROW_BYTES = 16
_ROWS_AT_ONCE = 1 << 16
_SIZE_BYTES = 8


class NewUnitFile:
    """On its way; there as a whole when it is published, and gone with its `with` block else."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._draft = LocalStore().draft(*os.path.split(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._draft.discard()

    def add(self, places: NDArray[np.int64]) -> None:
        """Write offset and bytes of records: int64[k, 2]."""
        self._draft.write(places.astype("<i8").tobytes())

    def publish(self, found: UnitFound) -> None:
        """Write the rest, and let the file appear."""
        rest = msgspec.msgpack.encode(found)
        self._draft.write(rest + len(rest).to_bytes(_SIZE_BYTES, "little"))
        self._draft.publish(self._path, exclusive=False)


class UnitFile:
    """One that is there."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        end = len(self._map) - _SIZE_BYTES
        start = end - int.from_bytes(self._map[end:], "little")
        self.found = msgspec.msgpack.decode(self._map[start:end], type=UnitFound)
        self._at = 0

    def rows(self, count: int) -> Iterator[NDArray[np.int64]]:
        """Yield the next rows, some at a time: int64[k, 2]."""
        stop = self._at + count
        while self._at < stop:
            some = min(_ROWS_AT_ONCE, stop - self._at)
            rows = np.frombuffer(self._map, "<i8", 2 * some, self._at * _ROW_BYTES)
            self._at += some
            yield rows.reshape(-1, 2)
