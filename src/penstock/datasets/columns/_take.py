"""Values out of the files of a column: mapped, and taken by their numbers."""

from __future__ import annotations

import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasets.columns._write import (
    CODES,
    MOST_WORDS,
    NARROW,
    OFFSETS,
    VALID,
    VALUES,
    WORD_OFFSETS,
    WORDS,
    LevelFiles,
    code_type,
    has_width,
    is_large_text,
    is_text,
    narrow_name,
)
from penstock.decode import ValueType
from penstock.errors import CorruptFileError, CorruptIndexError, OptionError
from penstock.storage import open_regular

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Ids: TypeAlias = NDArray[np.int64]
    Parts: TypeAlias = tuple[list[pa.Buffer], list[pa.Array]]
    Take: TypeAlias = Callable[[Ids], pa.Array]

is_ = pa.types
_INT32 = np.dtype("<i4")
_MOST_ITEMS = np.iinfo(np.int32).max
_WIDTHS = (1, 2, 4, 8)
_NARROW_VALUES = {narrow_name(VALUES, dtype): dtype for dtype in NARROW}
_UNCHECKED = pc.TakeOptions(boundscheck=False)


class Values(ABC):
    """The values of a column; read by any number of threads, also after a fork."""

    def __init__(self, type_: pa.DataType, place: LevelFiles, length: int) -> None:
        self._type = type_
        has_nulls = place.has(VALID)
        self._valid = mapped(place.file(VALID), np.bool_, length) if has_nulls else None

    def take(self, ids: Ids) -> pa.Array:
        """Return the values of these numbers, in their order, in fresh memory."""
        buffers, children = self._parts(ids)
        bitmap = None
        if self._valid is not None:
            flags = self._valid.take(ids)
            bitmap = None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))
        return pa.Array.from_buffers(self._type, len(ids), [bitmap, *buffers], children=children)

    @abstractmethod
    def _parts(self, ids: Ids) -> Parts:
        """Return Arrow's buffers besides the bits of nulls, and the arrays inside."""


def map_column(place: LevelFiles, type_: pa.DataType, length: int) -> Take:
    """Map the files of a column of so many values, and return `take`; other sizes raise."""
    if isinstance(type_, ValueType):  # Texts under the name of `text` or `json`.
        take_texts = map_column(place, type_.storage_type, length)
        return lambda ids: pa.ExtensionArray.from_storage(type_, take_texts(ids))
    if is_.is_null(type_):
        return lambda ids: pa.nulls(len(ids))
    kind: type[Values] = _Nested
    if is_.is_list(type_) or is_.is_large_list(type_):
        kind = _Lists
    elif is_.is_boolean(type_):
        kind = _Bools
    elif has_width(type_):
        kind = _Fixed
    elif is_text(type_):
        kind = _Texts
    return kind(type_, place, length).take


def mapped(path: Path, dtype: Any, length: int) -> NDArray[Any]:
    """Map a file of so many numbers; one of another size raises."""
    wanted = np.dtype(dtype).itemsize * length
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != wanted:
                raise _corrupt(path, f"it has {size:,} bytes, and meta.json says {wanted:,}.")
            # Not np.memmap: each of its slices and takes costs microseconds more.
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except FileNotFoundError:
        raise CorruptIndexError(f"{path} is missing.", path=str(path)) from None
    except CorruptFileError as why:
        raise CorruptIndexError(str(why), path=str(path)) from None
    return np.frombuffer(memory, dtype)


class _Bools(Values):
    def __init__(self, type_: pa.DataType, place: LevelFiles, length: int) -> None:
        super().__init__(type_, place, length)
        self._values = mapped(place.file(VALUES), np.uint8, length)

    def _parts(self, ids: Ids) -> Parts:
        return [pa.py_buffer(np.packbits(self._values.take(ids), bitorder="little"))], []


