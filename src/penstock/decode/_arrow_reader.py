"""pyarrow's JSON reader, kept to texts and answers on which it agrees with Python's `json`.

It is the fastest way to whole records in columns, but left to itself it crashes on a line `null`,
takes several values a line and values across lines, passes on bytes that are not UTF-8, and
rounds integers beyond 64 bits; inferring, it also takes strings for timestamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from penstock.decode._assemble import (
    list_array,
    list_lengths,
    null_rows,
    record_batch,
    struct_array,
)
from penstock.decode._text import (
    count_object_lines,
    is_utf8,
    may_hold_foreign_numbers,
    may_hold_minus_zero,
    may_hold_wide_integer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_BEYOND_INT64 = 2.0**63
# What is made in one thread and let go in another makes Arrow's own allocator keep a third more.
_MEMORY = pa.system_memory_pool()
_MINUS_ZERO = np.uint64(1 << 63)


class ArrowReader:
    """Reads texts whose records all fit a known schema; safe to share between threads.

    A field that has only been null so far may turn out to hold strings: then the batch has a
    string column where the schema has a null one.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        readable = pa.schema([(field.name, _readable(field.type)) for field in schema])
        self._has_nulls = readable != schema
        self._parse_options = pj.ParseOptions(
            explicit_schema=readable, unexpected_field_behavior="error"
        )

    def read(self, text: bytes) -> pa.RecordBatch | None:
        """Return the batch of a text, or None when any line asks for a closer look."""
        if not self.schema.names:
            return None
        lines = count_object_lines(text)
        if not lines or not is_utf8(text):
            return None
        try:
            table = pj.read_json(
                pa.BufferReader(text),
                # One block: the caller runs texts in parallel, which is better than parts of one.
                read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
                parse_options=self._parse_options,
                memory_pool=_MEMORY,
            )
        except (pa.ArrowException, OverflowError):
            return None
        if table.num_rows != lines:
            return None
        (batch,) = table.combine_chunks().to_batches()
        if _numbers_differ(batch, text):
            return None
        return self._with_nulls(batch) if self._has_nulls else batch

    def _with_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            _restore_nulls(array, field.type)
            for array, field in zip(batch.columns, self.schema, strict=True)
        ]
        named = zip(self.schema.names, columns, strict=True)
        schema = pa.schema([(name, column.type) for name, column in named])
        return record_batch(columns, batch.num_rows, schema)


def _readable(type_: pa.DataType) -> pa.DataType:
    """Return the type to read, strings in place of nulls: lists of null trip pyarrow's reader."""
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_readable(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _readable(field.type)) for field in type_])
    return type_


def _restore_nulls(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return the array as `type_`, with strings only where there are some."""
    if array.type.equals(type_):
        return array
    if pa.types.is_null(type_):
        return pa.nulls(len(array)) if array.null_count == len(array) else array
    if pa.types.is_list(type_):
        items = _restore_nulls(array.flatten(), type_.value_type)
        return list_array(list_lengths(array), null_rows(array), items, pa.list_(items.type))
    children = [_restore_nulls(array.field(n), field.type) for n, field in enumerate(type_)]
    parts = zip(type_, children, strict=True)
    struct = pa.struct([(field.name, child.type) for field, child in parts])
    return struct_array(children, null_rows(array), struct)


def _numbers_differ(batch: pa.RecordBatch, text: bytes) -> bool:
    """Return whether a float may stand for a token that Python reads otherwise or not at all.

    Such a float is not a number, infinite, large or -0.0: only then the text is worth a look.
    """
    odd = minus_zero = False
    for floats in _floats(batch.columns):
        odd |= not np.abs(floats).max() < _BEYOND_INT64
        minus_zero |= bool((floats.view(np.uint64) == _MINUS_ZERO).any())
    return (odd and (may_hold_wide_integer(text) or may_hold_foreign_numbers(text))) or (
        minus_zero and may_hold_minus_zero(text)
    )


def _floats(arrays: list[pa.Array]) -> Iterator[NDArray[np.float64]]:
    """Yield the values of every column of doubles, zeros or leftovers where one is null."""
    for array in arrays:
        if not len(array):
            continue
        if pa.types.is_float64(array.type):
            stored = np.frombuffer(array.buffers()[1], np.float64)
            yield stored[array.offset : array.offset + len(array)]
        elif pa.types.is_list(array.type) or pa.types.is_struct(array.type):
            inner = array.flatten()
            yield from _floats(inner if isinstance(inner, list) else [inner])
