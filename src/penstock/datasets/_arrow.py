"""The records of a source as Arrow: a batch, a table, a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from penstock.datasets._projection import (
    has_types,
    project,
    projected,
    typed_fields,
    whole_records,
)
from penstock.datasets._reading import id_ranges
from penstock.datasets._table_source import TableSource
from penstock.decode import WholeSchema, unify
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.datasets._source import Fields, Source


def arrow_of(source: Source, ids: Any, fields: Fields | None) -> pa.Table | pa.RecordBatch:
    """Return a batch of the records of `ids`, or without them a table of all records."""
    if ids is None:
        return table_of(source, fields)
    numbers = source._numbers(ids)  # noqa: SLF001 (the contract's own)
    if fields is not None:
        return projected(source, numbers, fields)
    table = whole_records(source, numbers)
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def table_of(source: Source, fields: Fields | None) -> pa.Table:
    """Return all records with the named fields, or with every field of any record.

    >>> from penstock.datasets._memory import ListSource
    >>> table_of(ListSource([{"a": 1}, {"a": 0.5, "late": "x"}]), None).to_pydict()
    {'a': [1.0, 0.5], 'late': [None, 'x']}
    """
    if fields is None:
        return unify(_inferred(source)) if len(source) else source.schema.empty_table()
    schema = typed_fields(source, fields, lambda: whole_schema(source))
    try:
        batches = [project(source, ids, schema) for ids in id_ranges(0, len(source))]
    except SchemaMismatchError:
        if has_types(fields):
            raise
        return table_of(TableSource(table_of(source, None)), fields)
    return pa.Table.from_batches(batches, schema)


def whole_schema(source: Source) -> pa.Schema:
    """Return the schema of all records, which is that of `stream_of`.

    A source with an incomplete schema is read once to find it.
    """
    complete = source.schema_is_complete or not len(source)
    return source.schema if complete else _whole(source).schema


def stream_of(source: Source) -> pa.RecordBatchReader:
    """Return all records batch by batch under one schema, in bounded memory.

    A source with an incomplete schema is read twice: first to find it.
    """
    if source.schema_is_complete or not len(source):
        schema = source.schema
        ranges = id_ranges(0, len(source))
        batches = (source._columns(ids, schema) for ids in ranges)  # noqa: SLF001
        return pa.RecordBatchReader.from_batches(schema, batches)
    whole = _whole(source)
    return pa.RecordBatchReader.from_batches(whole.schema, map(whole.widen, _inferred(source)))


# duckdb asks for the schema twice before it takes the stream.
_wholes: WeakKeyDictionary[Source, WholeSchema] = WeakKeyDictionary()


def _whole(source: Source) -> WholeSchema:
    if source not in _wholes:
        _wholes[source] = WholeSchema(_inferred(source))
    return _wholes[source]


def _inferred(source: Source) -> Iterator[pa.RecordBatch]:
    return (source._inferred(ids) for ids in id_ranges(0, len(source)))  # noqa: SLF001
