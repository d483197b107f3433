"""Batches and schemas of several sources as one, where their types allow it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa

from penstock.datasets.fields._paths import is_listlike, like, type_at
from penstock.decode import (
    NUMBERS,
    NumbersType,
    WholeSchema,
    empty_batch,
    fit_batch,
    is_any,
    unify,
)
from penstock.errors import SchemaMismatchError


def joined_schema(
    schemas: Sequence[pa.Schema], labels: Sequence[str], are_complete: Sequence[bool]
) -> pa.Schema:
    """Return the narrowest schema that holds records of all, or name the field where none can.

    A schema that is complete stands for every value of its types, others for some records.
    """
    distinct: dict[pa.Schema, str] = {}
    for schema, label in zip(schemas, labels, strict=True):
        distinct.setdefault(schema, label)
    if len(distinct) == 1:
        return schemas[0]
    for pair in combinations(distinct, 2):
        for path, _ in _whole_schema(pair, are_complete).mixed():
            held = (f"{type_at(schema, path)} in {distinct[schema]}" for schema in pair)
            raise SchemaMismatchError(
                f"field {path!r} is {' and '.join(held)}: no type holds both. Ask for JSON text: "
                f"DataLoader(source, {{{path!r}: 'json'}}), source.arrow(fields={{{path!r}: "
                "'json'})"
            )
    schema = _whole_schema([*distinct], are_complete).schema
    if all(are_complete):
        every = [
            [(type_at(own, field.name), label) for own, label in distinct.items()]
            for field in schema
        ]
        types = map(_with_places, schema.types, every)
        schema = pa.schema(zip(schema.names, types, strict=True))
    return schema


def _whole_schema(schemas: Sequence[pa.Schema], are_complete: Sequence[bool]) -> WholeSchema:
    batches = [empty_batch(schema, 0) for schema in schemas]
    return WholeSchema(batches, keeps_numbers=True, of_any_value=any(are_complete))


def _with_places(type_: pa.DataType, held: Sequence[tuple[pa.DataType | None, str]]) -> pa.DataType:
    """Return a type in which numbers of several types say which of `held` has them."""
    if isinstance(type_, NumbersType):
        parts: dict[pa.DataType, str] = {}
        for own, label in held:
            for part, _ in own.parts if isinstance(own, NumbersType) else [(own, label)]:
                if part is not None and is_any(part, NUMBERS):
                    parts.setdefault(part, label)
        return NumbersType.of(parts.items())
    if is_listlike(type_):
        items = [(own.value_type, label) for own, label in held if own and is_listlike(own)]
        return like(type_, _with_places(type_.value_type, items))
    if pa.types.is_struct(type_):
        structs = [(own, label) for own, label in held if own and pa.types.is_struct(own)]
        return pa.struct(
            [
                field.with_type(
                    _with_places(
                        field.type,
                        [
                            (one.field(at).type, label)
                            for one, label in structs
                            if (at := one.get_field_index(field.name)) >= 0
                        ],
                    )
                )
                for field in type_
            ]
        )
    return type_


def joined(batches: Sequence[pa.RecordBatch], order: np.ndarray) -> pa.RecordBatch:
    """Return the rows of batches of one schema, in an order, as one batch."""
    return _in_order(pa.Table.from_batches(batches), order)


def joined_inferred(
    batches: Sequence[pa.RecordBatch],
    order: np.ndarray,
    labels: Sequence[str],
    are_complete: Sequence[bool],
) -> pa.RecordBatch:
    """Return the rows of batches in an order, with types as wide as all of them need."""
    schema = joined_schema([batch.schema for batch in batches], labels, are_complete)
    if all(are_complete):
        rows = [np.arange(batch.num_rows) for batch in batches]
        return joined([*map(fit_batch, batches, [schema] * len(batches), rows)], order)
    return _in_order(unify(batches, keeps_numbers=True), order)


def _in_order(table: pa.Table, order: np.ndarray) -> pa.RecordBatch:
    if not table.num_columns:
        # Without a column `take` forgets how many rows there are.
        return empty_batch(table.schema, len(order))
    # Dictionaries of their own would stay in chunks of their own.
    rows = table.unify_dictionaries().combine_chunks()
    if not (np.diff(order) == 1).all():
        rows = rows.take(pa.array(order)).combine_chunks()
    if not len(order):
        return empty_batch(table.schema, 0)
    found = rows.to_batches()
    # Text that is too long for one batch stays in chunks: that raises, and none is lost.
    return found[0] if len(found) == 1 else pa.concat_batches(found)
