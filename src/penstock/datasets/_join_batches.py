"""Batches and schemas of several sources as one, where their types allow it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa

from penstock.datasets.fields._paths import type_at
from penstock.decode import WholeSchema, empty_batch, fit_batch, unify
from penstock.errors import SchemaMismatchError


def joined_schema(
    schemas: Sequence[pa.Schema], labels: Sequence[str], *, declared: bool
) -> pa.Schema:
    """Return the narrowest schema that holds records of all, or name the field where none can.

    Where types are `declared`, every value of them counts; else they are those of some records.
    """
    distinct: dict[pa.Schema, str] = {}
    for schema, label in zip(schemas, labels, strict=True):
        distinct.setdefault(schema, label)
    if len(distinct) == 1:
        return schemas[0]
    for pair in combinations(distinct, 2):
        for path, _ in _whole_schema(pair, declared=declared).mixed():
            held = (f"{type_at(schema, path)} in {distinct[schema]}" for schema in pair)
            raise SchemaMismatchError(
                f"field {path!r} is {' and '.join(held)}: no type holds both. Ask for JSON text: "
                f"DataLoader(source, {{{path!r}: 'json'}}), source.arrow(fields={{{path!r}: "
                "'json'})"
            )
    return _whole_schema(distinct, declared=declared).schema


def _whole_schema(schemas: Iterable[pa.Schema], *, declared: bool) -> WholeSchema:
    batches = (empty_batch(schema, 0) for schema in schemas)
    return WholeSchema(batches, keeps_numbers=True, of_any_value=declared)


def joined(batches: Sequence[pa.RecordBatch], order: np.ndarray) -> pa.RecordBatch:
    """Return the rows of batches of one schema, in an order, as one batch."""
    return _in_order(pa.Table.from_batches(batches), order)


def joined_inferred(
    batches: Sequence[pa.RecordBatch], order: np.ndarray, labels: Sequence[str], *, declared: bool
) -> pa.RecordBatch:
    """Return the rows of batches in an order, with types as wide as all of them need."""
    schema = joined_schema([batch.schema for batch in batches], labels, declared=declared)
    if not declared:
        return _in_order(unify(batches, keeps_numbers=True), order)
    return joined([fit_batch(one, schema, np.arange(one.num_rows)) for one in batches], order)


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
