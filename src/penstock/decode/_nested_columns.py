"""Columns made of columns: lists, structs, maps, dictionaries, extension types."""

from __future__ import annotations

from itertools import chain
from types import GenericAlias
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from penstock.decode._assemble import list_array, map_array, struct_array
from penstock.decode._columns import Column, Misfit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def null_flags(values: Sequence[object]) -> NDArray[np.bool_]:
    """Return where a value is None, bool[rows]."""
    return np.fromiter((value is None for value in values), np.bool_, len(values))


def row_lengths(values: Sequence[object]) -> NDArray[np.int64]:
    """Return how many items each list or object has (0 for None), int64[rows]."""
    sized = cast("Sequence[list[object] | None]", values)
    return np.fromiter((0 if v is None else len(v) for v in sized), np.int64, len(values))


def optional(column: Column, *, nullable: bool) -> Any:  # noqa: ANN401 - a type made at run time
    """Return the annotation of a column for msgspec, with None where null may stand."""
    return column.annotation | None if nullable else column.annotation


class ListColumn(Column):
    """JSON arrays as lists of any list-like type."""

    accepts = frozenset({list})

    def __init__(self, type_: pa.DataType, path: str, item: Column) -> None:
        super().__init__(type_, path)
        self.item = item
        self.item_nullable = type_.value_field.nullable
        self.size = type_.list_size if pa.types.is_fixed_size_list(type_) else None
        self.trusted = item.trusted and self.size is None
        if self.trusted:
            self.annotation = GenericAlias(list, optional(item, nullable=self.item_nullable))

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return the lists; a fixed-size list must have exactly its size."""
        nulls, lengths = null_flags(values), row_lengths(values)
        rows = cast("Sequence[list[object] | None]", values)
        items = list(chain.from_iterable(row for row in rows if row))
        if None in items and not self.item_nullable:
            raise ValueError("its items may not be null")
        if self.size is not None:
            if (lengths[~nulls] != self.size).any():
                raise ValueError(f"it does not have {self.size} items")
            padding = [None] * self.size
            items = list(chain.from_iterable(padding if row is None else row for row in rows))
        return list_array(lengths, nulls, self.item.build(items), self.type)


class StructColumn(Column):
    """JSON objects as structs: fields that are not of the type are left out."""

    accepts = frozenset({dict})

    def __init__(self, type_: pa.DataType, path: str, children: Sequence[Column]) -> None:
        super().__init__(type_, path)
        self.children = list(zip(type_, children, strict=True))

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return the structs; a field that is missing is null."""
        nulls = null_flags(values)
        rows = cast("Sequence[dict[str, object]]", [{} if v is None else v for v in values])
        arrays = []
        for field, column in self.children:
            inner = [row.get(field.name) for row in rows]
            if not field.nullable and (null_flags(inner) & ~nulls).any():
                raise Misfit(f"{self.path}.{field.name}", None, f"{field.type} not null")
            arrays.append(column.build(inner))
        return struct_array(arrays, nulls, self.type)


class MapColumn(Column):
    """JSON objects as maps from string to one type of item."""

    accepts = frozenset({dict})

    def __init__(self, type_: pa.DataType, path: str, key: Column, item: Column) -> None:
        super().__init__(type_, path)
        self.key = key
        self.item = item
        self.item_nullable = type_.item_field.nullable

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return the maps, entries in the order of the text."""
        rows = cast("Sequence[dict[str, object] | None]", values)
        keys = list(chain.from_iterable(row for row in rows if row))
        items = list(chain.from_iterable(row.values() for row in rows if row))
        if None in items and not self.item_nullable:
            raise ValueError("its items may not be null")
        lengths, nulls = row_lengths(values), null_flags(values)
        return map_array(lengths, nulls, self.key.build(keys), self.item.build(items), self.type)


class DictionaryColumn(Column):
    """Values of another column, each distinct one stored once a batch."""

    def __init__(self, type_: pa.DataType, path: str, value: Column) -> None:
        super().__init__(type_, path)
        self.value = value
        self.accepts = value.accepts

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return the values as indices into the batch's own dictionary."""
        encoded = self.value.build(values).dictionary_encode()
        indices = encoded.indices.cast(self.type.index_type)
        return pa.DictionaryArray.from_arrays(
            indices, encoded.dictionary, ordered=self.type.ordered
        )


class ExtensionColumn(Column):
    """Values of an extension type, read as its storage type."""

    def __init__(self, type_: pa.BaseExtensionType, path: str, storage: Column) -> None:
        super().__init__(type_, path)
        self.storage = storage
        self.accepts = storage.accepts

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return the storage under its type."""
        return pa.ExtensionArray.from_storage(self.type, self.storage.build(values))
