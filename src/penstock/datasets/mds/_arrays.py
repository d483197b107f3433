"""NumPy arrays in MDS columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets.mds._cells import BadCell, Encoding, each
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.datasets.mds._cells import Cells

_DTYPE_CODES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32",
    34: "float32", 64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_MOST_NUMBERS = 2**31 - 1
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")


class Arrays(Encoding):
    """NumPy arrays; what the encoding's name does not say of dtype and shape, each value does."""

    def __init__(self, dtype: np.dtype[Any] | None, shape: tuple[int, ...] | None) -> None:
        self._dtype = None if dtype is None else dtype.newbyteorder("<")
        self._shape = shape
        if dtype is not None and shape is not None:
            self.size = math.prod(shape) * dtype.itemsize
        self.is_typed = self.size is not None

    def values(self, cells: Cells) -> list[Any]:
        block = self._block(cells)
        return each(self._one, cells.parts()) if block is None else list(block)

    def _block(self, cells: Cells) -> NDArray[Any] | None:
        """Return all values as one array, where they are of one dtype and shape."""
        if self.size is None or self._dtype is None or self._shape is None:
            return None
        block: NDArray[Any] = cells.matrix(self.size).view(self._dtype)
        return block.reshape(len(block), *self._shape)

    def _one(self, data: bytes) -> NDArray[Any]:
        at, dtype, shape = 0, self._dtype, self._shape
        if dtype is None:
            dtype = np.dtype(_DTYPE_CODES[data[0]]).newbyteorder("<")
            at = 1
        if shape is None:
            axes, kind = divmod(data[at], len(_SHAPE_TYPES))
            shape = tuple(np.frombuffer(data, _SHAPE_TYPES[kind], axes, at + 1).tolist())
            at += 1 + axes * np.dtype(_SHAPE_TYPES[kind]).itemsize
        # A copy, because what lies over bytes is read-only, and torch warns of that.
        return np.frombuffer(data, dtype, offset=at).reshape(shape).copy()

    def array(self, cells: Cells, column: str, warned: set[str]) -> pa.Array:
        import pyarrow as pa  # noqa: PLC0415 (only for columns)

        del column, warned
        block = self._block(cells)
        if block is not None:
            values = pa.array(block.reshape(-1))
            for length in reversed(block.shape[1:]):
                values = pa.FixedSizeListArray.from_arrays(values, length)
            return values
        arrays = self.values(cells)
        if not arrays:
            return pa.nulls(0, pa.list_(pa.null()))
        return _nested(arrays)


def _nested(arrays: Sequence[NDArray[Any]]) -> pa.Array:
    """Return arrays of one number of axes as lists, each axis but the first a list in it."""
    import pyarrow as pa  # noqa: PLC0415 (only for columns)

    axes, kind = arrays[0].ndim, arrays[0].dtype.kind
    for row, one in enumerate(arrays):
        # Integers would lose digits as floats, and NumPy joins uint64 and int64 as such.
        if one.ndim != axes or one.dtype.kind != kind:
            raise BadCell(row, f"{_shown(one)} beside {_shown(arrays[0])}", is_damage=False)
    values = pa.array(np.concatenate([one.reshape(-1) for one in arrays]))
    # Of each axis from the last one on: how long the lists there are.
    for axis in reversed(range(axes)):
        counts = [int(np.prod(one.shape[:axis])) for one in arrays]
        lengths = np.repeat([one.shape[axis] for one in arrays], counts)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        if offsets[-1] <= np.iinfo(np.int32).max:
            values = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
        else:
            values = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)
    return values


def _shown(array: NDArray[Any]) -> str:
    return f"an array of {array.dtype} with {array.ndim} axes"


def arrays_of(name: str, column: str) -> Arrays:
    """Return the encoding `ndarray`, `ndarray:DTYPE` or `ndarray:DTYPE:LENGTH,LENGTH…`."""
    dtype, _, shape = name.partition(":")[2].partition(":")
    try:
        if dtype and dtype not in _DTYPE_CODES.values():
            raise ValueError(dtype)  # noqa: TRY301 (as the others that may be wrong with it)
        axes = tuple(int(axis) for axis in shape.split(",")) if shape else None
        if axes is not None and (min(axes) < 1 or math.prod(axes) > _MOST_NUMBERS):
            raise ValueError(shape)  # noqa: TRY301
    except ValueError:
        raise OptionError(
            f"column {column!r} has the encoding {name!r}: expected ndarray, ndarray:DTYPE or "
            "ndarray:DTYPE:LENGTH,LENGTH…"
        ) from None
    return Arrays(np.dtype(dtype) if dtype else None, axes)
