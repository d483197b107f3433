"""Batches and schemas of several sources as one, where their types allow it."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.datasets.fields._paths import is_listlike
from penstock.decode import empty_batch, unify
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from penstock.datasets._source import Source

is_ = pa.types


def joined_schema(schemas: Sequence[pa.Schema], sources: Sequence[Source]) -> pa.Schema:
    """Return the narrowest schema that holds records of all, or name the field where none can."""
    distinct: dict[pa.Schema, Source] = {}
    for schema, source in zip(schemas, sources, strict=True):
        distinct.setdefault(schema, source)
    if len(distinct) == 1:
        return schemas[0]
    for (left, one), (right, other) in combinations(distinct.items(), 2):
        _refuse_clash(left, right, one, other)
    return unify(empty_batch(schema, 0) for schema in distinct).schema


def joined(batches: Sequence[pa.RecordBatch], order: np.ndarray) -> pa.RecordBatch:
    """Return the rows of batches of one schema, in an order, as one batch."""
    return _in_order(pa.Table.from_batches(batches), order)


def joined_inferred(
    batches: Sequence[pa.RecordBatch], order: np.ndarray, sources: Sequence[Source]
) -> pa.RecordBatch:
    """Return the rows of batches in an order, with types as wide as all of them need."""
    joined_schema([batch.schema for batch in batches], sources)
    return _in_order(unify(batches), order)


def _in_order(table: pa.Table, order: np.ndarray) -> pa.RecordBatch:
    if not table.num_columns:
        # Without a column `take` forgets how many rows there are.
        return empty_batch(table.schema, len(order))
    # Dictionaries of their own would stay in chunks of their own.
    rows = table.unify_dictionaries().combine_chunks().take(pa.array(order)).combine_chunks()
    return rows.to_batches()[0] if len(order) else empty_batch(table.schema, 0)


def _refuse_clash(left: pa.Schema, right: pa.Schema, one: Source, other: Source) -> None:
    for name in left.names:
        if name in right.names and (found := _clash(left.field(name), right.field(name), name)):
            path, was, now = found
            raise SchemaMismatchError(
                f"field {path!r} is {was} in {_name(one)} and {now} in {_name(other)}: no type "
                f"holds both. Say which one you want: source.arrow(fields={{{name!r}: ...}})"
            )


def _clash(
    left: pa.Field, right: pa.Field, path: str
) -> tuple[str, pa.DataType, pa.DataType] | None:
    """Return the first place at which values of two fields have no type in common."""
    a, b = left.type, right.type
    if a.equals(b) or is_.is_null(a) or is_.is_null(b):
        return None
    if is_listlike(a) and is_listlike(b):
        return _clash(a.value_field, b.value_field, f"{path}[]")
    if is_.is_struct(a) and is_.is_struct(b):
        there = {field.name: field for field in b}
        inner = (
            _clash(field, there[field.name], f"{path}.{field.name}")
            for field in a
            if field.name in there
        )
        return next(filter(None, inner), None)
    if (_is_number(a) and _is_number(b)) or (_is_text(a) and _is_text(b)):
        return None
    return path, a, b


def _is_number(type_: pa.DataType) -> bool:
    return bool(is_.is_integer(type_) or is_.is_floating(type_))


def _is_text(type_: pa.DataType) -> bool:
    return bool(is_.is_string(type_) or is_.is_large_string(type_) or is_.is_string_view(type_))


def _name(source: Source) -> str:
    files = source.files
    more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
    return f"{type(source).__name__} of {files[0]}{more}" if files else type(source).__name__
