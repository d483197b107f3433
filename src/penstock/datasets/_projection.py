"""The columns that a caller names, by paths and types, out of any source."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasets._inexact import refuse_rounded
from penstock.datasets._join_batches import joined
from penstock.datasets._table_source import TableSource
from penstock.datasets.fields._grammar import arrow_type
from penstock.datasets.fields._paths import (
    LIST,
    PathPlan,
    Way,
    closest,
    doubled,
    is_listlike,
    paths_in,
    steps_of,
    type_at,
)
from penstock.decode import empty_batch, fit_batch, list_items, refuse_bad_texts, unify
from penstock.errors import OptionError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.datasets._source import Fields, Source


def projected(source: Source, ids: NDArray[np.int64], fields: Fields) -> pa.RecordBatch:
    """Return one column a field, in the order and of exactly the types asked for.

    `fields` maps names or paths to types, or names them and the source's schema has the types. A
    path goes into structs by dots and into lists by `[]`: `items[].price` is a list column. A
    missing value is null. A top-level field whose name looks like a path wins over the path.

    >>> from penstock.datasets._memory import ListSource
    >>> source = ListSource([{"user": {"age": 42}, "items": [{"price": 1}, {"price": 2}]}, {}])
    >>> projected(source, np.arange(2), {"items[].price": "list<int8>", "user.age": "int64"})
    pyarrow.RecordBatch
    items[].price: list<item: int8>
      child 0, item: int8
    user.age: int64
    ----
    items[].price: [[1,2],null]
    user.age: [42,null]
    """
    schema = typed_fields(source, fields, lambda: source._inferred(ids).schema)  # noqa: SLF001
    try:
        batch = project(source, ids, schema)
        if has_types(fields):
            if source.may_hold_bad_texts:
                refuse_bad_texts(batch, ids)
        elif not source.schema_is_complete:
            refuse_rounded(batch)
    except SchemaMismatchError:
        if has_types(fields):
            raise
    else:
        return batch
    # The schema is that of other records: these hold wider values.
    return projected(TableSource(whole_records(source, ids)), np.arange(len(ids)), fields)


def whole_records(source: Source, ids: NDArray[np.int64]) -> pa.Table:
    """Return records with all columns of the source's schema, as wide as these records need."""
    batch = source._inferred(ids)  # noqa: SLF001 (the contract's own)
    if source.schema_is_complete:
        return pa.Table.from_batches([batch])
    return unify([empty_batch(source.schema, 0), batch], keeps_numbers=True)


def has_types(fields: Fields) -> bool:
    """Whether fields are named with their types."""
    return isinstance(fields, pa.Schema | Mapping)


def typed_fields(source: Source, fields: Fields, more: Callable[[], pa.Schema]) -> pa.Schema:
    """Return the fields with their types, one column each.

    Names without a type have the one of the source's schema, or else of the schema that `more`
    finds.
    """
    if isinstance(fields, str):
        raise OptionError(f"fields={fields!r}: expected several names; for one write [{fields!r}]")
    schema = typed_schema(fields)
    if schema is None:
        schema = _named(source, [_name(name) for name in fields], more)
    if twice := doubled(schema.names):
        raise OptionError(f"fields name {', '.join(map(repr, twice))} more than once")
    return schema


def typed_schema(fields: Fields | None) -> pa.Schema | None:
    """Return fields that have types as a schema; None for names alone."""
    if isinstance(fields, pa.Schema):
        return fields
    if not isinstance(fields, Mapping):
        return None
    return pa.schema([(_name(name), arrow_type(type_)) for name, type_ in fields.items()])


