"""A column's values as plain files, from which any of them can be mapped and taken.

A value of a fixed width is a place in `values.bin`. Texts and lists have `offsets.bin`, one more
than there are values; texts that repeat are numbers (`codes.bin`) into a dictionary. Integers are
kept as narrow as they fit, because what lies close together is gathered faster: `values-u2.bin`
has two bytes for each. Where there are nulls, `valid.bin` has a byte, 1 or 0, for each value. Each
level of lists at the top has a folder of its own, so that columns whose lists are equally long can
share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasets.fields._paths import is_listlike
from penstock.decode import ValueType, list_items
from penstock.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Lengths: TypeAlias = NDArray[np.int64]

Arrays: TypeAlias = Callable[[], Iterator[pa.Array]]
"""The values of a column, one array after the other, as often as they are asked for."""

VALUES, VALID, OFFSETS, CODES, WORDS, WORD_OFFSETS = (
    f"{name}.bin" for name in ("values", "valid", "offsets", "codes", "words", "word_offsets")
)
NARROW = tuple(map(np.dtype, ("<u1", "<u2", "<u4", "<i1", "<i2", "<i4")))
"""Types that integers are stored as if all fit; the narrowest first."""
MOST_WORDS = 1 << 18
"""Distinct texts that a dictionary may have; more are seldom worth it."""
is_ = pa.types
_TEXTS = {kind().id for kind in (pa.string, pa.large_string, pa.binary, pa.large_binary)}


@dataclass(frozen=True, slots=True)
class LevelFiles:
    """Where the files of one level of a column lie."""

    folder: Path
    prefix: str = ""
    level: int | None = 0
    """How many levels of lists lie above; None inside of objects, where nothing is shared."""
    files: Mapping[str, int] = field(default_factory=dict)
    """The bytes of all files of a column that exists, by path; other files are ignored."""
    lists: Sequence[Path] = ()
    """The folders of the levels of lists at the top of a column that exists."""

    def size(self, name: str) -> int:
        """Return the bytes of a file; 0 where there is none of this name."""
        return self.files.get(f"{self.folder}/{self.prefix}{name}", 0)

    def has(self, name: str) -> bool:
        return f"{self.folder}/{self.prefix}{name}" in self.files

    def file(self, name: str) -> Path:
        return self.folder / f"{self.prefix}{name}"

    @property
    def of_lists(self) -> LevelFiles:
        """Where the offsets of lists at this level lie."""
        if self.level is None:
            return self
        known = self.lists[self.level : self.level + 1]
        return replace(self, folder=known[0] if known else self.folder / f"lists-{self.level}")

    def inside(self, name: str) -> LevelFiles:
        return replace(self, prefix=f"{self.prefix}{name}.", level=None)

    @property
    def of_items(self) -> LevelFiles:
        """The place of the items of lists."""
        if self.level is None:
            return self.inside("item")
        return replace(self, level=self.level + 1)


def check_type(path: str, type_: pa.DataType) -> None:
    """Raise for a type that no column can have.

    >>> check_type("a", pa.list_(pa.struct({"b": pa.string()})))
    """
    pending = [type_]
    while pending:
        one = pending.pop()
        if is_listlike(one):
            pending.append(one.value_type)
        elif isinstance(one, ValueType):
            pending.append(one.storage_type)
        elif is_.is_struct(one):
            pending += [field.type for field in one]
        elif not (has_width(one) or is_text(one) or is_.is_boolean(one) or is_.is_null(one)):
            raise OptionError(
                f"field {path!r}: values of type {one} cannot be kept as a column. Ask for a "
                f"number, a text, a moment, lists and objects of those, or json"
            )


def has_width(type_: pa.DataType) -> bool:
    """Whether each value is the same number of whole bytes."""
    return (
        (is_.is_primitive(type_) and not is_.is_boolean(type_))
        or is_.is_decimal(type_)
        or is_.is_fixed_size_binary(type_)
    )


def is_text(type_: pa.DataType) -> bool:
    """Whether each value is some bytes."""
    return type_.id in _TEXTS


def is_large_text(type_: pa.DataType) -> bool:
    """Whether its offsets have 64 bits."""
    return bool(is_.is_large_string(type_) or is_.is_large_binary(type_))


def narrow_name(name: str, dtype: np.dtype[Any]) -> str:
    """Return the name of a file whose numbers are narrower than their type.

    >>> narrow_name(VALUES, np.dtype("<u2"))
    'values-u2.bin'
    """
    return name.replace(".bin", f"-{dtype.kind}{dtype.itemsize}.bin")


def write_column(place: LevelFiles, type_: pa.DataType, arrays: Arrays) -> None:
    """Write the files of a column, or of what stands inside of its values."""
    if is_.is_list(type_) or is_.is_large_list(type_):
        own = place.of_lists
        own.folder.mkdir(exist_ok=True)
        _write_valid(own, arrays)
        _write_offsets(own, OFFSETS, lambda: map(_list_lengths, arrays()))
        write_column(place.of_items, type_.value_type, lambda: map(list_items, arrays()))
        return
    if isinstance(type_, ValueType):
        write_column(place, type_.storage_type, lambda: (one.storage for one in arrays()))
        return
    _write_valid(place, arrays)
    if is_.is_boolean(type_):
        bools = (array.fill_null(False).cast(pa.uint8()) for array in arrays())  # noqa: FBT003
        _append(place.file(VALUES), (memoryview(array.to_numpy()) for array in bools))
    elif is_.is_integer(type_):
        _write_integers(place, type_, arrays)
    elif has_width(type_):
        width = type_.bit_width // 8
        _append(place.file(VALUES), (_fixed_bytes(array, width) for array in arrays()))
    elif is_text(type_):
        _write_texts(place, arrays)
    elif is_.is_fixed_size_list(type_):
        write_column(place.inside("item"), type_.value_type, lambda: map(_fixed_items, arrays()))
    elif is_.is_struct(type_):
        for number, child in enumerate(type_):
            write_column(place.inside(str(number)), child.type, _children(arrays, number))


def _write_valid(place: LevelFiles, arrays: Arrays) -> None:
    if any(array.null_count for array in arrays()):
        _append(place.file(VALID), map(_valid_bytes, arrays()))


def _valid_bytes(array: pa.Array) -> bytes | memoryview:
    if not array.null_count:
        return bytes([1]) * len(array)
    return memoryview(array.is_valid().cast(pa.uint8()).to_numpy())


def _fixed_bytes(array: pa.Array, width: int) -> memoryview | bytes:
    memory = array.buffers()[1]
    if memory is None:
        return bytes(len(array) * width)
    values = np.frombuffer(memory, np.dtype((np.void, width)), len(array) + array.offset)
    values = values[array.offset :]
    if array.null_count:
        # Anything may stand under a null; the same column shall be the same bytes.
        values = values.copy()
        values[array.is_null().to_numpy(zero_copy_only=False)] = np.zeros((), values.dtype)
    return np.ascontiguousarray(values).view(np.uint8).data


def _write_integers(place: LevelFiles, type_: pa.DataType, arrays: Arrays) -> None:
    bounds = [pc.min_max(array).as_py() for array in arrays() if array.null_count < len(array)]
    low = min((one["min"] for one in bounds), default=0)
    high = max((one["max"] for one in bounds), default=0)
    own = np.dtype(type_.to_pandas_dtype())
    wide = (_fixed_bytes(array, own.itemsize) for array in arrays())
    for dtype in NARROW:
        holds_all = np.iinfo(dtype).min <= min(low, 0) and high <= np.iinfo(dtype).max
        if holds_all and dtype.itemsize < own.itemsize:
            narrow = (np.frombuffer(part, own).astype(dtype).data for part in wide)
            _append(place.file(narrow_name(VALUES, dtype)), narrow)
            return
    _append(place.file(VALUES), wide)


def _fixed_items(array: pa.FixedSizeListArray) -> pa.Array:
    """Return the items of lists of one size, also those under a null, so that each has a place."""
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def _children(arrays: Arrays, number: int) -> Arrays:
    return lambda: (array.flatten()[number] for array in arrays())


def _list_lengths(array: pa.Array) -> Lengths:
    lengths = array.value_lengths()
    if array.null_count:
        lengths = lengths.fill_null(0)
    found: Lengths = lengths.to_numpy().astype(np.int64)
    return found


def _write_offsets(place: LevelFiles, name: str, lengths: Callable[[], Iterator[Lengths]]) -> None:
    total = sum(int(some.sum()) for some in lengths())
    dtype: np.dtype[Any] = np.dtype("<i8")
    if total <= np.iinfo(np.int32).max:
        dtype = np.dtype("<i4")
        name = narrow_name(name, dtype)
    end = 0
    with place.file(name).open("wb") as file:
        file.write(np.zeros(1, dtype).data)
        for some in lengths():
            ends = np.cumsum(some) + end
            file.write(ends.astype(dtype).data)
            end = int(ends[-1]) if len(ends) else end


def _append(path: Path, parts: Iterator[bytes | memoryview]) -> None:
    with path.open("wb") as file:
        for part in parts:
            file.write(part)


def _write_texts(place: LevelFiles, arrays: Arrays) -> None:
    words = _dictionary(arrays)
    if words is None:
        _append(place.file(VALUES), (_text_parts(array)[0] for array in arrays()))
        _write_offsets(place, OFFSETS, lambda: (_text_parts(array)[1] for array in arrays()))
        return
    dtype = code_type(len(words))
    find = {word: code for code, word in enumerate(words)}.__getitem__

    def codes(array: pa.Array) -> memoryview:
        coded = array.dictionary_encode()
        own = np.array([*map(find, _words_of(coded)), 0], dtype)
        # The last one, 0, is for null.
        places = coded.indices.fill_null(len(own) - 1).to_numpy()
        return memoryview(own[places])

    _append(place.file(CODES), map(codes, arrays()))
    _append(place.file(WORDS), iter(words))
    lengths = np.array([len(word) for word in words], np.int64)
    _write_offsets(place, WORD_OFFSETS, lambda: iter([lengths]))


def code_type(words: int) -> np.dtype[np.unsignedinteger]:
    """Return the smallest type that numbers so many words.

    >>> code_type(256), code_type(257)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.dtype("<u1" if words <= 1 << 8 else "<u2" if words <= 1 << 16 else "<u4")