class _Fixed(Values):
    """Values of a fixed width; integers may be stored in fewer bytes."""

    def __init__(self, type_: pa.DataType, place: LevelFiles, length: int) -> None:
        super().__init__(type_, place, length)
        width = type_.bit_width // 8
        # Numbers are taken several times as fast as bytes.
        self._dtype = np.dtype(f"<u{width}" if width in _WIDTHS else (np.void, width))
        name, stored = VALUES, self._dtype
        if is_.is_integer(type_):
            self._dtype = stored = np.dtype(type_.to_pandas_dtype())
            for narrow, dtype in _NARROW_VALUES.items():
                if dtype.itemsize < width and place.has(narrow):
                    name, stored = narrow, dtype
                    break
        self._values = mapped(place.file(name), stored, length)

    def _parts(self, ids: Ids) -> Parts:
        return [pa.py_buffer(self._values.take(ids).astype(self._dtype, copy=False))], []


def _largest(numbers: NDArray[Any]) -> int:
    """Return the largest of some numbers, in a third of the time of `max` where they are few."""
    return int(numbers[numbers.argmax()])


class _Borders:
    """Where each value begins, and where the last one ends: checked for those that are taken."""

    def __init__(self, place: LevelFiles, name: str, length: int | None) -> None:
        """Map the borders of so many values; None: of the words of a dictionary."""
        narrow = narrow_name(name, _INT32)
        dtype, name = (_INT32, narrow) if place.has(narrow) else (np.dtype("<i8"), name)
        self._path = place.file(name)
        if length is None:
            length = place.size(name) // dtype.itemsize - 1
            if not 0 <= length <= MOST_WORDS:
                raise _corrupt(self._path, f"of {length:,} words.")
        self.offsets = mapped(self._path, dtype, length + 1)
        first, self.last = self.offsets[[0, -1]].tolist()
        if first:
            raise _corrupt(self._path, f"it begins with {first:,}, not 0.")
        # Of unsigned numbers a negative one is a large one, and one comparison sees both.
        unsigned = self.offsets.view(f"<u{self.offsets.itemsize}")
        self._begins, self._ends = unsigned[:-1], unsigned[1:]

    def take(self, ids: Ids) -> tuple[NDArray[Any], NDArray[Any], int]:
        """Return where values begin, their lengths, both unsigned, and the sum of these.

        The sum may be an upper bound while it is small. A value outside of the data raises, and so
        do values that are larger together than the data.
        """
        if not len(ids):
            return self._begins[:0], self._begins[:0], 0
        begins, ends = self._begins.take(ids), self._ends.take(ids)
        lengths = ends - begins
        is_turned = begins > ends
        if is_turned[is_turned.argmax()] or _largest(ends) > self.last:
            raise _damaged(self._path, "where", ids, is_turned | (ends > self.last))
        most = _largest(lengths) * len(ids)
        if most > min(self.last, _MOST_ITEMS):
            most = int(lengths.sum(dtype=np.int64))
            if most > self.last:
                # A value is asked for often, or another one lies in it.
                once = np.unique(ids, return_index=True)[1]
                if int(lengths[once].sum(dtype=np.int64)) > self.last:
                    raise _damaged(self._path, "where", ids, lengths == lengths.max())
        return begins, lengths, most


def _damaged(path: Path, what: str, ids: Ids, wrong: NDArray[np.bool_]) -> CorruptIndexError:
    return _corrupt(
        path,
        f"it does not say {what} value {ids[wrong.argmax()]:,} is. Remove the column, and it is "
        "made again: penstock materialize PATH --drop",
    )


def _corrupt(path: Path, why: str) -> CorruptIndexError:
    return CorruptIndexError(f"{path} is damaged: {why}", path=str(path))


