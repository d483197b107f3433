"""The field type that stands for an Arrow type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.datasets import (
    GRAMMAR,
    Category,
    Dense,
    FieldType,
    ListOf,
    Number,
    Text,
    parsed,
    paths_in,
    type_at,
)
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

is_ = pa.types

_STRINGS = (is_.is_string, is_.is_large_string, is_.is_string_view)
_BYTES = (is_.is_binary, is_.is_large_binary, is_.is_binary_view, is_.is_fixed_size_binary)
_NUMBERS = (is_.is_boolean, is_.is_integer, is_.is_floating, is_.is_temporal)
_LISTS = (is_.is_list, is_.is_large_list, is_.is_list_view, is_.is_large_list_view)


def field_type(name: str, type_: str | pa.DataType) -> FieldType:
    """Return the field type that a text or an Arrow type stands for.

    >>> str(field_type("a", pa.list_(pa.float32(), 3)))
    'float32[3]'
    """
    if not isinstance(name, str):
        raise OptionError(f"a field is named by a text, not by {name!r}")
    if isinstance(type_, str):
        try:
            return parsed(type_)
        except OptionError as why:
            raise OptionError(f"field {name!r}: {why}") from None
    if not isinstance(type_, pa.DataType):
        raise OptionError(
            f"field {name!r}: a type is a text or a pyarrow.DataType, not {type_!r}. "
            f"Field types are\n{GRAMMAR}"
        )
    found = _of(type_)
    if found is None:
        raise OptionError(
            f"field {name!r}: no tensor stands for the Arrow type {type_}. Field types are\n"
            f"{GRAMMAR}"
        )
    return found


def types_in(schema: pa.Schema, names: Sequence[str]) -> dict[str, str]:
    """Return the field types of names, or paths, as a schema knows them.

    >>> types_in(pa.schema({"a": pa.list_(pa.struct({"b": pa.float64()}))}), ["a[].b"])
    {'a[].b': 'list<float64>'}
    """
    if isinstance(names, str):
        raise OptionError(f"expected several names; for one write [{names!r}]")
    return {name: _known(schema, name) for name in names}


def _known(schema: pa.Schema, name: str) -> str:
    type_ = type_at(schema, name)
    example = f"as in {{{name!r}: 'int64'}}"
    if type_ is None:
        there = ", ".join(paths_in(schema)) or "none"
        raise OptionError(
            f"the schema has no field {name!r}; there are: {there}. Give a field that is not in "
            f"the first records a type, {example}"
        )
    if is_.is_null(type_):
        raise OptionError(
            f"the type of field {name!r} is unknown: it is null in all records that were looked "
            f"at. Give it one, {example}"
        )
    below = [path for path in paths_in(schema) if path.startswith((f"{name}.", f"{name}[]."))]
    if below and _of(type_) is None:
        raise OptionError(
            f"field {name!r} holds objects, and no tensor stands for those: name the fields "
            f"below it, {', '.join(map(repr, below))}"
        )
    return str(field_type(name, type_))


def _of(type_: pa.DataType) -> FieldType | None:
    if isinstance(type_, pa.BaseExtensionType):
        return _of(type_.storage_type)
    if any(is_one(type_) for is_one in _NUMBERS):
        return None if is_.is_interval(type_) else Number(type_)
    if any(is_one(type_) for is_one in _STRINGS):
        return Text(pa.string())
    if any(is_one(type_) for is_one in _BYTES):
        return Text(pa.binary())
    if is_.is_dictionary(type_):
        return Category(pa.string())
    if is_.is_fixed_size_list(type_):
        item = _of(type_.value_type)
        return Dense(item, type_.list_size) if isinstance(item, Number | Dense) else None
    if any(is_one(type_) for is_one in _LISTS):
        item = _of(type_.value_type)
        return ListOf(item) if isinstance(item, Number | Dense | Text | ListOf) else None
    return None
