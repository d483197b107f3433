"""The records of a source as Arrow: a batch, a table, a stream, or some fields of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from penstock.datasets._concatenated import Concatenated
from penstock.datasets._inexact import refuse_numbers
from penstock.datasets._projection import (
    has_types,
    project,
    projected,
    typed_fields,
    whole_records,
)
from penstock.datasets._table_source import TableSource
from penstock.datasets.fields._paths import type_at
from penstock.datasets.views._views import origins_of
from penstock.decode import WholeSchema, empty_batch, plain_columns, unify
from penstock.errors import OptionError, SchemaMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets._source import Fields, Source

ROWS = 65_536
"""Records that are read together."""
_SHOWN = 20


def arrow_of(source: Source, ids: Any, fields: Fields | None) -> pa.Table | pa.RecordBatch:
    """Return a batch of the records of `ids`, or without them a table of all records."""
    if ids is None:
        table = table_of(source, fields)
        refuse_numbers(table.schema, source)
        return table
    numbers = source._numbers(ids)  # noqa: SLF001 (the contract's own)
    if fields is not None:
        columns = plain_columns(projected(source, numbers, fields))
        refuse_numbers(columns.schema, source)
        return columns
    table = whole_records(source, numbers)
    refuse_numbers(table.schema, source)
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else empty_batch(table.schema, 0)


_plain: dict[int, pa.Schema] = {}
"""Schemas without `text` and `json` that were read lately: to look costs a twentieth of a batch."""
_MOST_PLAIN = 64


def read_plainly(source: Source, columns: pa.RecordBatch, fields: Fields) -> pa.RecordBatch:
    """Return columns that were read, with plain strings in place of `text` and `json`."""
    if _plain.get(id(fields)) is fields:
        return columns
    refuse_numbers(columns.schema, source)
    found = plain_columns(columns)
    if found is columns and isinstance(fields, pa.Schema):
        if len(_plain) >= _MOST_PLAIN:
            _plain.clear()
        _plain[id(fields)] = fields  # Its address is its own while it is kept.
    return found


def table_of(source: Source, fields: Fields | None) -> pa.Table:
    """Return all records with the named fields, or with every field of any record.

    >>> from penstock.datasets._memory import ListSource
    >>> table_of(ListSource([{"a": 1}, {"a": 0.5, "late": "x"}]), None).to_pydict()
    {'a': [1.0, 0.5], 'late': [None, 'x']}
    """
    if fields is None:
        if source.schema_is_complete:
            refuse_numbers(source.schema, source)  # Before all records are read.
        if not len(source):
            return pa.Table.from_batches([empty_batch(source.schema, 0)])
        return unify(_inferred(source), keeps_numbers=True)
    schema = typed_fields(source, fields, lambda: schema_of_all(source))
    refuse_numbers(schema, source)
    try:
        batches = [project(source, ids, schema) for ids in id_ranges(0, len(source))]
    except SchemaMismatchError:
        if has_types(fields):
            raise
        return table_of(TableSource(table_of(source, None)), fields)
    return plain_columns(pa.Table.from_batches(batches, schema))


def whole_schema(source: Source) -> pa.Schema:
    """Return the schema of `stream_of`, which is that of all records."""
    schema = schema_of_all(source)
    refuse_numbers(schema, source)
    return schema


def schema_of_all(source: Source) -> pa.Schema:
    """Return the schema of all records; they are read once where it is not known."""
    complete = source.schema_is_complete or not len(source)
    return source.schema if complete else _whole(source).schema


def stream_of(source: Source) -> pa.RecordBatchReader:
    """Return all records batch by batch under one schema, in bounded memory.

    A source with an incomplete schema is read twice: first to find it.
    """
    schema = whole_schema(source)
    batches: Iterable[pa.RecordBatch]
    if source.schema_is_complete or not len(source):
        ranges = id_ranges(0, len(source))
        batches = (source._columns(ids, schema) for ids in ranges)  # noqa: SLF001
    else:
        batches = map(_whole(source).widen, _inferred(source))
    return pa.RecordBatchReader.from_batches(schema, batches)


# duckdb asks for the schema twice before it takes the stream.
_wholes: WeakKeyDictionary[Source, WholeSchema] = WeakKeyDictionary()


def _whole(source: Source) -> WholeSchema:
    if source not in _wholes:
        _wholes[source] = WholeSchema(_inferred(source), keeps_numbers=True)
    return _wholes[source]


def _inferred(source: Source) -> Iterator[pa.RecordBatch]:
    return (source._inferred(ids) for ids in id_ranges(0, len(source)))  # noqa: SLF001


def id_ranges(start: int, stop: int) -> Iterator[NDArray[np.int64]]:
    """Yield the record numbers from `start` to `stop`, `ROWS` at a time."""
    for low in range(start, stop, ROWS):
        yield np.arange(low, min(low + ROWS, stop), dtype=np.int64)


def read_fields(source: Source, names: Sequence[str], length: int) -> Iterator[pa.RecordBatch]:
    """Yield the named fields (or dotted paths) of the first `length` records, in order.

    A field has the type that the source's schema says, or else the one that these records need;
    numbers that no type holds exactly are of `NumbersType`.
    """
    if isinstance(source, Concatenated):
        # One by one, because a field may have another type in each.
        for one, own in zip(source.sources, source.sizes, strict=True):
            share = min(own, length)
            yield from read_fields(one, names, share)
            length -= share
        return
    for ids in id_ranges(0, length):
        try:
            yield source._projected(ids, list(names))  # noqa: SLF001 (the contract's own)
        except (OptionError, SchemaMismatchError):
            # The schema was made from some records: these have not the field, or another type.
            whole = TableSource(source._inferred(ids))  # noqa: SLF001 (the contract's own)
            known = [name for name in names if type_at(whole.schema, name) is not None]
            there = whole._projected(np.arange(len(ids)), known)  # noqa: SLF001
            columns = [there[name] if name in known else pa.nulls(len(ids)) for name in names]
            yield pa.RecordBatch.from_arrays(columns, list(names))


def lies_in_files(source: Source) -> bool:
    """Whether all records lie in files, so that the fingerprint holds beyond this process.

    That of records which a function makes knows the name of the function, not what it does.
    """
    return all(origin.files and not origin.no_columns for origin in origins_of(source))


def refuse_unknown(source: Source, path: str) -> None:
    """Raise for a field that no record had a value in, unless the schema knows it.

    Nearly always it is misspelt; a result in which it is null everywhere would hide that.
    """
    names = source.schema.names
    if type_at(source.schema, path) is None:
        there = ", ".join(names[:_SHOWN]) + ", …" * (len(names) > _SHOWN)
        raise OptionError(f"no record has a field {path!r}. There are: {there}")
