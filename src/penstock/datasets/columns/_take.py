"""Values out of the files of a column: mapped, and taken by their numbers."""

from __future__ import annotations

import mmap
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

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
    code_type,
    has_width,
    is_large_text,
    is_text,
    narrow_name,
    width_of,
)
from penstock.errors import CorruptFileError, CorruptIndexError, OptionError
from penstock.storage import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from penstock.datasets.columns._write import LevelFiles

    Ids = NDArray[np.int64]

is_ = pa.types
_INT32 = np.dtype("<i4")
_MOST_ITEMS = np.iinfo(np.int32).max
_WIDTHS = (1, 2, 4, 8)
_WHERE = "where"
_NARROW_VALUES = {narrow_name(VALUES, dtype): dtype for dtype in NARROW}
_UNCHECKED = pc.TakeOptions(boundscheck=False)


class Values(Protocol):
    """The values of a column; read by any number of threads, also after a fork."""

    def take(self, ids: Ids) -> pa.Array:
        """Return the values of these numbers, in their order, in fresh memory."""
        ...


def map_column(
    place: LevelFiles, type_: pa.DataType, length: int, lists: Sequence[Path] = ()
) -> Values:
    """Map the files of a column of so many values; files of another size raise.

    `lists` are the folders of the levels of lists at the top.
    """
    if is_.is_list(type_) or is_.is_large_list(type_):
        own = place.of_lists
        if place.level is not None and lists:
            own = replace(own, folder=lists[place.level])
        borders = _Borders(own, OFFSETS, length)
        items = map_column(place.of_items, type_.value_type, borders.last, lists)
        return _Lists(type_, borders, _Valid(own, length), items)
    valid = _Valid(place, length)
    if is_.is_null(type_):
        return _Nothing()
    if is_.is_boolean(type_):
        return _Bools(mapped(place.file(VALUES), np.uint8, length), valid)
    if is_.is_integer(type_):
        return _integers(place, type_, length, valid)
    if has_width(type_):
        values = mapped(place.file(VALUES), np.dtype((np.void, width_of(type_))), length)
        return _Fixed(type_, values, valid)
    if is_text(type_):
        return _texts(place, type_, length, valid)
    if is_.is_fixed_size_list(type_):
        items = map_column(place.inside("item"), type_.value_type, length * type_.list_size)
        return _Nested(type_, valid, [items])
    children = [
        map_column(place.inside(str(number)), field.type, length)
        for number, field in enumerate(type_)
    ]
    return _Nested(type_, valid, children)


def mapped(path: Path, dtype: Any, length: int) -> NDArray[Any]:
    """Map a file of so many numbers; one of another size raises."""
    wanted = np.dtype(dtype).itemsize * length
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != wanted:
                raise CorruptIndexError(
                    f"{path} is damaged: it has {size:,} bytes, and meta.json says {wanted:,}.",
                    path=str(path),
                )
            # Not np.memmap: each of its slices and takes costs microseconds more.
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except FileNotFoundError:
        raise CorruptIndexError(f"{path} is missing.", path=str(path)) from None
    except CorruptFileError as why:
        raise CorruptIndexError(str(why), path=str(path)) from None
    return np.frombuffer(memory, dtype)


def _integers(place: LevelFiles, type_: pa.DataType, length: int, valid: _Valid) -> Values:
    own = np.dtype(type_.to_pandas_dtype())
    for name, dtype in _NARROW_VALUES.items():
        if dtype.itemsize < own.itemsize and place.has(name):
            return _Fixed(type_, mapped(place.file(name), dtype, length), valid, own)
    return _Fixed(type_, mapped(place.file(VALUES), own, length), valid)


class _Valid:
    """Which values are there, and not null."""

    def __init__(self, place: LevelFiles, length: int) -> None:
        has_nulls = place.has(VALID)
        self._valid = mapped(place.file(VALID), np.bool_, length) if has_nulls else None

    def bitmap(self, ids: Ids) -> pa.Buffer | None:
        """Return Arrow's bits for some values; None where all of them are there."""
        if self._valid is None:
            return None
        flags = self._valid.take(ids)
        if flags.all():
            return None
        return pa.py_buffer(np.packbits(flags, bitorder="little"))


