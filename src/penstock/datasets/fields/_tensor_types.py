"""The field types that `_grammar` reads, as values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.decode import JSON

is_ = pa.types

_NAMES = {
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "date32[day]": "date32",
    "date64[ms]": "date64",
}
"""What users call types that Arrow calls otherwise."""


@cache  # Asked for by each loader, for each of its columns.
def type_text(type_: pa.DataType) -> str:
    """Return a type as a user writes it, or as Arrow does.

    >>> type_text(pa.list_(pa.float32())), type_text(pa.list_(pa.float32(), 3))
    ('list<float32>', 'float32[3]')
    >>> type_text(pa.decimal128(5))
    'decimal128(5, 0)'
    """
    if is_.is_fixed_size_list(type_):
        return f"{type_text(type_.value_type)}[{type_.list_size}]"
    if is_.is_list(type_) or is_.is_large_list(type_):
        return f"{'large_' * is_.is_large_list(type_)}list<{type_text(type_.value_type)}>"
    return _NAMES.get(str(type_), str(type_))


@dataclass(frozen=True, slots=True)
class NumberType:
    """A number, boolean or instant for each row: a tensor."""

    arrow: pa.DataType
    default: float | None = None
    """The value for null; without it null is NaN in a float and an error elsewhere."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values; instants and durations are integers in their own unit."""
        return _dtype(self.arrow)

    @property
    def name(self) -> str:
        """The name of the type, without the default."""
        return type_text(self.arrow).replace("tz=", "")

    def __str__(self) -> str:
        return self.name + default_text(self)


@cache  # Asked for with every batch.
def _dtype(arrow: pa.DataType) -> np.dtype[Any]:
    if is_.is_temporal(arrow):
        return np.dtype(f"int{arrow.bit_width}")
    return np.dtype(NumberType(arrow).name)


@dataclass(frozen=True, slots=True)
class TextsType:
    """A text, or bytes, for each row: a list; of the Arrow type `TEXT` also of other scalars."""

    arrow: pa.DataType
    default: str | bytes | None = None

    def __str__(self) -> str:
        if self.default is None:
            return str(self.arrow)
        text = self.default if isinstance(self.default, str) else self.default.decode()
        return f"{self.arrow} = {json.dumps(text, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Json:
    """A value of any kind for each row: a list of Python objects."""

    arrow: pa.DataType = JSON

    def __str__(self) -> str:
        return "json"


@dataclass(frozen=True, slots=True)
class CategoryType:
    """A value as a code: `Categories`."""

    arrow: pa.DataType
    """The type of the values, before they become codes."""

    def __str__(self) -> str:
        return "category"


@dataclass(frozen=True, slots=True)
class Dense:
    """Exactly so many values for each row: a tensor with one axis more."""

    item: NumberType | Dense
    size: int

    @property
    def arrow(self) -> pa.DataType:
        """Lists of that size, which reading checks."""
        return pa.list_(self.item.arrow, self.size)

    @property
    def name(self) -> str:
        return f"{self.item.name}[{self.size}]"

    def __str__(self) -> str:
        return self.name + default_text(number_in(self))


@dataclass(frozen=True, slots=True)
class Optional:
    """Values and a mask of the missing ones: `Masked`.

    For other types than numbers, null has a place of its own and nothing changes. The sign says
    that the field may be missing in all records.
    """

    item: NumberType | Dense | UpTo | TextsType | Json | CategoryType | ListOf

    @property
    def arrow(self) -> pa.DataType:
        return self.item.arrow

    def __str__(self) -> str:
        return f"{self.item}?"


@dataclass(frozen=True, slots=True)
class UpTo:
    """At most so many values for each row, filled up: `Padded`."""

    item: NumberType | Dense
    size: int

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(self.item.arrow)

    def __str__(self) -> str:
        return f"{self.item.name}[:{self.size}]{default_text(number_in(self.item))}"


@dataclass(frozen=True, slots=True)
class ListOf:
    """Any number of values for each row: `Jagged`, or lists of lists of texts."""

    item: NumberType | Dense | TextsType | Json | ListOf
    is_large: bool = False
    """Whether their offsets have 64 bits in Arrow; what comes out is the same."""

    @property
    def arrow(self) -> pa.DataType:
        return (pa.large_list if self.is_large else pa.list_)(self.item.arrow)

    def __str__(self) -> str:
        return f"{'large_list' if self.is_large else 'list'}<{self.item}>"


FieldType: TypeAlias = (
    NumberType | TextsType | Json | CategoryType | Dense | Optional | UpTo | ListOf
)


def number_in(type_: NumberType | Dense) -> NumberType:
    """Return the type of the single values."""
    while isinstance(type_, Dense):
        type_ = type_.item
    return type_


def may_be_missing(type_: FieldType) -> bool:
    """Whether a type says that no record needs to have the field: by `?` or by a default.

    >>> may_be_missing(NumberType(pa.int8(), default=0)), may_be_missing(TextsType(pa.string()))
    (True, False)
    """
    if isinstance(type_, Optional):
        return True
    if isinstance(type_, UpTo | Dense):
        return number_in(type_.item).default is not None
    return isinstance(type_, NumberType | TextsType) and type_.default is not None


def default_text(number: NumberType) -> str:
    """Return the default as it is written behind a type."""
    if number.default is None:
        return ""
    return f" = {str(number.default).lower()}"
