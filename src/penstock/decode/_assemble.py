"""Nested Arrow arrays from their parts (lengths and items, children and masks), and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

LISTS = ("list", "large_list", "fixed_size_list", "list_view", "large_list_view")
STRINGS = ("string", "large_string", "string_view")
TEXTS = (*STRINGS, "binary", "large_binary", "binary_view", "fixed_size_binary")
"""Kinds of Arrow types, by the names of their tests in `pyarrow.types`."""


def null_mask(nulls: NDArray[np.bool_]) -> pa.Array | None:
    """Return the mask that Arrow's constructors take, or None when nothing is null."""
    return pa.array(nulls) if nulls.any() else None


def null_rows(array: pa.Array) -> NDArray[np.bool_]:
    """Return where an array is null, bool[rows]."""
    nulls: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def list_lengths(array: pa.Array) -> NDArray[np.int64]:
    """Return how many items each list of an array has (0 where null), int64[rows]."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    widened: NDArray[np.int64] = lengths.astype(np.int64)
    return widened


def list_items(array: pa.Array) -> pa.Array:
    """Return the items of all lists of an array, without those that stand under a null."""
    # Of nulls alone, `flatten` builds an array, which Arrow cannot of a type of our own.
    return array.flatten() if array.null_count < len(array) else array.values[:0]


def list_array(
    lengths: NDArray[np.int64], nulls: NDArray[np.bool_], items: pa.Array, type_: pa.DataType
) -> pa.Array:
    """Return rows of `lengths` items each (0 where null) as an array of a list-like type.

    A fixed-size list keeps its items also where it is null.
    """
    mask = null_mask(nulls)
    if pa.types.is_fixed_size_list(type_):
        if not type_.list_size:
            # Arrow would divide by the size to know the number of rows, and end the process.
            return pa.array([None if null else [] for null in nulls.tolist()], type_)
        return pa.FixedSizeListArray.from_arrays(items, type=type_, mask=mask)
    is_large = is_any(type_, ("large_list", "large_list_view"))
    width = pa.int64() if is_large else pa.int32()
    offsets = pa.array(_offsets(lengths), width)
    if is_any(type_, ("list_view", "large_list_view")):
        made = pa.LargeListViewArray if is_large else pa.ListViewArray
        sizes = pa.array(lengths, width)
        return made.from_arrays(offsets[:-1], sizes, items, type=type_, mask=mask)
    made = pa.LargeListArray if is_large else pa.ListArray
    return made.from_arrays(offsets, items, type=type_, mask=mask)


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths)))


def is_any(type_: pa.DataType, kinds: Sequence[str]) -> bool:
    """Whether a type is of one of these kinds, by the names of the tests in `pyarrow.types`."""
    return any(getattr(pa.types, f"is_{kind}")(type_) for kind in kinds)


def dictionary_array(type_: pa.DataType, array: pa.Array) -> pa.Array:
    """Return an array of a dictionary's value type as one of the dictionary type."""
    encoded = array.dictionary_encode()
    indices = encoded.indices.cast(type_.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=type_.ordered)


def map_array(
    lengths: NDArray[np.int64],
    nulls: NDArray[np.bool_],
    keys: pa.Array,
    items: pa.Array,
    type_: pa.DataType,
) -> pa.Array:
    """Return rows of `lengths` entries each (0 where null) as an array of a map type."""
    offsets = pa.array(_offsets(lengths), pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, items, type_, mask=null_mask(nulls))


def struct_array(
    children: Sequence[pa.Array], nulls: NDArray[np.bool_], type_: pa.DataType
) -> pa.Array:
    """Return rows made of one value of each child, or null, as an array of a struct type."""
    if not children:
        # Without a child or a mask Arrow could not know the number of rows.
        return pa.array([None if null else {} for null in nulls.tolist()], type_)
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=null_mask(nulls))


def record_batch(columns: Sequence[pa.Array], rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns as a batch; one without columns still knows its number of rows."""
    if columns:
        return pa.RecordBatch.from_arrays(list(columns), schema=schema)
    empty = struct_array([], np.zeros(rows, np.bool_), pa.struct([]))
    return pa.RecordBatch.from_struct_array(empty)


def empty_batch(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return no rows of these columns, or so many rows without a column."""
    return record_batch([pa.nulls(0, type_) for type_ in schema.types], rows, schema)
