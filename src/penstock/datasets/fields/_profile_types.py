"""Field types that hold everything that a profile has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.datasets.fields._grammar import parsed
from penstock.datasets.fields._paths import LIST, Steps, steps_of
from penstock.datasets.fields._tensor_types import (
    CategoryType,
    Dense,
    FieldType,
    Json,
    ListOf,
    NumberType,
    Optional,
    TextsType,
)
from penstock.decode import TEXT

_ITEMS = "[]"
_ANY_NAME = "*"
_FEW_WORDS = 256
_TIMES_EACH = 10
"""A text is a category where there are few of them, and each comes again so often on average."""
_OF_TEXT = {"bool", "int", "float", "string"}
_INTEGERS = (pa.int64(), pa.uint64())
_PLAIN: dict[str, NumberType | TextsType] = {
    "bool": NumberType(pa.bool_()),
    "float": NumberType(pa.float64()),
    "string": TextsType(pa.string()),
    "binary": TextsType(pa.binary()),
}


class ProfileTypes(NamedTuple):
    """The field types of a profile, for a loader."""

    types: dict[str, str]
    """For each path a field type that holds all its values, null included."""
    left_out: dict[str, str]
    """The paths without a type, and why."""
    mixed: Mapping[str, str] = MappingProxyType({})
    """The paths of type `text` or `json`, and why no other type holds all their values."""


def profile_types(
    document: Mapping[str, Any],
    schema_types: Mapping[str, str] | None = None,
    *,
    categories: bool = False,
) -> ProfileTypes:
    """Return field types that hold every value that a profile has seen.

    Only a text with a lone surrogate fails all the same: UTF-8, and so Arrow, cannot express it.
    `document` is what `profile.json` holds. Where a schema is certain, as in tables,
    `schema_types` has the types that it gives to its fields, and only null is taken from the
    profile. With `categories`, texts that come again and again are categories.

    >>> from penstock.index import Profile
    >>> profile = Profile()
    >>> profile.add([{"id": 1, "tags": ["a"], "user": {"age": 41}, "x": 1}], 0)
    >>> profile.add([{"id": 2, "x": "one"}], 1)
    >>> found = profile_types(profile.document())
    >>> found.types
    {'id': 'int64', 'tags': 'list<string>', 'user.age': 'int64?', 'x': 'text'}
    >>> found.mixed
    {'x': 'x is int in record 0, and string from record 1 on'}
    """
    types: dict[str, str] = {}
    left_out: dict[str, str] = {}
    mixed: dict[str, str] = {}
    has_lists = "list" in document["record_types"]
    drift = {found["path"]: str(found["text"]) for found in document["drift"]}
    for field in _fields(document):
        if field.is_inside or (has_lists and field.path.startswith(_ITEMS)):
            continue  # Items of a list have its path; records that are lists have none.
        if field.path in types or field.path in left_out:
            types.pop(field.path, None)
            mixed.pop(field.path, None)
            left_out[field.path] = "two fields have this path, one with a dot in its name"
            continue
        try:
            known = None if schema_types is None else schema_types.get(field.path)
            if known is not None:
                types[field.path] = str(_with_null(parsed(known), field))
            elif schema_types is None or not field.is_object:
                innermost = _checked(field, has_schema=schema_types is not None)
                types[field.path] = str(_with_null(_wrapped(innermost), field))
                if why_mixed := innermost.why_mixed:
                    mixed[field.path] = drift.get(innermost.path, why_mixed)
            if categories and field.is_category and types.get(field.path) == "string":
                types[field.path] = str(CategoryType(pa.string()))
        except _HasNoTypeError as why:
            if str(why):
                left_out[field.path] = str(why)
    return ProfileTypes(types, left_out, mixed)


class _HasNoTypeError(Exception):
    """A field cannot be asked for; without a text there is nothing to say about it."""


class _Field:
    """A field, and what it is a part of."""

    def __init__(self, known: Mapping[str, Any], around: _Field | None) -> None:
        self.path: str = known["path"]
        self.around = around
        self.item: _Field | None = None
        """Of lists: what stands for their items."""
        self.kinds = frozenset(known["types"]) - {"null"}
        self.is_inside = around is not None and self.path == around.path + _ITEMS
        """Whether it stands for the items of a list."""
        distinct = known.get("distinct", 0)
        is_few = known.get("distinct_is_exact") and 0 < distinct <= _FEW_WORDS
        self.is_category = bool(is_few) and distinct * _TIMES_EACH <= known["count"]
        integers = known["types"].get("int", {})
        self.integers = integers.get("min"), integers.get("max")
        """The smallest and the largest integer; None where that is unknown."""
        self.may_be_null = bool(known["nulls"] or known["missing"])
        """Whether there is null in its place, in a record or in the item of a list."""
        self.name = self.path
        """Its name inside the field around it."""
        self.steps: Steps = (self.path,)
        self.lists = 0
        """In how many lists, one in another, its values stand."""
        self.odd_part: _Field | None = None
        """A field around it that is not always an object or a list, so that it cannot be read."""
        if around is not None:
            self.name = self.path.removeprefix(around.path).removeprefix(".")
            self.steps = (*around.steps, LIST if self.is_inside else self.name)
            self.lists = around.lists + self.is_inside
            is_odd = around.kinds not in ({"object"}, {"list"})
            self.odd_part = around if is_odd else around.odd_part
            if self.is_inside:
                around.item = self
            else:
                self.may_be_null |= around.may_be_null

    @property
    def innermost(self) -> _Field | None:
        """The items of lists of lists; None where there are none, because all are empty."""
        field: _Field | None = self
        while field is not None and field.kinds == {"list"}:
            field = field.item
        return field

    @property
    def is_object(self) -> bool:
        """Whether it is nothing but objects, whose fields have paths of their own."""
        return self.innermost is not None and self.innermost.kinds == {"object"}

    @property
    def why_mixed(self) -> str:
        """Why only `text` or `json` holds all values; empty where another type does."""
        if len(self.kinds) > 1 and self.kinds != {"int", "float"}:
            return f"it holds {' and '.join(sorted(self.kinds))}"
        is_wide = self.kinds == {"int"} and not any(map(self.fits, _INTEGERS))
        return "some of its integers fit neither int64 nor uint64" if is_wide else ""

    def fits(self, integer: pa.DataType) -> bool:
        """Whether a type holds its integers."""
        limits = np.iinfo(str(integer))
        return all(
            isinstance(end, int) and limits.min <= end <= limits.max for end in self.integers
        )


def _fields(document: Mapping[str, Any]) -> list[_Field]:
    """Return all fields; each knows what it is a part of, which comes before it."""
    above: list[_Field] = []
    fields = []
    for known in document["fields"]:
        path = known["path"]
        while above and not path.startswith((f"{above[-1].path}.", f"{above[-1].path}{_ITEMS}")):
            above.pop()
        above.append(_Field(known, above[-1] if above else None))
        fields.append(above[-1])
    return fields


def _checked(field: _Field, *, has_schema: bool) -> _Field:
    """Return the innermost items of a field whose values can have one type."""
    innermost = field.innermost
    if innermost is None:
        raise _HasNoTypeError("all its lists are empty")
    if _ANY_NAME in field.path.split("."):
        is_first = field.name == _ANY_NAME
        raise _HasNoTypeError("its names are too many to be fields" if is_first else "")
    # At the top a name may look like a path.
    if field.around is not None and steps_of(field.path) != field.steps:
        raise _HasNoTypeError("a name in it looks like a path, or is empty")
    if (odd := field.odd_part) is not None:
        raise _HasNoTypeError(f"{odd.path} is not always an object")
    kinds = innermost.kinds
    if not kinds:
        raise _HasNoTypeError("it is null everywhere")
    if kinds == {"object"}:
        raise _HasNoTypeError
    if has_schema:
        raise _HasNoTypeError(f"no tensor stands for {' and '.join(sorted(kinds))}")
    return innermost


def _wrapped(innermost: _Field) -> FieldType:
    """Return the type of a field with these items, of one kind, as if there was no null."""
    type_: NumberType | TextsType | Json | ListOf = _plain(innermost)
    for _ in range(innermost.lists):
        type_ = ListOf(type_)
    return type_


def _plain(field: _Field) -> NumberType | TextsType | Json:
    if field.why_mixed:
        return TextsType(TEXT) if field.kinds <= _OF_TEXT else Json()
    kind = "float" if len(field.kinds) > 1 else min(field.kinds)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind != "int":
        raise _HasNoTypeError(f"of {kind} only a schema knows the type")
    return NumberType(next(filter(field.fits, _INTEGERS)))


def _with_null(type_: FieldType, field: _Field) -> FieldType:
    """Return a type that takes null, where there is some."""
    if isinstance(type_, ListOf):
        innermost = field.innermost or field
        # A list that is null is empty; only what stands in the innermost one may be null.
        return _with_default(type_, innermost.integers[0]) if innermost.may_be_null else type_
    is_float = isinstance(type_, NumberType) and pa.types.is_floating(type_.arrow)  # Null is NaN.
    if isinstance(type_, NumberType | Dense) and field.may_be_null and not is_float:
        return Optional(type_)
    return type_


def _with_default(type_: ListOf, lowest: object) -> ListOf:
    """Return lists in which something stands for null: there is no mask inside of them."""
    item = type_.item
    if isinstance(item, ListOf):
        return ListOf(_with_default(item, lowest))
    if not isinstance(item, NumberType) or pa.types.is_floating(item.arrow):
        return type_
    if pa.types.is_boolean(item.arrow):
        return ListOf(replace(item, default=False))
    limits = np.iinfo(item.dtype)
    if limits.min == 0:
        return ListOf(replace(item, default=int(limits.max)))
    is_free = pa.types.is_integer(item.arrow) and not (isinstance(lowest, int) and lowest < 0)
    return ListOf(replace(item, default=-1 if is_free else int(limits.min)))
