"""Columns made of columns, and the column for each type of a schema that a caller asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat
from operator import attrgetter, is_
from types import GenericAlias
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock._words import counted
from penstock.decode._assemble import (
    LISTS,
    TEXTS,
    dictionary_array,
    is_any,
    list_array,
    map_array,
    struct_array,
)
from penstock.decode._columns import (
    REFUSALS,
    BooleanColumn,
    DecimalColumn,
    DurationColumn,
    FloatColumn,
    IntegerColumn,
    JsonColumn,
    Misfit,
    MomentColumn,
    NullColumn,
    TextColumn,
)
from penstock.decode._numbers import NumbersType, numbers_array
from penstock.decode._value_types import ValueType, column_of_values
from penstock.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Make = Callable[[Sequence[object]], pa.Array]
    Wrap = Callable[[pa.DataType, pa.Array], pa.Array]

_MOST_INT64 = 2**63 - 1


def null_flags(values: Sequence[object]) -> NDArray[np.bool_]:
    """Return where a value is None, bool[rows]."""
    return np.fromiter(map(is_, values, repeat(None)), np.bool_, len(values))


def filled(values: Sequence[object], nulls: NDArray[np.bool_], blank: object) -> Sequence[Any]:
    """Return the values with something else in place of None."""
    return [blank if v is None else v for v in values] if nulls.any() else values


def row_lengths(rows: Sequence[Sequence[object] | Mapping[str, object]]) -> NDArray[np.int64]:
    """Return how many items each list or object has, int64[rows]."""
    return np.fromiter(map(len, rows), np.int64, len(rows))


def optional(column: JsonColumn, *, nullable: bool) -> Any:  # noqa: ANN401 - a type made at run time
    """Return the annotation of a column for msgspec, with None where null may stand."""
    return column.annotation | None if nullable else column.annotation


class StructClass:
    """A class that msgspec decodes JSON objects as, and arrays of the fields of such objects."""

    def __init__(self, parts: Sequence[tuple[pa.Field, JsonColumn]]) -> None:
        # Numbered, since the names in the text may be no names in Python.
        names = {f"f{number}": field.name for number, (field, _) in enumerate(parts)}
        fields: list[tuple[str, Any] | tuple[str, Any, None]] = []
        self._parts = []
        for name, (field, column) in zip(names, parts, strict=True):
            annotation = optional(column, nullable=field.nullable)
            fields.append((name, annotation, None) if field.nullable else (name, annotation))
            self._parts.append((field, column, attrgetter(name)))
        self.type: type[msgspec.Struct] = msgspec.defstruct(
            "Row", fields, rename=names, kw_only=True, gc=False
        )
        self.blank = self.type(**dict.fromkeys(names))
        """Stands for a null object."""

    @classmethod
    def of(cls, parts: Sequence[tuple[pa.Field, JsonColumn]]) -> StructClass | None:
        """Return the class of objects with such fields, or None where msgspec cannot have it."""
        try:
            return cls(parts)
        except ValueError:
            # It takes no names with quotes, backslashes or control characters.
            return None

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[object]:
        """What decodes lines of text."""
        return msgspec.json.Decoder(self.type)

    def arrays(self, rows: Sequence[object], blanks: int = 0) -> list[pa.Array]:
        """Return each field of decoded objects as an array; so many of them are blank."""
        arrays = []
        for field, column, getter in self._parts:
            array = column.decoded(list(map(getter, rows)))
            # msgspec takes null for a field of any type.
            if not field.nullable and array.null_count > blanks:
                raise Misfit(column.path, None, f"{field.type} not null")
            arrays.append(array)
        return arrays


class ListColumn(JsonColumn):
    """JSON arrays as lists of any list-like type."""

    accepts = frozenset({list})

    def __init__(self, type_: pa.DataType, path: str, item: JsonColumn) -> None:
        super().__init__(type_, path)
        self.item = item
        self.item_nullable = type_.value_field.nullable
        self.size = type_.list_size if pa.types.is_fixed_size_list(type_) else None
        self.trusted = item.trusted

    @cached_property
    def annotation(self) -> Any:  # noqa: ANN401 (made at run time)
        return GenericAlias(list, optional(self.item, nullable=self.item_nullable))

    def convert(self, values: Sequence[object]) -> pa.Array:
        return self._lists(values, self.item.build)

    def decoded(self, values: Sequence[object]) -> pa.Array:
        # What Arrow cannot make at once it makes level by level.
        return super().decoded(values) if self.trusted else self._lists(values, self.item.decoded)

    def verify(self, array: pa.Array) -> None:
        self.item.verify(array.flatten())

    def _lists(self, values: Sequence[object], make: Make) -> pa.Array:
        nulls = null_flags(values)
        rows = filled(values, nulls, ())
        lengths = row_lengths(rows)
        items = list(chain.from_iterable(rows))
        if not self.item_nullable and null_flags(items).any():
            raise ValueError("its items may not be null")
        if self.size is not None:
            if (lengths[~nulls] != self.size).any():
                raise ValueError(f"it does not have {counted(self.size, 'item')}")
            items = list(chain.from_iterable(filled(values, nulls, [None] * self.size)))
        return list_array(lengths, nulls, make(items), self.type)


class StructColumn(JsonColumn):
    """JSON objects as structs: fields that are not of the type are left out."""

    accepts = frozenset({dict})

    def __init__(self, type_: pa.DataType, path: str, children: Sequence[JsonColumn]) -> None:
        super().__init__(type_, path)
        self.children = list(zip(type_, children, strict=True))

    @cached_property
    def _class(self) -> StructClass | None:
        return StructClass.of(self.children)

    @property
    def annotation(self) -> Any:  # noqa: ANN401 (made at run time)
        """A class with a field for each of the type, so that nothing else is decoded."""
        return Any if self._class is None else self._class.type

    def convert(self, values: Sequence[object]) -> pa.Array:
        nulls = null_flags(values)
        rows: Sequence[dict[str, object]] = filled(values, nulls, {})
        arrays = []
        for field, column in self.children:
            inner = [row.get(field.name) for row in rows]
            if not field.nullable and (null_flags(inner) & ~nulls).any():
                raise Misfit(f"{self.path}.{field.name}", None, f"{field.type} not null")
            arrays.append(column.build(inner))
        return struct_array(arrays, nulls, self.type)

    def decoded(self, values: Sequence[object]) -> pa.Array:
        if self._class is None:
            return self.build(values)
        nulls = null_flags(values)
        arrays = self._class.arrays(filled(values, nulls, self._class.blank), int(nulls.sum()))
        return struct_array(arrays, nulls, self.type)


class MapColumn(JsonColumn):
    """JSON objects as maps from string to one type of item."""

    accepts = frozenset({dict})

    def __init__(self, type_: pa.DataType, path: str, key: JsonColumn, item: JsonColumn) -> None:
        super().__init__(type_, path)
        self.key = key
        self.item = item
        self.item_nullable = type_.item_field.nullable

    @cached_property
    def annotation(self) -> Any:  # noqa: ANN401 (made at run time)
        return GenericAlias(dict, (str, optional(self.item, nullable=self.item_nullable)))

    def convert(self, values: Sequence[object]) -> pa.Array:
        return self._maps(values, self.item.build)

    def decoded(self, values: Sequence[object]) -> pa.Array:
        return self._maps(values, self.item.decoded)

    def _maps(self, values: Sequence[object], make: Make) -> pa.Array:
        nulls = null_flags(values)
        rows: Sequence[dict[str, object]] = filled(values, nulls, {})
        keys = list(chain.from_iterable(rows))
        items = list(chain.from_iterable(row.values() for row in rows))
        if not self.item_nullable and null_flags(items).any():
            raise ValueError("its items may not be null")
        return map_array(row_lengths(rows), nulls, self.key.build(keys), make(items), self.type)


class WrappedColumn(JsonColumn):
    """Values of another column as a dictionary or an extension type; `wrap` makes one."""

    def __init__(self, type_: pa.DataType, path: str, inner: JsonColumn, wrap: Wrap) -> None:
        super().__init__(type_, path)
        self.inner, self.wrap = inner, wrap
        self.accepts = inner.accepts

    @property
    def annotation(self) -> Any:  # noqa: ANN401 (made at run time)
        return self.inner.annotation

    def convert(self, values: Sequence[object]) -> pa.Array:
        return self.wrap(self.type, self.inner.build(values))

    def decoded(self, values: Sequence[object]) -> pa.Array:
        return self.wrap(self.type, self.inner.decoded(values))


class NumbersColumn(JsonColumn):
    """Integers and floats, each as what it is."""

    accepts = frozenset({int, float})

    def convert(self, values: Sequence[object]) -> pa.Array:
        columns = [column_of(type_, self.path) for type_, _ in self.type.parts]
        is_float = [pa.types.is_floating(column.type) for column in columns]
        parts: list[list[object]] = [[None] * len(values) for _ in columns]
        for row, value in enumerate(values):
            if value is not None:
                at = is_float.index(isinstance(value, float))
                # Behind the part of int64 is that of uint64.
                is_beyond = isinstance(value, int) and value > _MOST_INT64
                parts[at + is_beyond][row] = value
        arrays = [column.build(part) for column, part in zip(columns, parts, strict=True)]
        return numbers_array(arrays, self.type)


_LEAVES: list[tuple[Sequence[str], Callable[[pa.DataType, str], JsonColumn]]] = [
    (("null",), NullColumn),
    (("boolean",), BooleanColumn),
    (("integer",), IntegerColumn),
    (("floating",), FloatColumn),
    (("decimal",), DecimalColumn),
    (("duration",), DurationColumn),
    (("timestamp", "date", "time"), MomentColumn),
    (TEXTS, TextColumn),
]


def column_for(type_: pa.DataType, path: str) -> JsonColumn:
    """Return the column that reads JSON values as `type_`, or refuse a type that JSON cannot be."""
    column = column_of(type_, path)
    try:
        # Some combinations, such as a dictionary of structs, are known to be missing only to Arrow.
        column.build([None])
    except (Misfit, *REFUSALS) as why:
        raise _unsupported(type_, path, str(getattr(why, "why", why))) from None
    return column


def typed_column(values: Sequence[object], type_: pa.DataType) -> pa.Array:
    """Return JSON values as an array of a type that holds them."""
    return column_of(type_, "").build(values)


def column_of(type_: pa.DataType, path: str) -> JsonColumn:
    if isinstance(type_, pa.BaseExtensionType):
        return _extension_column(type_, path)
    for kinds, leaf in _LEAVES:
        if is_any(type_, kinds):
            return leaf(type_, path)
    if is_any(type_, LISTS):
        return ListColumn(type_, path, column_of(type_.value_type, f"{path}[]"))
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        if len(set(names)) < len(names):
            raise _unsupported(type_, path, "two of its fields have the same name")
        children = [column_of(field.type, f"{path}.{field.name}") for field in type_]
        return StructColumn(type_, path, children)
    if pa.types.is_map(type_):
        key = column_of(type_.key_type, f"{path}{{}}")
        if not isinstance(key, TextColumn):
            raise _unsupported(type_, path, "the keys of a JSON object are strings")
        return MapColumn(type_, path, key, column_of(type_.item_type, f"{path}{{}}"))
    if pa.types.is_dictionary(type_):
        return WrappedColumn(type_, path, column_of(type_.value_type, path), dictionary_array)
    raise _unsupported(type_, path)


def _extension_column(type_: pa.BaseExtensionType, path: str) -> JsonColumn:
    if isinstance(type_, ValueType):
        return column_of_values(type_, path)
    if isinstance(type_, NumbersType):
        return NumbersColumn(type_, path)
    inner = column_of(type_.storage_type, path)
    return WrappedColumn(type_, path, inner, pa.ExtensionArray.from_storage)


def _unsupported(type_: pa.DataType, path: str, why: str = "") -> OptionError:
    reason = f": {why}" if why else ""
    return OptionError(
        f"field {path!r} cannot be read from JSON as {type_}{reason}. "
        f"Give it another type in the schema, for instance string"
    )
