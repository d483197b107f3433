"""The column for each type of a schema that a caller asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.decode._columns import (
    REFUSALS,
    BooleanColumn,
    Column,
    FloatColumn,
    IntegerColumn,
    Misfit,
    NullColumn,
    TextColumn,
)
from penstock.decode._moment_columns import DecimalColumn, DurationColumn, MomentColumn
from penstock.decode._nested_columns import (
    DictionaryColumn,
    ExtensionColumn,
    ListColumn,
    MapColumn,
    StructColumn,
)
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

is_ = pa.types

_LEAVES: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, str], Column]]] = [
    (is_.is_null, NullColumn),
    (is_.is_boolean, BooleanColumn),
    (is_.is_integer, IntegerColumn),
    (is_.is_floating, FloatColumn),
    (is_.is_decimal, DecimalColumn),
    (is_.is_duration, DurationColumn),
    (is_.is_timestamp, MomentColumn),
    (is_.is_date, MomentColumn),
    (is_.is_time, MomentColumn),
    (is_.is_string, TextColumn),
    (is_.is_large_string, TextColumn),
    (is_.is_string_view, TextColumn),
    (is_.is_binary, TextColumn),
    (is_.is_large_binary, TextColumn),
    (is_.is_binary_view, TextColumn),
    (is_.is_fixed_size_binary, TextColumn),
]

_LISTS = (
    is_.is_list,
    is_.is_large_list,
    is_.is_fixed_size_list,
    is_.is_list_view,
    is_.is_large_list_view,
)


def column_for(type_: pa.DataType, path: str) -> Column:
    """Return the column that reads JSON values as `type_`, or refuse a type that JSON cannot be."""
    column = _column(type_, path)
    try:
        # Some combinations, such as a dictionary of structs, are known to be missing only to Arrow.
        column.build([None])
    except (Misfit, *REFUSALS) as why:
        raise _unsupported(type_, path, str(getattr(why, "why", why))) from None
    return column


def _column(type_: pa.DataType, path: str) -> Column:
    if isinstance(type_, pa.BaseExtensionType):
        return ExtensionColumn(type_, path, _column(type_.storage_type, path))
    for is_type, leaf in _LEAVES:
        if is_type(type_):
            return leaf(type_, path)
    if any(is_list(type_) for is_list in _LISTS):
        return ListColumn(type_, path, _column(type_.value_type, f"{path}[]"))
    if is_.is_struct(type_):
        names = [field.name for field in type_]
        if len(set(names)) < len(names):
            raise _unsupported(type_, path, "two of its fields have the same name")
        children = [_column(field.type, f"{path}.{field.name}") for field in type_]
        return StructColumn(type_, path, children)
    if is_.is_map(type_):
        key = _column(type_.key_type, f"{path}{{}}")
        if not isinstance(key, TextColumn):
            raise _unsupported(type_, path, "the keys of a JSON object are strings")
        return MapColumn(type_, path, key, _column(type_.item_type, f"{path}{{}}"))
    if is_.is_dictionary(type_):
        return DictionaryColumn(type_, path, _column(type_.value_type, path))
    raise _unsupported(type_, path)


def _unsupported(type_: pa.DataType, path: str, why: str = "") -> OptionError:
    reason = f": {why}" if why else ""
    return OptionError(
        f"field {path!r} cannot be read from JSON as {type_}{reason}. "
        f"Give it another type in the schema, for instance string"
    )
