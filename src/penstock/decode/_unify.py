"""Records and batches under one schema that holds all of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock._words import warn_once
from penstock.decode._assemble import STRINGS, is_any, record_batch
from penstock.decode._columns import JsonColumn, JsonTextColumn, json_text
from penstock.decode._fit import cast_batch
from penstock.decode._kinds import (
    Fields,
    Foreign,
    Kind,
    ListKind,
    Mixed,
    Scalar,
    inner_path,
    join,
    kind_of_array,
    mixed_fields,
    settled,
)
from penstock.decode._nested_columns import ListColumn, StructColumn, column_of

if TYPE_CHECKING:
    from penstock.decode._records import Record

_log = logging.getLogger("penstock.decode")


def unify(batches: Iterable[pa.RecordBatch], *, keeps_numbers: bool = False) -> pa.Table:
    """Return all batches as one table under the narrowest schema that holds every value.

    Where types alone do not decide, the values do: int64 and uint64 make uint64 when nothing is
    negative, else strings; int64 and double make double when it equals every integer, else strings,
    or with `keeps_numbers` a column of `NumbersType`. A field that a batch does not have is null
    there.

    >>> import pyarrow as pa
    >>> early = pa.record_batch({"a": [1, 2]})
    >>> late = pa.record_batch({"a": [0.5], "b": ["new"]})
    >>> unify([early, late]).to_pydict()
    {'a': [1.0, 2.0, 0.5], 'b': [None, None, 'new']}
    """
    parts = list(batches)
    if not parts:
        return pa.schema([]).empty_table()
    schema = parts[0].schema
    if all(part.schema.equals(schema) for part in parts):
        return pa.Table.from_batches(parts, schema)
    whole = WholeSchema(parts, keeps_numbers=keeps_numbers)
    for path, what in whole.mixed():
        # Where strings meet other values, the decoder that turned to strings has said so.
        if Scalar.TEXT.words not in what:
            text = f"field {path!r} holds {what} and becomes a string in the unified table"
            warn_once(_log, text)
    return pa.Table.from_batches([whole.widen(part) for part in parts], whole.schema)


class WholeSchema:
    """The narrowest schema that holds every batch it has seen; it keeps no batch.

    With `of_any_value` it holds every value of the types of the batches.
    """

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        *,
        keeps_numbers: bool = False,
        of_any_value: bool = False,
    ) -> None:
        kinds: dict[str, Kind] = {}
        types: dict[str, set[pa.DataType]] = {}
        for batch in batches:
            for name, array in zip(batch.schema.names, batch.columns, strict=True):
                known = kinds.setdefault(name, Scalar.NULL)
                if not pa.types.is_null(array.type):
                    types.setdefault(name, set()).add(array.type)
                    kinds[name] = join(known, kind_of_array(array, of_any_value=of_any_value))
        same = {name: Foreign(*seen) for name, seen in types.items() if len(seen) == 1}
        found = {n: settled(kind, keeps_numbers=keeps_numbers) for n, kind in kinds.items()}
        self.record = Fields(found | same)
        self.schema = self.record.schema

    def mixed(self) -> list[tuple[str, str]]:
        """Return the path of each field whose values share no type, and the words for them."""
        return list(mixed_fields(self.record))

    def widen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return one of the batches under the schema of all of them."""
        return widen_batch(batch, self.record)


def warn_of_mixed(kind: Kind, path: str, remedy: str, name: str = "") -> None:
    """Warn of each field of a kind that becomes a string, once for all files called `name`."""
    for field, what in mixed_fields(kind, path):
        warn_once(
            _log,
            f"{f'{name}: ' if name else ''}field {field!r} holds {what} and becomes a string: "
            f"strings stay as they are, other values become their JSON text. {remedy}",
            ("mixed", name, field),
        )


def batch_of_records(rows: Sequence[Record], record: Fields) -> pa.RecordBatch:
    columns = [
        column_of_kind(kind, name).build([row.get(name) for row in rows])
        for name, kind in record.fields.items()
    ]
    return record_batch(columns, len(rows), record.schema)


def column_of_kind(kind: Kind, path: str) -> JsonColumn:
    """Return the column that reads JSON values of a kind."""
    type_ = kind.type
    if isinstance(kind, Mixed):
        return JsonTextColumn(type_, path)
    if isinstance(kind, ListKind):
        return ListColumn(type_, path, column_of_kind(kind.item, f"{path}[]"))
    if isinstance(kind, Fields):
        inner = [column_of_kind(part, inner_path(path, name)) for name, part in kind.fields.items()]
        return StructColumn(type_, path, inner)
    return column_of(type_, path)


def widen_batch(batch: pa.RecordBatch, record: Fields) -> pa.RecordBatch:
    """Return a batch under the schema of a kind that holds its records, new fields null."""
    return cast_batch(batch, record.schema, _widened)


def _widened(array: pa.Array, type_: pa.DataType, _path: str) -> pa.Array:
    if pa.types.is_string(type_):
        return _texts(array)
    # Safe where it counts: an integer becomes unsigned only when none is negative, and a float
    # only where floats were met.
    return array.cast(type_, safe=False)


def _texts(array: pa.Array) -> pa.Array:
    if is_any(array.type, STRINGS):
        return array.cast(pa.string())
    texts = [None if value is None else _text(value) for value in array.to_pylist()]
    return pa.array(texts, pa.string())


def _text(value: object) -> str:
    if isinstance(value, (bool, int, float, list, dict)):
        return json_text(_present(value))
    return str(value)


def _present(value: object) -> object:
    """Return a value without its null fields: Arrow does not know which of them were written."""
    if isinstance(value, dict):
        return {name: _present(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_present(item) for item in value]
    return value
