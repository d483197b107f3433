"""What the bytes of MDS columns mean: Python values, and Arrow arrays."""

from __future__ import annotations

import struct
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets.mds._arrays import arrays_of
from penstock.datasets.mds._cells import Encoding, each
from penstock.decode import decode_line, inferred_batch
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.datasets.mds._cells import Cells

_SCALARS = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
)  # fmt: skip
_IMAGES = ("pil", "jpeg", "png")


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
    """Bytes as they are: also images, which are left to whoever can decode them."""

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
