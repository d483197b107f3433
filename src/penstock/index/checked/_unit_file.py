"""The file in which a unit publishes what it found: rows as they come, the rest behind them."""

from __future__ import annotations

import mmap
import os
import shlex
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from penstock.errors import CorruptFileError
from penstock.index.checked._checks import UnitFound
from penstock.storage import LocalStore, open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from numpy.typing import NDArray

_ROW_BYTES = 16
_ROWS_AT_ONCE = 1 << 16
_SIZE_BYTES = 8

T = TypeVar("T")


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


class MappedUnit(NamedTuple, Generic[T]):
    """The file of a unit: its data, mapped, and what stands behind that."""

    data: mmap.mmap
    size: int
    """Bytes of the data."""
    rest: T


def map_unit(path: str, type_: type[T]) -> MappedUnit[T]:
    """Map the file of a unit, or raise `CorruptFileError` for one that is none."""
    try:
        with open_regular(path) as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        end = len(mapped) - _SIZE_BYTES
        start = end - int.from_bytes(mapped[end:], "little")
        with memoryview(mapped) as view, view[max(0, start) : max(0, end)] as rest:
            return MappedUnit(mapped, start, msgspec.msgpack.decode(rest, type=type_))
    except (OSError, ValueError, RecursionError) as why:
        raise damaged_unit(path, why) from None


def damaged_unit(path: str, why: object) -> CorruptFileError:
    """Return the error for the file of a unit that cannot be used."""
    folder = os.path.dirname(path)
    return CorruptFileError(
        f"{path} is damaged ({why}). Remove what a killed builder left, and build again: rm -r "
        f"{shlex.quote(folder)}",
        path=path,
    )


class UnitFile:
    """One that is there."""

    def __init__(self, path: str) -> None:
        self._map, size, self.found = map_unit(path, UnitFound)
        records = [part.records for part in self.found.parts]
        if min(records, default=0) < 0 or sum(records) * _ROW_BYTES > size:
            raise damaged_unit(path, "it tells of other rows than it holds")
        self._at = 0

    def rows(self, count: int) -> Iterator[NDArray[np.int64]]:
        """Yield the next rows, some at a time: int64[k, 2]."""
        stop = self._at + count
        while self._at < stop:
            some = min(_ROWS_AT_ONCE, stop - self._at)
            rows = np.frombuffer(self._map, "<i8", 2 * some, self._at * _ROW_BYTES)
            self._at += some
            yield rows.reshape(-1, 2)