class _Nothing:
    def take(self, ids: Ids) -> pa.Array:
        return pa.nulls(len(ids))


class _Bools:
    def __init__(self, values: NDArray[np.uint8], valid: _Valid) -> None:
        self._values, self._valid = values, valid

    def take(self, ids: Ids) -> pa.Array:
        bits = pa.py_buffer(np.packbits(self._values.take(ids), bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(ids), [self._valid.bitmap(ids), bits])


class _Fixed:
    def __init__(
        self,
        type_: pa.DataType,
        values: NDArray[Any],
        valid: _Valid,
        wide: np.dtype[Any] | None = None,
    ) -> None:
        """Take values as they are, or kept in fewer bytes than the `wide` ones they are."""
        self._type, self._valid, self._wide = type_, valid, wide
        width = values.dtype.itemsize
        # Numbers are taken several times as fast as bytes.
        is_bytes = values.dtype.kind == "V" and width in _WIDTHS
        self._values = values.view(f"<u{width}") if is_bytes else values

    def take(self, ids: Ids) -> pa.Array:
        values = self._values.take(ids)
        if self._wide is not None:
            values = values.astype(self._wide)
        memory = pa.py_buffer(values)
        return pa.Array.from_buffers(self._type, len(ids), [self._valid.bitmap(ids), memory])


def _largest(numbers: NDArray[Any]) -> int:
    """Return the largest of some numbers, in a third of the time of `max` where they are few."""
    return int(numbers[numbers.argmax()])


class _Borders:
    """Where each value begins, and where the last one ends: checked for those that are taken."""

    def __init__(self, place: LevelFiles, name: str, length: int) -> None:
        narrow = narrow_name(name, _INT32)
        self._path = place.file(narrow if place.has(narrow) else name)
        self.offsets = mapped(self._path, _INT32 if place.has(narrow) else "<i8", length + 1)
        first, self.last = self.offsets[[0, -1]].tolist()
        if first:
            raise CorruptIndexError(
                f"{self._path} is damaged: it begins with {first:,}, not 0.", path=str(self._path)
            )
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
            raise _damaged(self._path, _WHERE, ids, is_turned | (ends > self.last))
        most = _largest(lengths) * len(ids)
        if most > min(self.last, _MOST_ITEMS):
            most = int(lengths.sum(dtype=np.int64))
            if most > self.last:
                # A value is asked for often, or another one lies in it.
                once = np.unique(ids, return_index=True)[1]
                if int(lengths[once].sum(dtype=np.int64)) > self.last:
                    raise _damaged(self._path, _WHERE, ids, lengths == lengths.max())
        return begins, lengths, most

    def checked(self, ids: Ids) -> Ids:
        """Return numbers of values that can be taken."""
        self.take(ids)
        return ids


def _damaged(path: Path, what: str, ids: Ids, wrong: NDArray[np.bool_]) -> CorruptIndexError:
    return CorruptIndexError(
        f"{path} is damaged: it does not say {what} value {ids[wrong.argmax()]:,} is. Remove the "
        "column, and it is made again: penstock materialize PATH --drop",
        path=str(path),
    )


class _Lists:
    def __init__(self, type_: pa.DataType, borders: _Borders, valid: _Valid, items: Values) -> None:
        self._type, self._borders, self._valid, self._items = type_, borders, valid, items
        self._dtype = np.int64 if is_.is_large_list(type_) else np.int32

    def take(self, ids: Ids) -> pa.Array:
        begins, lengths, most = self._borders.take(ids)
        if most > _MOST_ITEMS and self._dtype is np.int32:
            raise OptionError(f"lists of {most:,} items do not fit one batch: ask for fewer.")
        offsets = np.zeros(len(ids) + 1, self._dtype)
        signed = self._borders.offsets.dtype
        np.cumsum(lengths.view(signed), out=offsets[1:])
        # From each list's first item on, one after the other.
        numbers = np.repeat(begins.view(signed) - offsets[:-1], lengths.view(signed))
        numbers += np.arange(int(offsets[-1]), dtype=numbers.dtype)
        return pa.Array.from_buffers(
            self._type,
            len(ids),
            [self._valid.bitmap(ids), pa.py_buffer(offsets)],
            children=[self._items.take(numbers)],
        )


class _Nested:
    """Objects, whose fields have their numbers, or lists of one size."""

    def __init__(self, type_: pa.DataType, valid: _Valid, children: Sequence[Values]) -> None:
        self._type, self._valid, self._children = type_, valid, children

    def take(self, ids: Ids) -> pa.Array:
        numbers = ids
        if is_.is_fixed_size_list(self._type):
            size = self._type.list_size
            numbers = (ids[:, None].astype(np.int64) * size + np.arange(size)).ravel()
        children = [child.take(numbers) for child in self._children]
        return pa.Array.from_buffers(
            self._type, len(ids), [self._valid.bitmap(ids)], children=children
        )


def _texts(place: LevelFiles, type_: pa.DataType, length: int, valid: _Valid) -> Values:
    if not place.has(CODES):
        borders, texts = _many_texts(place, VALUES, OFFSETS, length, type_)
        return _Texts(type_, texts, valid, borders.checked)
    count = _words(place)
    borders, texts = _many_texts(place, WORDS, WORD_OFFSETS, count, type_)
    borders.checked(np.arange(count))
    return _Texts(type_, texts, valid, _Codes(place.file(CODES), count, length).take)


def _words(place: LevelFiles) -> int:
    """Return how many words a dictionary has."""
    for name, width in ((narrow_name(WORD_OFFSETS, _INT32), 4), (WORD_OFFSETS, 8)):
        if place.has(name):
            count = place.file(name).stat().st_size // width - 1
            if not 0 <= count <= MOST_WORDS:
                path = place.file(name)
                raise CorruptIndexError(f"{path} is damaged: of {count:,} words.", path=str(path))
            return count
    path = place.file(WORD_OFFSETS)
    raise CorruptIndexError(f"{path} is missing.", path=str(path))


def _many_texts(
    place: LevelFiles, values: str, offsets: str, length: int, type_: pa.DataType
) -> tuple[_Borders, pa.Array]:
    """Return texts as an array of the type, or of bytes where its offsets have another width."""
    borders = _Borders(place, offsets, length)
    data = mapped(place.file(values), np.uint8, borders.last)
    buffers = [None, pa.py_buffer(borders.offsets), pa.py_buffer(data)]
    is_narrow = borders.offsets.dtype == _INT32
    if is_narrow == is_large_text(type_):
        type_ = pa.binary() if is_narrow else pa.large_binary()
    return borders, pa.Array.from_buffers(type_, length, buffers)


class _Codes:
    """The numbers of words that values are, each checked when it is taken."""

    def __init__(self, path: Path, words: int, length: int) -> None:
        self._path, self._words = path, words
        self._codes = mapped(path, code_type(words), length)

    def take(self, ids: Ids) -> NDArray[Any]:
        codes = self._codes.take(ids)
        if len(codes) and _largest(codes) >= self._words:
            raise _damaged(self._path, "which word", ids, codes >= self._words)
        return codes


class _Texts:
    def __init__(
        self,
        type_: pa.DataType,
        texts: pa.Array,
        valid: _Valid,
        places: Callable[[Ids], NDArray[Any]],
    ) -> None:
        """Take texts at places that are checked: Arrow would read whatever lies there."""
        self._type, self._texts, self._valid, self._places = type_, texts, valid, places
        self._is_as_wide = texts.type.equals(type_)

    def take(self, ids: Ids) -> pa.Array:
        places = pa.array(self._places(ids))
        try:
            taken = pc.call_function("take", [self._texts, places], _UNCHECKED)
        except pa.ArrowException as why:
            raise OptionError(f"texts do not fit one batch: {why}. Ask for fewer.") from None
        valid = self._valid.bitmap(ids)
        if valid is None and self._is_as_wide:
            return taken
        _, offsets, data = taken.buffers()
        if not self._is_as_wide:
            is_large = is_large_text(self._type)
            own, wanted = (np.int32, np.int64) if is_large else (np.int64, np.int32)
            borders = np.frombuffer(offsets, own, len(ids) + 1)
            if int(borders[-1]) > np.iinfo(wanted).max:
                raise OptionError(
                    f"texts of {int(borders[-1]):,} bytes do not fit one batch: ask for fewer."
                )
            offsets = pa.py_buffer(borders.astype(wanted))
        return pa.Array.from_buffers(self._type, len(ids), [valid, offsets, data])
