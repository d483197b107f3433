"""Values and arrays into the Arrow arrays of a kind that holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.decode._assemble import (
    list_array,
    list_lengths,
    null_rows,
    record_batch,
    struct_array,
)
from penstock.decode._columns import (
    BooleanColumn,
    FloatColumn,
    IntegerColumn,
    JsonColumn,
    JsonTextColumn,
    NullColumn,
    TextColumn,
    json_text,
)
from penstock.decode._kinds import (
    Fields,
    Foreign,
    Kind,
    ListKind,
    Scalar,
    arrow_schema,
    arrow_type,
    inner_path,
)
from penstock.decode._nested_columns import ListColumn, StructColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.decode._records import Record

_COLUMNS: dict[Scalar, Callable[[pa.DataType, str], JsonColumn]] = {
    Scalar.NULL: NullColumn,
    Scalar.BOOLEAN: BooleanColumn,
    Scalar.NATURAL: IntegerColumn,
    Scalar.NEGATIVE: IntegerColumn,
    Scalar.UNSIGNED: IntegerColumn,
    Scalar.FLOAT: FloatColumn,
    Scalar.TEXT: TextColumn,
    Scalar.WIDE: JsonTextColumn,
    Scalar.MIXED: JsonTextColumn,
}


def batch_of_records(rows: Sequence[Record], record: Fields) -> pa.RecordBatch:
    columns = [
        _column(kind, name).build([row.get(name) for row in rows])
        for name, kind in record.fields.items()
    ]
    return record_batch(columns, len(rows), arrow_schema(record))


def _column(kind: Kind, path: str) -> JsonColumn:
    type_ = arrow_type(kind)
    if isinstance(kind, ListKind):
        return ListColumn(type_, path, _column(kind.item, f"{path}[]"))
    if isinstance(kind, Fields):
        inner = [_column(part, inner_path(path, name)) for name, part in kind.fields.items()]
        return StructColumn(type_, path, inner)
    if isinstance(kind, Foreign):
        raise TypeError(f"JSON text gives no {kind.type}")
    return _COLUMNS[kind](type_, path)


def widen_batch(batch: pa.RecordBatch, record: Fields) -> pa.RecordBatch:
    """Return a batch under the schema of a kind that holds its records, new fields null."""
    schema = arrow_schema(record)
    columns = _widen_fields(batch.schema.names, batch.columns, record, batch.num_rows)
    return record_batch(columns, batch.num_rows, schema)


def widen_array(array: pa.Array, kind: Kind) -> pa.Array:
    """Return an array as the type of a kind that holds its values."""
    type_ = arrow_type(kind)
    if array.type.equals(type_):
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), type_)
    if isinstance(kind, ListKind):
        return _widen_lists(array, kind, type_)
    if isinstance(kind, Fields):
        names = [field.name for field in array.type]
        children = [array.field(number) for number in range(len(names))]
        columns = _widen_fields(names, children, kind, len(array))
        return struct_array(columns, null_rows(array), type_)
    if pa.types.is_string(type_):
        return _texts(array)
    # Safe where it counts: an integer becomes unsigned only when none is negative, and a float
    # only where floats were met.
    return array.cast(type_, safe=False)


def _widen_fields(
    names: Sequence[str], arrays: Sequence[pa.Array], record: Fields, rows: int
) -> list[pa.Array]:
    there = dict(zip(names, arrays, strict=True))
    return [
        widen_array(there[name], kind) if name in there else pa.nulls(rows, arrow_type(kind))
        for name, kind in record.fields.items()
    ]


def _widen_lists(array: pa.Array, kind: ListKind, type_: pa.DataType) -> pa.Array:
    items = widen_array(array.flatten(), kind.item)
    return list_array(list_lengths(array), null_rows(array), items, type_)


def _texts(array: pa.Array) -> pa.Array:
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
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