def project(source: Source, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema whose names may be paths."""
    paths = [name for name in schema.names if len(steps_of(name)) > 1]
    if not paths:
        return source._columns(ids, schema)  # noqa: SLF001
    names = frozenset(paths) & source.field_names
    if source.schema_is_complete:
        return _read(source, ids, schema, _plan(schema, names, complete=True))
    # A field whose type has too few lists for its path is meant by name.
    only_names = frozenset(n for n in names if not _may_lead(n, schema.field(n).type))
    paths, names = [n for n in paths if n not in only_names], names - only_names
    plan = _plan(schema, only_names, complete=False)
    if not names:
        return _read(source, ids, schema, plan)
    try:
        return _read(source, ids, schema, plan, names)
    except (_TwoMeaningsError, SchemaMismatchError):
        # A record with a field of that very name may hold anything where the path leads.
        return _read_by_names(source, ids, schema, paths, only_names)


def _may_lead(path: str, type_: pa.DataType) -> bool:
    """Whether a type has as many lists as a path goes into."""
    for _ in range(steps_of(path).count(LIST)):
        if not is_listlike(type_):
            return False
        type_ = type_.value_type
    return True


def _read_by_names(
    source: Source,
    ids: NDArray[np.int64],
    schema: pa.Schema,
    paths: Sequence[str],
    only_names: frozenset[str],
) -> pa.RecordBatch:
    """Read what of `paths` is the name of a field in a record as that, and else as a path."""
    groups: dict[frozenset[str], list[int]] = {}
    for row, record in enumerate(source._records(ids)):  # noqa: SLF001
        there = record if isinstance(record, Mapping) else ()
        groups.setdefault(frozenset(name for name in paths if name in there), []).append(row)
    parts = [
        _read(source, ids[rows], schema, _plan(schema, names | only_names, complete=True))
        for names, rows in groups.items()
    ]
    return joined(parts, np.argsort(np.concatenate([*groups.values()])))


def _read(
    source: Source,
    ids: NDArray[np.int64],
    schema: pa.Schema,
    plan: PathPlan,
    doubtful: frozenset[str] = frozenset(),
) -> pa.RecordBatch:
    """Read what is planned; of `doubtful` fields some records have the name, and some the path."""
    layers = [source._columns(ids, layer) for layer in plan.layers]  # noqa: SLF001
    columns = [
        _column(ways, layers, is_doubtful=name in doubtful)
        for name, ways in zip(schema.names, plan.ways, strict=True)
    ]
    # Only null is left that may not fit, where a field or the items of a list have none.
    return fit_batch(pa.RecordBatch.from_arrays(columns, schema.names), schema, ids)


# Batches are asked for with the same fields again and again.
_plan = lru_cache(256)(PathPlan)


def _name(name: object) -> str:
    if isinstance(name, str):
        return name
    raise OptionError(f"a field is named by a text, not by {name!r}")


def _named(source: Source, names: Sequence[str], more: Callable[[], pa.Schema]) -> pa.Schema:
    known = source.schema
    types = {name: type_at(known, name) for name in names}
    unknown = [name for name, type_ in types.items() if type_ is None or pa.types.is_null(type_)]
    if unknown:
        wider = more()
        types |= {name: type_at(wider, name) or types[name] for name in unknown}
        for name in unknown:
            if types[name] is None:
                near = closest(name, [*paths_in(known), *paths_in(wider)])
                raise OptionError(
                    f"there is no field {name!r} in these records: {near} With a type, as in "
                    f"{{{name!r}: 'int64'}}, it is null where it is missing"
                )
    return pa.schema([(name, types[name]) for name in names])


class _TwoMeaningsError(Exception):
    """A path has a value where its name is null: the record decides which is meant."""


def _column(
    ways: Sequence[Way], layers: Sequence[pa.RecordBatch], *, is_doubtful: bool
) -> pa.Array:
    column, *others = (_inside(layers[layer].column(name), rest) for layer, (name, *rest) in ways)
    for other in others:
        if is_doubtful and pc.any(pc.and_(column.is_null(), other.is_valid())).as_py():
            raise _TwoMeaningsError
        if column.null_count == len(column):
            column = other
        elif other.null_count < len(other) and isinstance(other.type, pa.ExtensionType):
            texts = pc.coalesce(column.storage, other.storage)
            column = pa.ExtensionArray.from_storage(other.type, texts)
        elif other.null_count < len(other):
            column = pc.coalesce(column.cast(other.type), other)
    return column


def _inside(array: pa.Array, steps: Sequence[str | None]) -> pa.Array:
    """Return what stands at the end of the steps, a value (or null) for each of the array."""
    if not steps:
        return array
    step, *rest = steps
    if step is not LIST:
        return _inside(_field(array, step), rest)
    nulls = array.is_null()
    if pa.types.is_fixed_size_list(array.type):
        # It has items also where it is null; `flatten` would leave them out.
        size = array.type.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        return pa.FixedSizeListArray.from_arrays(_inside(items, rest), size, mask=nulls)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    is_large = pa.types.is_large_list(array.type)
    offsets = np.zeros(len(array) + 1, np.int64 if is_large else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    items = _inside(list_items(array), rest)
    lists = pa.LargeListArray if is_large else pa.ListArray
    return lists.from_arrays(pa.array(offsets), items, mask=nulls)


def _field(array: pa.StructArray, name: str) -> pa.Array:
    if array.null_count:
        # Unlike `field`, this makes null what stands in a null struct, in a time that grows with
        # the number of fields.
        return pc.struct_field(array, name)
    return array.field(array.type.get_field_index(name))
