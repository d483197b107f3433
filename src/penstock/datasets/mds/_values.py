"""The encodings of MDS columns: bytes as Python values and as Arrow arrays."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets.mds._cells import BadCell, Encoding, each
from penstock.decode import decode_line, inferred_batch
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.datasets.mds._cells import Cells

_SCALARS = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
)  # fmt: skip
_IMAGES = ("pil", "jpeg", "png")
_DTYPE_CODES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32",
    34: "float32", 64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_MOST_NUMBERS = 2**31 - 1
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")


def encoding_of(name: str, column: str) -> Encoding:
    """Return what an encoding's name stands for; those that are not read are refused by name."""
    if name.partition(":")[0] == "ndarray":
        return arrays_of(name, column)
    if name in _SCALARS or name == "int":
        return Scalars(np.dtype("int64" if name == "int" else name))
    if name in ("bytes", *_IMAGES):
        return Blobs()
    if name in (f"list[{image}]" for image in _IMAGES):
        return BlobLists(4)  # Four bytes are kept for what may come.
    if name in ("jpeg_array", "jpegarray"):
        return BlobLists(0)
    parse = _PARSERS.get(name)
    if parse is not None:
        return Objects(parse, _ARROW_NAMES.get(name))
    if name == "pkl":
        raise OptionError(
            f"column {column!r} holds pickles (encoding 'pkl'), which run any code when they are "
            "read: nothing is unpickled. Write the column as json, ndarray, str or bytes."
        )
    raise OptionError(f"column {column!r} has the encoding {name!r}, which is not known.")


class Scalars(Encoding):
    """Numbers of one dtype."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype.newbyteorder("<")
        self.size = dtype.itemsize

    def _numbers(self, cells: Cells) -> NDArray[Any]:
        return cells.matrix(self._dtype.itemsize).view(self._dtype)[:, 0]

    def values(self, cells: Cells) -> list[Any]:
        numbers: list[Any] = self._numbers(cells).tolist()
        return numbers

    def array(self, cells: Cells, column: str, warned: set[str]) -> pa.Array:
        import pyarrow as pa  # noqa: PLC0415 (only for columns)

        del column, warned
        return pa.array(self._numbers(cells))


class Blobs(Encoding):
    """Bytes as they are: also images, which are not decoded."""

    def values(self, cells: Cells) -> list[Any]:
        return cells.parts()

    def array(self, cells: Cells, column: str, warned: set[str]) -> pa.Array:
        import pyarrow as pa  # noqa: PLC0415 (only for columns)

        del column, warned
        return pa.array(cells.parts(), pa.binary())


class BlobLists(Encoding):
    """Several images in one value: their number, their sizes (uint32), their bytes."""

    def __init__(self, head: int) -> None:
        self._head = head

    def values(self, cells: Cells) -> list[Any]:
        return each(self._blobs, cells.parts())

    def _blobs(self, data: bytes) -> list[bytes]:
        start = self._head + 4
        (count,) = struct.unpack_from("<I", data, self._head)
        sizes = np.frombuffer(data, "<u4", count, start).astype(np.int64)
        borders = (start + 4 * count + np.cumsum([0, *sizes.tolist()])).tolist()
        if borders[-1] != len(data):
            raise ValueError(f"its images end at byte {borders[-1]:,} of {len(data):,}")
        return [data[low:high] for low, high in pairwise(borders)]

    def array(self, cells: Cells, column: str, warned: set[str]) -> pa.Array:
        import pyarrow as pa  # noqa: PLC0415 (only for columns)

        del column, warned
        return pa.array(self.values(cells), pa.list_(pa.binary()))


class Objects(Encoding):
    """Text that means something: itself, a number of any size, JSON."""

    def __init__(self, parse: Callable[[bytes], Any], arrow: str | None) -> None:
        self._parse = parse
        self._arrow = arrow
        self.is_typed = arrow is not None
        self.is_parsed = not self.is_typed

    def values(self, cells: Cells) -> list[Any]:
        return each(self._parse, cells.parts())

    def array(self, cells: Cells, column: str, warned: set[str]) -> pa.Array:
        import pyarrow as pa  # noqa: PLC0415 (only for columns)

        values = self.values(cells)
        if self._arrow is not None:
            return pa.array(values, pa.type_for_alias(self._arrow))
        if not values:
            return pa.nulls(0)
        return inferred_batch([{column: value} for value in values], warned).column(0)


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
        # Integers would lose digits as floats, and NumPy joins uint64 and int64 as floats.
        if one.ndim != axes or one.dtype.kind != kind:
            raise BadCell(row, f"{_shown(one)} beside {_shown(arrays[0])}", is_damage=False)
    values = pa.array(np.concatenate([one.reshape(-1) for one in arrays]))
    # The lengths of the lists of each axis, from the last one on.
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


def _utf8(data: bytes) -> str:
    return data.decode()


_PARSERS: dict[str, Callable[[bytes], Any]] = {
    "str": _utf8,
    "str_int": lambda data: int(data.decode()),
    "str_float": lambda data: float(data.decode()),
    "str_decimal": lambda data: Decimal(data.decode()),
    "json": decode_line,
}
_ARROW_NAMES = {"str": "string", "str_float": "float64"}
