"""Kinds of values that a field was seen to hold, and how two kinds widen into one.

A kind says a little more than an Arrow type: whether integers have been negative, which decides
between uint64 and string when one beyond int64 arrives, and whether strings stand for mixed values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa


class Scalar(Enum):
    """Kinds without parts, each with the words for its values."""

    NULL = "nulls"
    BOOLEAN = "booleans"
    NATURAL = "integers"
    NEGATIVE = "negative integers"
    UNSIGNED = "integers beyond int64"
    WIDE = "negative integers and integers beyond int64"
    FLOAT = "floats"
    TEXT = "strings"
    MIXED = "values of several types"


@dataclass(frozen=True, slots=True)
class ListKind:
    """Lists, and the one kind that holds every item."""

    item: Kind


@dataclass(frozen=True, slots=True)
class Fields:
    """Objects, and the kind of each field in the order they were met."""

    fields: Mapping[str, Kind]


@dataclass(frozen=True, slots=True)
class Foreign:
    """An Arrow type that JSON text never gives; it widens into nothing but strings."""

    type: pa.DataType


Kind = Scalar | ListKind | Fields | Foreign

NULL, BOOLEAN, TEXT, MIXED = Scalar.NULL, Scalar.BOOLEAN, Scalar.TEXT, Scalar.MIXED
NATURAL, NEGATIVE, UNSIGNED = Scalar.NATURAL, Scalar.NEGATIVE, Scalar.UNSIGNED
WIDE, FLOAT = Scalar.WIDE, Scalar.FLOAT

_NUMBERS = (NATURAL, NEGATIVE, UNSIGNED, WIDE, FLOAT)
_INT64 = (NATURAL, NEGATIVE)
_TYPES = {
    NULL: pa.null(),
    BOOLEAN: pa.bool_(),
    NATURAL: pa.int64(),
    NEGATIVE: pa.int64(),
    UNSIGNED: pa.uint64(),
    WIDE: pa.string(),
    FLOAT: pa.float64(),
    TEXT: pa.string(),
    MIXED: pa.string(),
}

OnMixed = Callable[[str, str], object]
"""Called with the path of a field that becomes a string, and the kinds of its values."""


def describe(kind: Kind) -> str:
    """Return the words for values of a kind.

    >>> describe(ListKind(NATURAL)), describe(FLOAT)
    ('lists', 'floats')
    """
    if isinstance(kind, Scalar):
        return kind.value
    if isinstance(kind, Foreign):
        return f"{kind.type} values"
    return "lists" if isinstance(kind, ListKind) else "objects"


def arrow_type(kind: Kind) -> pa.DataType:
    """Return the Arrow type that holds values of a kind.

    >>> arrow_type(Fields({"a": ListKind(UNSIGNED)}))
    StructType(struct<a: list<item: uint64>>)
    """
    if isinstance(kind, Scalar):
        return _TYPES[kind]
    if isinstance(kind, ListKind):
        return pa.list_(arrow_type(kind.item))
    if isinstance(kind, Foreign):
        return kind.type
    return pa.struct([(name, arrow_type(inner)) for name, inner in kind.fields.items()])


def arrow_schema(record: Fields) -> pa.Schema:
    """Return the schema of records of a kind."""
    return pa.schema([(name, arrow_type(kind)) for name, kind in record.fields.items()])


def inner_path(path: str, name: str) -> str:
    """Return the path of a field inside the one at `path`; the record itself is at ""."""
    return f"{path}.{name}" if path else name


def join(old: Kind, new: Kind, path: str, on_mixed: OnMixed) -> Kind:
    """Return the kind that holds the values of both; new fields stand after the old ones."""
    if new is NULL or old == new:
        return old
    if old is NULL or new is MIXED:
        return new
    if old in _NUMBERS and new in _NUMBERS:
        return _join_numbers((old, new))
    if isinstance(old, ListKind) and isinstance(new, ListKind):
        return ListKind(join(old.item, new.item, f"{path}[]", on_mixed))
    if isinstance(old, Fields) and isinstance(new, Fields):
        return join_records(old, new, path, on_mixed)
    if old is not MIXED:
        on_mixed(path, f"{describe(old)} and {describe(new)}")
    return MIXED


def join_records(old: Fields, new: Fields, path: str, on_mixed: OnMixed) -> Fields:
    """Return the record that holds the fields of both."""
    merged = dict(old.fields)
    for name, kind in new.fields.items():
        merged[name] = join(merged.get(name, NULL), kind, inner_path(path, name), on_mixed)
    return Fields(merged)


def _join_numbers(kinds: tuple[Kind, Kind]) -> Kind:
    if FLOAT in kinds:
        return FLOAT
    if NATURAL in kinds:
        return kinds[kinds[0] is NATURAL]
    return WIDE


def settled(kind: Kind, path: str, on_mixed: OnMixed) -> Kind:
    """Return the kind to go on with after a batch: integers too wide for one type are strings now.

    Until then a float may join them and make a double of all.
    """
    if kind is WIDE:
        on_mixed(path, describe(WIDE))
        return MIXED
    if isinstance(kind, ListKind):
        return ListKind(settled(kind.item, f"{path}[]", on_mixed))
    if isinstance(kind, Fields):
        return settled_record(kind, path, on_mixed)
    return kind


def settled_record(record: Fields, path: str, on_mixed: OnMixed) -> Fields:
    """Return a record of settled fields."""
    fields = record.fields.items()
    return Fields({name: settled(kind, inner_path(path, name), on_mixed) for name, kind in fields})


def first_change(old: Kind, seen: Kind, path: str = "") -> tuple[str, Kind, Kind] | None:
    """Return the first place where values of kind `seen` ask for another schema than `old` has.

    That is its path, the kind known there (null for a new field) and the kind seen.
    """
    if isinstance(old, Fields) and isinstance(seen, Fields):
        for name, kind in seen.fields.items():
            at = inner_path(path, name)
            if name not in old.fields:
                return at, NULL, kind
            if change := first_change(old.fields[name], kind, at):
                return change
        return None
    if isinstance(old, ListKind) and isinstance(seen, ListKind):
        return first_change(old.item, seen.item, f"{path}[]")
    new = join(old, seen, path, lambda path, what: None)  # noqa: ARG005
    return None if old == new or (old in _INT64 and new in _INT64) else (path, old, seen)


def turns_into_text(seen: Kind, into: Kind) -> bool:
    """Return whether `into`, a widened `seen`, makes text of values that are not strings."""
    if isinstance(seen, Fields) and isinstance(into, Fields):
        return any(turns_into_text(kind, into.fields[name]) for name, kind in seen.fields.items())
    if isinstance(seen, ListKind) and isinstance(into, ListKind):
        return turns_into_text(seen.item, into.item)
    return into is MIXED and seen not in (MIXED, TEXT, NULL)
