"""The columns of many files as those of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock._words import few
from penstock.decode import LISTS, NUMBERS, NumbersType, exact_type, is_any
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_MOST_DIGITS = 76
_SHOWN = 5
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
    if isinstance(type_, NumbersType):
        return type_
    if isinstance(type_, pa.BaseExtensionType):
        return type_ if type_.extension_name == "arrow.uuid" else plain_type(type_.storage_type)
    if is_.is_dictionary(type_):
        return plain_type(type_.value_type)
    if is_.is_string_view(type_):
        return pa.large_string()
    if is_.is_binary_view(type_):
        return pa.large_binary()
    return _with_parts(type_, plain_type)


def _with_parts(type_: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with other types inside, everything nullable; one without parts as it is."""
    is_ = pa.types
    if is_.is_struct(type_):
        return pa.struct([pa.field(field.name, change(field.type)) for field in type_])
    if is_.is_map(type_):
        return pa.map_(change(type_.key_type), change(type_.item_type))
    if is_.is_fixed_size_list(type_):
        return pa.list_(_item(type_, change), type_.list_size)
    if is_.is_large_list(type_) or is_.is_large_list_view(type_):
        return pa.large_list(_item(type_, change))
    if is_.is_list(type_) or is_.is_list_view(type_):
        return pa.list_(_item(type_, change))
    return type_


def _item(type_: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    return pa.field(type_.value_field.name, change(type_.value_type))


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
    """The columns of many files: types widen exactly, and an error names two files that differ."""

    def __init__(self, names: Collection[str] | None = None) -> None:
        self._names = names
        self._types: dict[str, tuple[pa.DataType, str]] = {}
        """Type and first file of each column; all numbers in a type are `NumbersType`."""
        self._seen: list[pa.Schema] = []

    def add(self, schema: pa.Schema, path: str) -> pa.Schema:
        """Add the schema of a file; return an equal one that files share."""
        for seen in self._seen:
            if seen.equals(schema):
                return seen
        self._seen.append(schema)
        for field in schema:
            if self._names is None or field.name in self._names:
                type_ = _placed(field.type, path)
                known, first = self._types.get(field.name, (type_, path))
                try:
                    wider = _wider(known, type_)
                    is_own = _settled(wider, _exact).equals(field.type)
                    self._types[field.name] = wider, path if is_own and wider != known else first
                except (pa.ArrowTypeError, pa.ArrowInvalid):
                    raise SchemaMismatchError(
                        f"field {field.name!r} is {_settled(known, _exact)} in {first} and "
                        f"{field.type} in {path}, and no type holds both. Open the files apart, or "
                        "leave the field out by columns=.",
                        path=path,
                        field=field.name,
                    ) from None
        return schema

    @property
    def names_there(self) -> list[str]:
        """The names of all columns, chosen or not."""
        return list(dict.fromkeys(name for seen in self._seen for name in seen.names))

    @property
    def schema(self) -> pa.Schema:
        """The chosen columns, in the order of their first appearance.

        Numbers have the type that holds them exactly, and are `NumbersType` if there is none.
        """
        return self._settled(_exact)

    @property
    def value_schema(self) -> pa.Schema:
        """The same for values: integers stay integers although floats can hold them."""
        return self._settled(_as_in_files)

    def _settled(self, settle: Callable[[NumbersType], pa.DataType]) -> pa.Schema:
        types = ((name, _settled(type_, settle)) for name, (type_, _) in self._types.items())
        return pa.schema(list(types))


def _placed(type_: pa.DataType, path: str) -> pa.DataType:
    """Return the type of a file with its numbers as those of this file."""
    if isinstance(type_, NumbersType):
        return NumbersType.of((part, path) for part, _ in type_.parts)
    if is_any(type_, NUMBERS):
        return NumbersType.of([(type_, path)])
    return _with_parts(type_, lambda inner: _placed(inner, path))


def _settled(type_: pa.DataType, settle: Callable[[NumbersType], pa.DataType]) -> pa.DataType:
    if isinstance(type_, NumbersType):
        return settle(type_)
    return _with_parts(type_, lambda inner: _settled(inner, settle))


def _exact(numbers: NumbersType) -> pa.DataType:
    return numbers.exact


def _as_in_files(numbers: NumbersType) -> pa.DataType:
    return numbers.parts[0][0] if len(numbers.parts) == 1 else numbers


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds the values of both; raise Arrow's error if there is none."""
    is_ = pa.types
    if one.equals(other):
        return one
    if isinstance(one, NumbersType) and isinstance(other, NumbersType):
        return _more_numbers(one, other)
    if is_.is_struct(one) and is_.is_struct(other):
        types = {field.name: field.type for field in one}
        for field in other:
            types[field.name] = _wider(types.get(field.name, field.type), field.type)
        return pa.struct(list(types.items()))
    if is_.is_map(one) and is_.is_map(other):
        return pa.map_(_wider(one.key_type, other.key_type), _wider(one.item_type, other.item_type))
    if is_any(one, LISTS) and is_any(other, LISTS):
        item = pa.field(one.value_field.name, _wider(one.value_type, other.value_type))
        both_fixed = is_.is_fixed_size_list(one) and is_.is_fixed_size_list(other)
        if both_fixed and one.list_size == other.list_size:
            return pa.list_(item, one.list_size)
        is_large = is_.is_large_list(one) or is_.is_large_list(other)
        return pa.large_list(item) if is_large else pa.list_(item)
    schemas = [pa.schema([("", type_)]) for type_ in (one, other)]
    return pa.unify_schemas(schemas, promote_options="permissive").field(0).type


def _more_numbers(one: NumbersType, other: NumbersType) -> NumbersType:
    """Return the types of both; of integers, floats and decimals as few as hold them exactly."""
    parts = one.parts
    for type_, path in other.parts:
        for at, (known, first) in enumerate(parts):
            wider = exact_type(known, type_)
            is_same_kind = any(is_any(known, [kind]) and is_any(type_, [kind]) for kind in NUMBERS)
            if wider is not None and is_same_kind:
                parts[at] = wider, path if wider == type_ != known else first
                break
        else:
            parts.append((type_, path))
    return NumbersType.of(parts)


class CommonColumns:
    """The columns of the files with rows so far; one that has none of them is of another table."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._first = ""
        self._last: pa.Schema | None = None

    def add(self, schema: pa.Schema, path: str) -> None:
        """Add a file, or raise."""
        if schema is self._last or not schema.names:
            return
        if self._names and self._names.keys().isdisjoint(schema.names):
            these, those = few([*self._names], _SHOWN), few(schema.names, _SHOWN)
            raise SchemaMismatchError(
                f"{self._first} and {path} have no column in common: {these}; {those}. Open files "
                "of one table, chosen by a pattern or by split=.",
                path=path,
            )
        self._names |= dict.fromkeys(schema.names)
        self._first, self._last = self._first or path, schema
