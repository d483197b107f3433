"""Columns made of columns: lists, structs, maps, dictionaries, extension types."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from itertools import chain, repeat
from operator import attrgetter, is_
from types import GenericAlias
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.decode._assemble import dictionary_array, list_array, map_array, struct_array
from penstock.decode._columns import JsonColumn, Misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    Make = Callable[[Sequence[object]], pa.Array]


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
        names = [f"f{number}" for number in range(len(parts))]
        fields: list[tuple[str, Any] | tuple[str, Any, None]] = [
            (name, optional(column, nullable=True), None)
            if field.nullable
            else (name, column.annotation)
            for name, (field, column) in zip(names, parts, strict=True)
        ]
        in_text = {name: field.name for name, (field, _) in zip(names, parts, strict=True)}
        self.type: type[msgspec.Struct] = msgspec.defstruct(
            "Row", fields, rename=in_text, kw_only=True, gc=False
        )
        self.blank = self.type(**dict.fromkeys(names))
        """Stands for a null object."""
        self._parts = [
            (field, column, attrgetter(name))
            for name, (field, column) in zip(names, parts, strict=True)
        ]

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
        """Return the lists; a fixed-size list must have exactly its size."""
        return self._lists(values, self.item.build)

    def decoded(self, values: Sequence[object]) -> pa.Array:
        """Return the lists; what Arrow cannot make at once it makes level by level."""
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
                raise ValueError(f"it does not have {self.size} items")
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
        """Return the structs; a field that is missing is null."""
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


class _WrappedColumn(JsonColumn):
    """Values of another column, made into an array of this type as a whole."""

    def __init__(self, type_: pa.DataType, path: str, inner: JsonColumn) -> None:
        super().__init__(type_, path)
        self.inner = inner
        self.accepts = inner.accepts

    @property
    def annotation(self) -> Any:  # noqa: ANN401 (made at run time)
        return self.inner.annotation

    def convert(self, values: Sequence[object]) -> pa.Array:
        return self.wrapped(self.inner.build(values))

    def decoded(self, values: Sequence[object]) -> pa.Array:
        return self.wrapped(self.inner.decoded(values))

    @abstractmethod
    def wrapped(self, array: pa.Array) -> pa.Array:
        """Return an array of the inner column as one of this type."""


class DictionaryColumn(_WrappedColumn):
    """Values of another column, each distinct one stored once a batch."""

    def wrapped(self, array: pa.Array) -> pa.Array:
        return dictionary_array(array, self.type)


class ExtensionColumn(_WrappedColumn):
    """Values of an extension type, read as its storage type."""

    def wrapped(self, array: pa.Array) -> pa.Array:
        return pa.ExtensionArray.from_storage(self.type, array)
