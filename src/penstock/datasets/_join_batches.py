"""Batches and schemas of several sources as one, where their types allow it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa

from penstock.datasets.fields._paths import type_at
from penstock.decode import WholeSchema, empty_batch, unify
from penstock.errors import SchemaMismatchError


def joined_schema(schemas: Sequence[pa.Schema], labels: Sequence[str]) -> pa.Schema:
    """Return the narrowest schema that holds records of all, or name the field where none can."""
    distinct: dict[pa.Schema, str] = {}
    for schema, label in zip(schemas, labels, strict=True):
        distinct.setdefault(schema, label)
    if len(distinct) == 1:
        return schemas[0]
    for pair in combinations(distinct, 2):
        for path, _ in WholeSchema([empty_batch(schema, 0) for schema in pair]).mixed():
            held = (f"{type_at(schema, path)} in {distinct[schema]}" for schema in pair)
            raise SchemaMismatchError(
                f"field {path!r} is {' and '.join(held)}: no type holds both. Ask for JSON text: "
                f"DataLoader(source, {{{path!r}: 'json'}}), source.arrow(fields={{{path!r}: "
                "'json'})"
            )
    return unify(empty_batch(schema, 0) for schema in distinct).schema


def joined(batches: Sequence[pa.RecordBatch], order: np.ndarray) -> pa.RecordBatch:
    """Return the rows of batches of one schema, in an order, as one batch."""
    return _in_order(pa.Table.from_batches(batches), order)


def joined_inferred(
    batches: Sequence[pa.RecordBatch], order: np.ndarray, labels: Sequence[str]
) -> pa.RecordBatch:
    """Return the rows of batches in an order, with types as wide as all of them need."""
    joined_schema([batch.schema for batch in batches], labels)
    return _in_order(unify(batches), order)


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
