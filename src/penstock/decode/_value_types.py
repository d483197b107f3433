"""Arrow types for values of several kinds: the field types `text` and `json`.

They are strings in Arrow, under a name that says how values become strings. A column is read under
this name; users get plain strings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, time
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa

from penstock.decode._columns import JsonColumn, json_types

if TYPE_CHECKING:
    Columns = TypeVar("Columns", pa.RecordBatch, pa.Table)


class ValueType(pa.ExtensionType):  # type: ignore[misc] # pyarrow has no types
    """The base of both types; it stays as it is, since columns on disk name it."""

    name: str

    def __init__(self) -> None:
        super().__init__(pa.string(), f"penstock.{self.name}")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> ValueType:
        return cls()

    def __hash__(self) -> int:
        return hash(self.extension_name)

    def __str__(self) -> str:
        return self.name


class TextType(ValueType):
    """Strings as they are, other scalars as their JSON text."""

    name = "text"


class JsonType(ValueType):
    """Values of any kind as JSON text, strings included."""

    name = "json"


TEXT, JSON = TextType(), JsonType()
pa.register_extension_type(TEXT)
pa.register_extension_type(JSON)


def plain_columns(columns: Columns) -> Columns:
    """Return columns with plain strings in place of `text` and `json`.

    >>> texts = pa.ExtensionArray.from_storage(JSON, pa.array(['{"a":1}']))
    >>> plain_columns(pa.record_batch({"x": texts})).schema.types
    [DataType(string)]
    """
    types: list[pa.DataType] = columns.schema.types
    if not any(map(_has_values, types)):
        return columns
    # Only these: of a slice of lists of nothing but nulls, Arrow's cast loses values.
    arrays = [
        array.cast(plain_type(type_)) if _has_values(type_) else array
        for array, type_ in zip(columns.columns, types, strict=True)
    ]
    return type(columns).from_arrays(arrays, columns.schema.names)


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return a type, or a type of lists, with string in place of `text` and `json`."""
    if not _has_values(type_):
        return type_
    if isinstance(type_, ValueType):
        return type_.storage_type
    is_large = pa.types.is_large_list(type_)
    return (pa.large_list if is_large else pa.list_)(plain_type(type_.value_type))


_LISTS = {pa.list_(pa.null()).id, pa.large_list(pa.null()).id}


def _has_values(type_: pa.DataType) -> bool:
    """Whether a type is one of both, or lists of them; asked of every column of every batch."""
    while type_.id in _LISTS:
        type_ = type_.value_type
    return isinstance(type_, ValueType)


class ValueColumn(JsonColumn):
    """Values of any kind as their JSON text."""

    accepts = frozenset()

    def build(self, values: Sequence[object]) -> pa.Array:
        texts = self._texts(values)
        try:
            storage = pa.array(texts, pa.string())
        except UnicodeEncodeError:
            storage = pa.array([*map(self._encodable, texts)], pa.string())
        return pa.ExtensionArray.from_storage(self.type, storage)

    def _texts(self, values: Sequence[object]) -> list[str | None]:
        texts: list[str | None] = []
        for value in values:
            try:
                texts.append(None if value is None else self.text_of(value))
            except (ValueError, TypeError) as why:
                raise self.misfit(value, str(why)) from None
            except RecursionError:
                raise self.misfit(value, "it is nested too deeply") from None
        return texts

    def text_of(self, value: object) -> str | None:
        """Return the text of a value that is not None; None where it stands for none."""
        return _dumped(value)

    def _encodable(self, text: str | None) -> str | None:
        if text is None:
            return None
        try:
            return text.encode().decode()
        except UnicodeEncodeError:
            return self.escaped(text)

    def escaped(self, text: str) -> str:
        """Return a text with half of a surrogate pair as one that UTF-8 can express."""
        return json.dumps(json.loads(text))


class AnyTextColumn(ValueColumn):
    """Strings as they are, other scalars as their JSON text."""

    annotation = bool | int | float | str

    def _texts(self, values: Sequence[object]) -> list[str | None]:
        is_plain = json_types(values) <= {str}
        return cast("list[str | None]", values) if is_plain else super()._texts(values)

    def text_of(self, value: object) -> str | None:
        plain = value if isinstance(value, bool | int | float | str) else _known_to_json(value)
        if isinstance(plain, list | dict):
            raise TypeError("it is no scalar")
        return plain if plain is None or isinstance(plain, str) else _dumped(plain)

    def escaped(self, text: str) -> str:
        raise self.misfit(text, "it holds a lone surrogate, which UTF-8 cannot express")


def column_of_values(type_: ValueType, path: str) -> JsonColumn:
    """Return the column that reads values as `text` or `json`."""
    return (AnyTextColumn if type_ == TEXT else ValueColumn)(type_, path)


def json_texts(values: Sequence[object]) -> pa.Array:
    """Return values of any kind as JSON text, None as null.

    >>> json_texts([{"a": 1}, "b", None]).to_pylist()
    ['{"a":1}', '"b"', None]
    """
    return ValueColumn(JSON, "").build(values).storage


def plain_items(value: object) -> object:
    """Return a set, or an array of any library, as plain values; another value as it is.

    The items of a set have the same order in every process. Instants of numpy stay as they are:
    they would lose their unit, nanoseconds even their type.
    """
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return value.tolist() if hasattr(value, "tolist") and kind not in ("m", "M") else value


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_known_to_json)


def _known_to_json(value: object) -> object:
    """Return a value of a type that JSON does not have as one that it has."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return list(value)
    if (plain := plain_items(value)) is not value:
        return plain
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError("bytes that are no UTF-8 text need the type binary") from None
    if value != value:  # noqa: PLR0124 (no time, or no number)
        return None
    if type(value).__str__ is object.__str__:
        raise TypeError(f"JSON has no value for {type(value).__name__}")
    return value.isoformat() if isinstance(value, date | time) else str(value)