class _Lists(Values):
    def __init__(self, type_: pa.DataType, place: LevelFiles, length: int) -> None:
        own = place.of_lists
        super().__init__(type_, own, length)
        self._borders = _Borders(own, OFFSETS, length)
        self._take_items = map_column(place.of_items, type_.value_type, self._borders.last)
        self._dtype = np.int64 if is_.is_large_list(type_) else np.int32

    def _parts(self, ids: Ids) -> Parts:
        begins, lengths, most = self._borders.take(ids)
        if most > _MOST_ITEMS and self._dtype is np.int32:
            raise OptionError(f"lists of {most:,} items do not fit one batch: ask for fewer.")
        offsets = np.zeros(len(ids) + 1, self._dtype)
        signed = self._borders.offsets.dtype
        np.cumsum(lengths.view(signed), out=offsets[1:])
        # From each list's first item on, one after the other.
        numbers = np.repeat(begins.view(signed) - offsets[:-1], lengths.view(signed))
        numbers += np.arange(int(offsets[-1]), dtype=numbers.dtype)
        return [pa.py_buffer(offsets)], [self._take_items(numbers)]


class _Nested(Values):
    """Objects, whose fields have their numbers, or lists of one size."""

    def __init__(self, type_: pa.DataType, place: LevelFiles, length: int) -> None:
        super().__init__(type_, place, length)
        self._size = type_.list_size if is_.is_fixed_size_list(type_) else None
        if self._size is None:
            fields = [(str(number), field.type) for number, field in enumerate(type_)]
        else:
            fields, length = [("item", type_.value_type)], length * self._size
        self._takes = [map_column(place.inside(name), own, length) for name, own in fields]

    def _parts(self, ids: Ids) -> Parts:
        if self._size is not None:
            ids = (ids[:, None].astype(np.int64) * self._size + np.arange(self._size)).ravel()
        return [], [take(ids) for take in self._takes]


class _Texts(Values):
    """Texts at places that are checked: Arrow would read whatever lies there."""

    def __init__(self, type_: pa.DataType, place: LevelFiles, length: int) -> None:
        super().__init__(type_, place, length)
        is_coded = place.has(CODES)
        values, offsets = (WORDS, WORD_OFFSETS) if is_coded else (VALUES, OFFSETS)
        self._borders = borders = _Borders(place, offsets, None if is_coded else length)
        data = mapped(place.file(values), np.uint8, borders.last)
        count = len(borders.offsets) - 1
        is_narrow = borders.offsets.dtype == _INT32
        self._is_as_wide = is_narrow != is_large_text(type_)
        stored = pa.binary() if is_narrow else pa.large_binary()
        stored = type_ if self._is_as_wide else stored
        buffers = [None, pa.py_buffer(borders.offsets), pa.py_buffer(data)]
        self._texts = pa.Array.from_buffers(stored, count, buffers)
        self._codes = None
        if is_coded:
            borders.take(np.arange(count))
            self._path = place.file(CODES)
            self._codes = mapped(self._path, code_type(count), length)

    def _places(self, ids: Ids) -> NDArray[Any]:
        """Return where texts stand in what is stored; numbers that lead elsewhere raise."""
        if self._codes is None:
            self._borders.take(ids)
            return ids
        codes = self._codes.take(ids)
        if len(codes) and _largest(codes) >= len(self._texts):
            raise _damaged(self._path, "which word", ids, codes >= len(self._texts))
        return codes

    def take(self, ids: Ids) -> pa.Array:
        is_whole = self._valid is None and self._is_as_wide
        return self._taken(ids) if is_whole else super().take(ids)

    def _taken(self, ids: Ids) -> pa.Array:
        places = pa.array(self._places(ids))
        try:
            return pc.call_function("take", [self._texts, places], _UNCHECKED)
        except pa.ArrowException as why:
            raise OptionError(f"texts do not fit one batch: {why}. Ask for fewer.") from None

    def _parts(self, ids: Ids) -> Parts:
        _, offsets, data = self._taken(ids).buffers()
        if not self._is_as_wide:
            is_large = is_large_text(self._type)
            own, wanted = (np.int32, np.int64) if is_large else (np.int64, np.int32)
            borders = np.frombuffer(offsets, own, len(ids) + 1)
            if int(borders[-1]) > np.iinfo(wanted).max:
                raise OptionError(
                    f"texts of {int(borders[-1]):,} bytes do not fit one batch: ask for fewer."
                )
            offsets = pa.py_buffer(borders.astype(wanted))
        return [offsets, data], []
