"""The encodings of MDS columns: bytes as Python values and as Arrow arrays."""

from __future__ import annotations

import math
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.decode import decode_line
from penstock.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_IMAGES = ("pil", "jpeg", "png")
_DTYPE_CODES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32",
    34: "float32", 64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
_MOST_NUMBERS = 2**31 - 1
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")
_NDARRAY = re.compile(r"ndarray(?::(\w+)(?::([0-9]{1,10}(?:,[0-9]{1,10}){0,31}))?)?")


class BadCell(Exception):  # noqa: N818 - says what a value is, not what went wrong
    """A value that cannot be handed out."""

    def __init__(self, row: int, why: object, *, is_damage: bool = True) -> None:
        super().__init__(row, why)
        self.row, self.why = row, why
        self.is_damage = is_damage
        """Else it is a sound value, and only no Arrow column has room for it."""


class Cells(NamedTuple):
    """The bytes of one column of some samples: text[begins[i]:ends[i]], int64[samples]."""

    text: bytes
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    def parts(self) -> list[bytes]:
        """Return each value's own bytes."""
        text = self.text
        places = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return [text[begin:end] for begin, end in places]

    def matrix(self, width: int) -> NDArray[np.uint8]:
        """Return values of one size: uint8[samples, width], contiguous."""
        if not len(self.begins):
            return np.empty((0, width), np.uint8)
        # A value begins at every byte, as one item each, which NumPy copies as a whole.
        items = np.ndarray((len(self.text) - width + 1,), f"V{width}", self.text, strides=(1,))
        return items[self.begins].view(np.uint8).reshape(-1, width)


class Encoding(ABC):
    """How the values of a column are stored."""

    size: int | None = None
    """Bytes of each; None: it differs."""
    is_typed = True
    """Whether the Arrow type is known without looking at values."""
    is_parsed = False
    """Whether values are Python objects of any shape, whose Arrow type is inferred."""

    @abstractmethod
    def values(self, cells: Cells) -> list[Any]:
        """Return the values as a record has them; raise `BadCell`."""

    @abstractmethod
    def array(self, cells: Cells) -> pa.Array:
        """Return the values as Arrow, unless they are parsed ones; raise `BadCell`."""


def _each(parse: Callable[[bytes], Any], parts: Sequence[bytes]) -> list[Any]:
    """Return what each value's bytes mean; raise `BadCell` about one that means nothing."""
    try:
        return [parse(part) for part in parts]
    except (ValueError, ArithmeticError, LookupError, struct.error):
        for row, part in enumerate(parts):
            try:
                parse(part)
            except (ValueError, ArithmeticError, LookupError, struct.error) as why:
                raise BadCell(row, str(why) or type(why).__name__) from None
        raise


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

    def array(self, cells: Cells) -> pa.Array:
        return pa.array(self._numbers(cells))


class Objects(Encoding):
    """Values that are parsed one by one: texts, bytes, numbers of any size, JSON."""

    def __init__(self, parse: Callable[[bytes], Any], arrow: pa.DataType | None = None) -> None:
        self._parse = parse
        self._arrow = arrow
        self.is_typed = arrow is not None
        self.is_parsed = arrow is None

    def values(self, cells: Cells) -> list[Any]:
        return _each(self._parse, cells.parts())

    def array(self, cells: Cells) -> pa.Array:
        return pa.array(self.values(cells), self._arrow)


def _images(data: bytes, head: int) -> list[bytes]:
    """Return several images in one value: behind a head their number, sizes (uint32), bytes."""
    start = head + 4
    (count,) = struct.unpack_from("<I", data, head)
    sizes = np.frombuffer(data, "<u4", count, start).astype(np.int64)
    borders = (start + 4 * count + np.cumsum([0, *sizes.tolist()])).tolist()
    if borders[-1] != len(data):
        raise ValueError(f"its images end at byte {borders[-1]:,} of {len(data):,}")
    return [data[low:high] for low, high in pairwise(borders)]


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
        return _each(self._one, cells.parts()) if block is None else list(block)

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

    def array(self, cells: Cells) -> pa.Array:
        block = self._block(cells)
        if block is not None:
            values = pa.array(block.reshape(-1))
            for length in reversed(block.shape[1:]):
                values = pa.FixedSizeListArray.from_arrays(values, length)
            return values
        arrays = self.values(cells)
        return _nested(arrays) if arrays else pa.nulls(0, pa.list_(pa.null()))


def _nested(arrays: Sequence[NDArray[Any]]) -> pa.Array:
    """Return arrays of one number of axes as lists, each axis but the first a list in it."""
    axes, kind = arrays[0].ndim, arrays[0].dtype.kind
    for row, one in enumerate(arrays):
        # Integers would lose digits as floats, and NumPy joins uint64 and int64 as floats.
        if one.ndim != axes or one.dtype.kind != kind:
            these, those = (f"an array of {a.dtype} with {a.ndim} axes" for a in (one, arrays[0]))
            raise BadCell(row, f"{these} beside {those}", is_damage=False)
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


def arrays_of(name: str, column: str) -> Arrays:
    """Return the encoding `ndarray`, `ndarray:DTYPE` or `ndarray:DTYPE:LENGTH,LENGTH…`."""
    made = _NDARRAY.fullmatch(name.replace(" ", "").rstrip(":"))
    dtype, shape = made.groups() if made is not None else (None, None)
    axes = tuple(map(int, shape.split(","))) if shape else ()
    is_known = dtype is None or dtype in _DTYPE_CODES.values()
    if made is None or not is_known or 0 in axes or math.prod(axes) > _MOST_NUMBERS:
        raise OptionError(
            f"column {column!r} has the encoding {name!r}: expected ndarray, ndarray:DTYPE or "
            "ndarray:DTYPE:LENGTH,LENGTH…"
        )
    return Arrays(None if dtype is None else np.dtype(dtype), axes or None)


_BLOBS = Objects(bytes, pa.binary())
_LISTS = pa.list_(pa.binary())
_OBJECTS: dict[str, Objects] = {
    "bytes": _BLOBS,
    **dict.fromkeys(_IMAGES, _BLOBS),  # They are not decoded.
    # Four bytes are kept for what may come.
    **{f"list[{image}]": Objects(partial(_images, head=4), _LISTS) for image in _IMAGES},
    "jpeg_array": Objects(partial(_images, head=0), _LISTS),
    "jpegarray": Objects(partial(_images, head=0), _LISTS),
    "str": Objects(bytes.decode, pa.string()),
    "str_int": Objects(lambda data: int(data.decode())),
    "str_float": Objects(lambda data: float(data.decode()), pa.float64()),
    "str_decimal": Objects(lambda data: Decimal(data.decode())),
    "json": Objects(decode_line),
}


def encoding_of(name: str, column: str) -> Encoding:
    """Return what an encoding's name stands for; those that are not read are refused by name."""
    if name.partition(":")[0] == "ndarray":
        return arrays_of(name, column)
    if name in (*_DTYPE_CODES.values(), "int"):
        return Scalars(np.dtype("int64" if name == "int" else name))
    if name in _OBJECTS:
        return _OBJECTS[name]
    if name == "pkl":
        raise OptionError(
            f"column {column!r} holds pickles (encoding 'pkl'), which run any code when they are "
            "read: nothing is unpickled. Write the column as json, ndarray, str or bytes."
        )
    raise OptionError(f"column {column!r} has the encoding {name!r}, which is not known.")
