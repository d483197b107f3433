"""Columns into plain arrays: what a worker process makes, without torch.

The caller owns every array and may write to it: never a view of Arrow's memory, which a source
may share with others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasets import (
    CategoryType,
    Dense,
    FieldType,
    Json,
    ListOf,
    NumberType,
    Optional,
    TextsType,
    UpTo,
    number_in,
)
from penstock.decode import decode_line, list_items
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
    Rows: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """The origin of values, for an error about one of them."""

    field: str
    type: FieldType
    ids: Rows
    """The record of each row."""
    codes: Mapping[Any, int]
    """The code of each value, for a category."""
    row_of: Callable[[int], int] = int
    """The row that holds a value, by its number among the values of all rows."""
    inside: bool = False
    """Whether the values are those of lists."""

    def within(self, row_of: Callable[[int], int]) -> ValuePlace:
        """Return the place of the values of lists, given the list that holds each."""
        outer = self.row_of
        # `replace` would cost as much as the values of a short batch.
        about = (self.field, self.type, self.ids, self.codes)
        return ValuePlace(*about, lambda value: outer(row_of(value)), inside=True)


def encoded(type_: FieldType, array: pa.Array, place: ValuePlace) -> Any:
    """Return the arrays of a column; the type decides how many.

    An array for `NumberType`, `Dense` and `CategoryType` (codes), a list for `TextsType` and
    `Json`, (values, mask) for `Optional`, (values, lengths) for `UpTo`, (values, offsets) for
    `ListOf`, where the values of lists of lists are such a pair themselves; lists of texts are
    lists of lists.
    """
    match type_:
        case NumberType():
            return _numbers(type_, array, place)
        case TextsType():
            return _texts(type_, array)
        case Json():
            return _objects(array, place)
        case CategoryType():
            return _codes(array, place)
        case Dense():
            return _dense(type_, array, place, number_in(type_).default)
        case Optional():
            return _optional(type_, array, place)
        case UpTo():
            return _up_to(type_, array, place)
        case ListOf():
            return _lists(type_, array, place)


def part_of(type_: FieldType, arrays: Any, start: int, stop: int) -> Any:
    """Return some rows of what `encoded` made of a column: over the same memory."""
    if not isinstance(arrays, tuple):
        return arrays[start:stop]
    if not isinstance(type_, ListOf):
        return tuple(array[start:stop] for array in arrays)
    values, offsets = arrays
    first, last = int(offsets[start]), int(offsets[stop])
    return part_of(type_.item, values, first, last), offsets[start : stop + 1] - first


def _numbers(type_: NumberType, array: pa.Array, place: ValuePlace) -> Array:
    if not array.null_count:
        return _values(array, type_)
    nulls = _nulls(array)
    if type_.default is None and not pa.types.is_floating(type_.arrow):
        raise _null(type_, place, int(nulls.argmax()))
    values = _values(array, type_)
    values[nulls] = np.nan if type_.default is None else type_.default
    return values


def _values(array: pa.Array, type_: NumberType) -> Array:
    """Return a copy of the values; undefined where they are null."""
    if not len(array):
        return np.empty(0, type_.dtype)
    if pa.types.is_boolean(array.type):
        present = array.fill_null(False) if array.null_count else array  # noqa: FBT003 (a value)
        return np.array(present.to_numpy(zero_copy_only=False))
    memory = np.frombuffer(array.buffers()[1], type_.dtype, len(array) + array.offset)
    return memory[array.offset :].copy()


def _texts(type_: TextsType, array: pa.Array) -> list[Any]:
    if type_.default is not None and array.null_count:
        array = array.fill_null(type_.default)
    # Many times faster than `to_pylist`.
    texts: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    return texts


def _objects(array: pa.Array, place: ValuePlace) -> list[Any]:
    texts = array.cast(pa.binary()).to_numpy(zero_copy_only=False).tolist()
    objects: list[Any] = []
    for at, text in enumerate(texts):
        try:
            # In place of a bad record there is an empty text.
            objects.append(decode_line(text) if text else None)
        except ValueError as why:
            record = int(place.ids[place.row_of(at)])
            raise SchemaMismatchError(
                f"record {record:,}: field {place.field!r} holds a text that is not JSON: {why}",
                field=place.field,
                record=record,
            ) from None
    return objects


def _codes(array: pa.Array, place: ValuePlace) -> Array:
    # Each distinct value is looked up once. Arrow's own `index_in` would hash the vocabulary anew
    # for every batch.
    distinct = array.dictionary_encode()
    find = place.codes.get
    words = distinct.dictionary.to_numpy(zero_copy_only=False).tolist()
    codes = np.array([*(find(word, -1) for word in words), -1], np.int64)
    # The last of them, -1, is for null.
    rows: Array = codes[distinct.indices.fill_null(len(words)).to_numpy()]
    return rows


def _dense(type_: Dense, array: pa.Array, place: ValuePlace, fill: float | None) -> Array:
    size, nulls = type_.size, _nulls(array)
    if fill is None and nulls.any():
        raise _null(type_, place, int(nulls.argmax()))
    # `flatten` leaves out what stands under a null.
    rows = np.flatnonzero(~nulls)
    inner = place.within(lambda value: int(rows[value // size]))
    items = array.flatten()
    values: Array = encoded(type_.item, items, inner)
    values = values.reshape(len(rows), size, *values.shape[1:])
    if len(rows) == len(array):
        return values
    assert fill is not None  # noqa: S101 (checked above)
    whole = np.full((len(array), *values.shape[1:]), fill, values.dtype)
    whole[rows] = values
    return whole


def _optional(type_: Optional, array: pa.Array, place: ValuePlace) -> tuple[Array, Array]:
    mask = ~_nulls(array)
    if isinstance(type_.item, Dense):
        return _dense(type_.item, array, place, 0), mask
    assert isinstance(type_.item, NumberType)  # noqa: S101 (other types have no mask)
    values = _values(array, type_.item)
    values[~mask] = 0
    return values, mask


def _up_to(type_: UpTo, array: pa.Array, place: ValuePlace) -> tuple[Array, Rows]:
    items, offsets = _items(array)
    lengths = np.diff(offsets)
    rows = np.repeat(np.arange(len(array)), lengths)
    slots = np.arange(len(items)) - np.repeat(offsets[:-1], lengths)
    if len(lengths) and lengths.max() > type_.size:
        kept = np.flatnonzero(slots < type_.size)
        items, rows, slots = items.take(pa.array(kept)), rows[kept], slots[kept]
    values = encoded(type_.item, items, place.within(lambda value: int(rows[value])))
    fill = number_in(type_.item).default or 0
    whole = np.full((len(array), type_.size, *values.shape[1:]), fill, values.dtype)
    whole[rows, slots] = values
    return whole, np.minimum(lengths, type_.size)


def _lists(type_: ListOf, array: pa.Array, place: ValuePlace) -> Any:
    items, offsets = _items(array)
    inner = place.within(lambda value: int(np.searchsorted(offsets, value, "right")) - 1)
    values = encoded(type_.item, items, inner)
    if not isinstance(values, list):
        return values, offsets
    return [values[a:b] for a, b in pairwise(offsets.tolist())]


def _items(array: pa.Array) -> tuple[pa.Array, Rows]:
    """Return the items of lists one after the other, and where each list begins, int64[B + 1]."""
    if not array.null_count and len(array):
        offsets = array.offsets.to_numpy().astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        items = array.values
        if first or last != len(items):
            return items.slice(first, last - first), offsets - first
        return items, offsets
    # A null list may have items, which `flatten` leaves out.
    offsets = np.zeros(len(array) + 1, np.int64)
    lengths = pc.list_value_length(array).fill_null(0)
    np.cumsum(lengths.to_numpy(), out=offsets[1:])
    return list_items(array), offsets


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    if not array.null_count:
        return np.zeros(len(array), np.bool_)
    nulls: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _null(type_: NumberType | Dense, place: ValuePlace, value: int) -> SchemaMismatchError:
    """Return the error of a null in a type that has no place for it, with the types that do."""
    record = int(place.ids[place.row_of(value)])
    kind, name = number_in(type_).arrow, type_.name
    is_zero = isinstance(type_, Dense) or pa.types.is_unsigned_integer(kind)
    default = "0" if is_zero else "false" if pa.types.is_boolean(kind) else "-1"
    if place.inside:
        whole = str(place.type).removesuffix("?")
        end = len(whole) - whole.count(">")
        remedy = f"{whole[:end]} = {default}{whole[end:]}"
    else:
        remedy = f"{name}? (values and a mask) or {name} = {default}"
    remedy += " (another value in its place)"
    if isinstance(type_, Dense) and not place.inside:
        remedy += f" or {type_.item.name}[:{type_.size}] (an empty list, filled up)"
    return SchemaMismatchError(
        f"record {record:,}: field {place.field!r} holds null, which {name} cannot express. To "
        f"allow it, ask for {remedy}",
        field=place.field,
        record=record,
    )
