"""The columns of many files as those of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_MOST_DIGITS = 76
_WITHOUT_CLASS = (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME)
"""Types of which pyarrow makes no arrays."""


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with plain types, everything nullable, without metadata."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type in which a column is returned, everything in it nullable.

    Dictionaries and views are storage forms of texts that differ from file to file.

    >>> plain_type(pa.list_(pa.dictionary(pa.int32(), pa.string())))
    ListType(list<item: string>)
    """
    is_ = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return type_ if type_.extension_name == "arrow.uuid" else plain_type(type_.storage_type)
    if is_.is_dictionary(type_):
        return plain_type(type_.value_type)
    if is_.is_string_view(type_):
        return pa.large_string()
    if is_.is_binary_view(type_):
        return pa.large_binary()
    if is_.is_struct(type_):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in type_])
    if is_.is_map(type_):
        return pa.map_(plain_type(type_.key_type), plain_type(type_.item_type))
    if is_.is_fixed_size_list(type_):
        return pa.list_(_item(type_), type_.list_size)
    if is_.is_large_list(type_) or is_.is_large_list_view(type_):
        return pa.large_list(_item(type_))
    if is_.is_list(type_) or is_.is_list_view(type_):
        return pa.list_(_item(type_))
    return type_


def _item(type_: pa.DataType) -> pa.Field:
    return pa.field(type_.value_field.name, plain_type(type_.value_type))


def leaves(type_: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types of the values at the ends of a type."""
    if not type_.num_fields:
        yield type_
    for at in range(type_.num_fields):
        yield from leaves(type_.field(at).type)


def is_read(type_: pa.DataType) -> bool:
    """Whether rows of a column can be taken apart and shown: not those of unions and runs."""
    is_, type_ = pa.types, plain_type(type_)
    if is_.is_union(type_) or is_.is_run_end_encoded(type_) or type_.id in _WITHOUT_CLASS:
        return False
    if is_.is_decimal(type_):
        return bool(abs(type_.scale) <= _MOST_DIGITS)
    return all(is_read(type_.field(at).type) for at in range(type_.num_fields))


class UnifiedSchema:
    """The columns of many files: types widen, and an error names two files that differ."""

    def __init__(self, names: Collection[str] | None = None) -> None:
        self._names = names
        self._types: dict[str, tuple[pa.DataType, str]] = {}
        self._seen: list[pa.Schema] = []

    def add(self, schema: pa.Schema, path: str) -> pa.Schema:
        """Add the schema of a file; return an equal one that files share."""
        for seen in self._seen:
            if seen.equals(schema):
                return seen
        self._seen.append(schema)
        for field in schema:
            if self._names is None or field.name in self._names:
                known = self._types.get(field.name, (field.type, path))
                self._types[field.name] = _wider(field, known, path)
        return schema

    @property
    def names_there(self) -> list[str]:
        """The names of all columns, chosen or not."""
        return list(dict.fromkeys(name for seen in self._seen for name in seen.names))

    @property
    def schema(self) -> pa.Schema:
        """The chosen columns, in the order of their first appearance."""
        return pa.schema([(name, type_) for name, (type_, _) in self._types.items()])


def _wider(field: pa.Field, known: tuple[pa.DataType, str], path: str) -> tuple[pa.DataType, str]:
    type_, first = known
    if field.type.equals(type_):
        return known
    both = [pa.schema([(field.name, type_)]), pa.schema([field])]
    try:
        wider = pa.unify_schemas(both, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        raise SchemaMismatchError(
            f"field {field.name!r} is {type_} in {first} and {field.type} in {path}, and no type "
            "holds both. Open the files apart, or leave the field out by columns=.",
            path=path,
            field=field.name,
        ) from None
    return wider, (path if wider.equals(field.type) else first)
