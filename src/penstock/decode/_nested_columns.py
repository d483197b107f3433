"""Columns made of columns: lists, structs, maps, dictionaries, extension types."""

from __future__ import annotations

from functools import cached_property
from itertools import chain, repeat
from operator import is_
from types import GenericAlias
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.decode._assemble import list_array, map_array, struct_array
from penstock.decode._columns import JsonColumn, Misfit
from penstock.decode._struct_class import StructClass, optional

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
        """A list of what the items are decoded as."""
        return GenericAlias(list, optional(self.item, nullable=self.item_nullable))

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return the lists; a fixed-size list must have exactly its size."""
        return self._lists(values, self.item.build)

    def decoded(self, values: Sequence[object]) -> pa.Array:
        """Return the lists; what Arrow cannot make at once it makes level by level."""
        return super().decoded(values) if self.trusted else self._lists(values, self.item.decoded)

    def verify(self, array: pa.Array) -> None:
        """Look at the items."""
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
        """Return the structs, made field by field."""
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
        """A dict from strings to what the items are decoded as."""
        return GenericAlias(dict, (str, optional(self.item, nullable=self.item_nullable)))

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return the maps, entries in the order of the text."""
        return self._maps(values, self.item.build)

    def decoded(self, values: Sequence[object]) -> pa.Array:
        """Return the maps, all their items made together."""
        return self._maps(values, self.item.decoded)

    def _maps(self, values: Sequence[object], make: Make) -> pa.Array:
        nulls = null_flags(values)
        rows: Sequence[dict[str, object]] = filled(values, nulls, {})
        keys = list(chain.from_iterable(rows))
        items = list(chain.from_iterable(row.values() for row in rows))
        if not self.item_nullable and null_flags(items).any():
            raise ValueError("its items may not be null")
        return map_array(row_lengths(rows), nulls, self.key.build(keys), make(items), self.type)


class DictionaryColumn(JsonColumn):
    """Values of another column, each distinct one stored once a batch."""

    def __init__(self, type_: pa.DataType, path: str, value: JsonColumn) -> None:
        super().__init__(type_, path)
        self.value = value
        self.accepts = value.accepts

    @property
    def annotation(self) -> Any:  # noqa: ANN401 (made at run time)
        """That of the values."""
        return self.value.annotation

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return the values as indices into the batch's own dictionary."""
        return self._encoded(self.value.build(values))

    def decoded(self, values: Sequence[object]) -> pa.Array:
        """Return the same of values that were decoded."""
        return self._encoded(self.value.decoded(values))

    def _encoded(self, array: pa.Array) -> pa.Array:
        encoded = array.dictionary_encode()
        indices = encoded.indices.cast(self.type.index_type)
        return pa.DictionaryArray.from_arrays(
            indices, encoded.dictionary, ordered=self.type.ordered
        )


class ExtensionColumn(JsonColumn):
    """Values of an extension type, read as its storage type."""

    def __init__(self, type_: pa.BaseExtensionType, path: str, storage: JsonColumn) -> None:
        super().__init__(type_, path)
        self.storage = storage
        self.accepts = storage.accepts

    @property
    def annotation(self) -> Any:  # noqa: ANN401 (made at run time)
        """That of the storage."""
        return self.storage.annotation

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return the storage under its type."""
        return pa.ExtensionArray.from_storage(self.type, self.storage.build(values))

    def decoded(self, values: Sequence[object]) -> pa.Array:
        """Return the same of values that were decoded."""
        return pa.ExtensionArray.from_storage(self.type, self.storage.decoded(values))