def _dictionary(arrays: Arrays) -> list[bytes] | None:
    """Return the distinct texts in the order of their first appearance, if that saves space."""
    words: dict[bytes, None] = {}
    values = plain_bytes = 0
    for array in arrays():
        coded = array.dictionary_encode()
        if len(words) + len(coded.dictionary) > MOST_WORDS:
            return None
        words.update(dict.fromkeys(_words_of(coded)))
        values += len(array)
        plain_bytes += int(_text_parts(array)[1].sum())
        if len(words) > values // 2 + 1000:
            return None  # Hardly any text comes twice.
    coded_bytes = sum(map(len, words)) + 8 * len(words) + code_type(len(words)).itemsize * values
    if coded_bytes >= plain_bytes + 8 * values:
        return None
    return list(words) or [b""]


def _words_of(coded: pa.DictionaryArray) -> list[bytes]:
    words: list[bytes] = coded.dictionary.cast(pa.large_binary()).to_pylist()
    return words


def _text_parts(array: pa.Array) -> tuple[memoryview | bytes, Lengths]:
    """Return the bytes of texts one after the other, and the length of each."""
    if array.null_count:
        empty = "" if is_.is_string(array.type) or is_.is_large_string(array.type) else b""
        array = array.fill_null(empty)
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return b"", np.zeros(len(array), np.int64)
    dtype = np.int64 if is_large_text(array.type) else np.int32
    ends = np.frombuffer(offsets, dtype, len(array) + 1 + array.offset)
    ends = ends[array.offset :]
    lengths = np.diff(ends).astype(np.int64)
    if data is None:
        return b"", lengths
    return memoryview(data)[int(ends[0]) : int(ends[-1])], lengths
