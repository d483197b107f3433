"""Field types that hold everything that a profile has seen, rare exceptions aside."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock._words import counted
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
from penstock.decode import WHOLE_FLOATS

_ITEMS = "[]"
_ANY_NAME = "*"
_FEW_WORDS = 256
_TIMES_EACH = 10
"""A text is a category where there are few of them, and each comes again so often on average."""
_INTEGERS = (pa.int64(), pa.uint64())
_PLAIN: dict[str, NumberType | TextsType] = {
    "bool": NumberType(pa.bool_()),
    "float": NumberType(pa.float64()),
    "string": TextsType(pa.string()),
    "binary": TextsType(pa.binary()),
}
_BEYOND = {"int": ("beyond_int64", "beyond int64"), "string": ("beyond_utf8", "beyond UTF-8")}
"""Kinds with values that their type may not hold: what a profile calls their number, and words."""


class ProfileTypes(NamedTuple):
    """The field types of a profile, for a loader."""

    types: dict[str, str]
    """For each path a field type that holds its values, null included, and changes none."""
    left_out: dict[str, str]
    """The paths without a type, and why."""
    notes: Mapping[str, str] = MappingProxyType({})
    """What else there is to say about a type: why it is `json`, how many lists are null."""
    exceptions: Mapping[str, str] = MappingProxyType({})
    """The paths with a few values that do not fit their type: what these are, and how many."""


def profile_types(
    document: Mapping[str, Any],
    schema_types: Mapping[str, str] | None = None,
    *,
    categories: bool = False,
    rare: float = 0,
) -> ProfileTypes:
    """Return field types that hold every value that a profile has seen, and change none.

    `document` is what `profile.json` holds. Where a schema is certain, as in tables, `schema_types`
    has the types that it gives to its fields, and only null is taken from the profile. With
    `categories`, texts that come again and again are categories. Values of other kinds than the
    rest, up to the share `rare` of all, are exceptions to the type of the rest; a record without
    an exception does not fail.

    >>> from penstock.index import Profile
    >>> profile = Profile()
    >>> profile.add([{"id": 1, "tags": ["a"], "user": {"age": 41}, "x": 1}], 0)
    >>> profile.add([{"id": 2, "x": "one"}], 1)
    >>> proposal = profile_types(profile.document())
    >>> proposal.types
    {'id': 'int64', 'tags': 'list<string>', 'user.age': 'int64?', 'x': 'json'}
    >>> proposal.notes["tags"], proposal.notes["x"]
    ('1 null list is an empty one', 'x is int in record 0, and string from record 1 on')
    """
    types: dict[str, str] = {}
    left_out: dict[str, str] = {}
    notes: dict[str, str] = {}
    exceptions: dict[str, str] = {}
    has_lists = "list" in document["record_types"]
    drift = {
        finding["path"]: str(finding["text"])
        for finding in document["drift"]
        if finding["kind"] == "types"
    }
    for field in _fields(document, rare):
        path = field.path
        if field.is_inside or (has_lists and path.startswith(_ITEMS)):
            continue  # Items of a list have its path; records that are lists have none.
        if path in types or path in left_out:
            for facts in (types, notes, exceptions):
                facts.pop(path, None)
            left_out[path] = "two fields have this path, one with a dot in its name"
            continue
        known = None if schema_types is None else schema_types.get(path)
        if known is None and schema_types is not None and field.is_object:
            continue
        try:
            choice = _choose(field, known, drift, has_schema=schema_types is not None)
        except _HasNoTypeError as why:
            if str(why):
                left_out[path] = str(why)
            continue
        is_text = str(choice.type) == "string" and not choice.exceptions
        is_category = categories and is_text and field.is_category
        types[path] = str(CategoryType(pa.string()) if is_category else choice.type)
        if choice.note:
            notes[path] = choice.note
        if choice.exceptions:
            exceptions[path] = "; ".join(choice.exceptions)
    return ProfileTypes(types, left_out, notes, exceptions)


class _HasNoTypeError(Exception):
    """A field cannot be asked for; without a text there is nothing to say about it."""


class _Field:
    """A field, and what it is a part of."""

    def __init__(self, known: Mapping[str, Any], around: _Field | None, rare: float) -> None:
        self.path: str = known["path"]
        self.around = around
        self.item: _Field | None = None
        """Of lists: what stands for their items."""
        self.is_inside = around is not None and self.path == around.path + _ITEMS
        """Whether it stands for the items of a list."""
        self.nulls: int = known["nulls"] + known["missing"]
        """How often null is in its place, in a record or in the item of a list."""
        self.name = self.path
        """Its name inside the field around it."""
        self.steps: Steps = (self.path,)
        self.lists = 0
        """In how many lists, one in another, its values stand."""
        self.odd_part: _Field | None = None
        """A field around it that is not always an object or a list, so that it cannot be read."""
        self.exceptions: tuple[str, ...] = ()
        """Its rare values that are of no kind in `kinds`, and those of the fields around it."""
        if around is not None:
            self.name = self.path.removeprefix(around.path).removeprefix(".")
            self.steps = (*around.steps, LIST if self.is_inside else self.name)
            self.lists = around.lists + self.is_inside
            is_odd = around.kinds != {"list" if self.is_inside else "object"}
            self.odd_part = around if is_odd else around.odd_part
            self.exceptions = around.exceptions
            if self.is_inside:
                around.item = self
            else:
                self.nulls += around.nulls
        distinct = known.get("distinct", 0)
        is_few = known.get("distinct_is_exact") and 0 < distinct <= _FEW_WORDS
        self.is_category = bool(is_few) and distinct * _TIMES_EACH <= known["count"]
        self.kinds: frozenset[str] = frozenset(known["types"]) - {"null"}
        """What its values are, rare ones aside; `float` also stands for integers among floats."""
        self.is_mixed = False
        """Whether it holds integers and floats that float64 holds exactly, and nothing else."""
        self.why_no_type = ""
        """Why only `json` holds all values; empty where another type does."""
        self._look_at({kind: known["types"][kind] for kind in self.kinds}, rare)

    def _look_at(self, facts: Mapping[str, Mapping[str, Any]], share: float) -> None:
        """Decide what its values are, given the facts of each kind; `share` of them are rare."""
        self.has_nans = bool(facts.get("float", {}).get("nan"))
        ints = facts.get("int", {})
        self.ends = ints.get("min"), ints.get("max")
        """The smallest and the largest integer; None where that is unknown."""
        counts = {kind: int(stats["count"]) for kind, stats in facts.items()}
        total = sum(counts.values())
        if counts.keys() >= {"int", "float"} and self._is_within(-WHOLE_FLOATS, WHOLE_FLOATS):
            counts["float"] += counts.pop("int")
            self.is_mixed = len(counts) == 1
        most = max(counts, key=counts.__getitem__, default="")
        if total - counts.get(most, 0) <= share * total:
            rare = counts.keys() - {most}
            self.exceptions += tuple(
                f"{self.path} is {kind} in {_span(facts[kind])} "
                f"({counts[kind]:,} of {counted(total, 'value')})"
                for kind in sorted(rare)
            )
            counts = {kind: counts[kind] for kind in counts.keys() - rare}
        self.kinds = frozenset(counts)
        if len(counts) > 1:
            self.why_no_type = f"it holds {' and '.join(sorted(counts))}"
        elif most in _BEYOND and not (most == "int" and self.integer_type):
            name, words = _BEYOND[most]
            beyond = facts[most].get(name, 0 if most == "string" else total)
            where = f"in {beyond:,} of {counted(total, 'value')}"
            if beyond > share * total:
                self.why_no_type = f"{self.path} is {words} {where}"
            elif beyond:
                self.exceptions += (f"{self.path} is {words} {where}",)

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
    def levels(self) -> list[_Field]:
        """The lists that it stands in, the outermost first, and itself."""
        levels, field = [self], self
        while field.around is not None:
            if field.is_inside:
                levels.append(field.around)
            field = field.around
        return levels[::-1]

    @property
    def integer_type(self) -> pa.DataType | None:
        """The type that holds all its integers."""
        bounds = ((type_, np.iinfo(str(type_))) for type_ in _INTEGERS)
        return next((type_ for type_, info in bounds if self._is_within(info.min, info.max)), None)

    def _is_within(self, low: int, high: int) -> bool:
        return all(isinstance(end, int) and low <= end <= high for end in self.ends)


def _span(facts: Mapping[str, Any]) -> str:
    first, last = facts["first"], facts["last"]
    return f"record {first:,}" if first == last else f"records {first:,} to {last:,}"


def _fields(document: Mapping[str, Any], rare: float) -> list[_Field]:
    """Return all fields; each knows what it is a part of, which comes before it."""
    above: list[_Field] = []
    fields = []
    for known in document["fields"]:
        path = known["path"]
        while above and not path.startswith((f"{above[-1].path}.", f"{above[-1].path}{_ITEMS}")):
            above.pop()
        above.append(_Field(known, above[-1] if above else None, rare))
        fields.append(above[-1])
    return fields


class _Choice(NamedTuple):
    """The type of a field, and what there is to say about it."""

    type: FieldType
    note: str
    exceptions: tuple[str, ...]


def _choose(
    field: _Field, known: str | None, drift: Mapping[str, str], *, has_schema: bool
) -> _Choice:
    """Return the type of a field, which a schema may know."""
    type_: FieldType
    if known is None:
        values = _checked(field, has_schema=has_schema)
        if values.why_no_type:
            return _as_json(field, drift.get(values.path, values.why_no_type))
        type_ = _in_lists(_plain(values), values.lists)
    else:
        values, type_ = field.innermost or field, parsed(known)
    inner: FieldType = type_
    exceptions = values.exceptions
    empty = lost = 0
    for at, level in enumerate(values.levels):
        if isinstance(inner, ListOf):
            empty += level.nulls
        elif at == 0 and level.nulls and not _takes_null(inner, level):
            type_ = Optional(inner) if isinstance(inner, NumberType | Dense) else inner
        elif not _takes_null(inner, level):
            lost += level.nulls
        inner = inner.item if isinstance(inner, ListOf | Dense) else inner
    if lost:
        why = f"{lost:,} of the items of {field.path} {'is' if lost == 1 else 'are'} null"
        if isinstance(inner, NumberType) and not pa.types.is_temporal(inner.arrow):
            return _as_json(field, why)
        exceptions += (why,)
    return _Choice(type_, _about_lists(empty), exceptions)


def _checked(field: _Field, *, has_schema: bool) -> _Field:
    """Return the innermost items of a field whose values can have a type."""
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
    if has_schema and not innermost.is_mixed:
        raise _HasNoTypeError(f"no tensor stands for {' and '.join(sorted(kinds))}")
    return innermost


def _plain(values: _Field) -> NumberType | TextsType:
    (kind,) = values.kinds
    if kind == "int":
        return NumberType(values.integer_type or pa.int64())
    if kind not in _PLAIN:
        raise _HasNoTypeError(f"of {kind} only a schema knows the type")
    return _PLAIN[kind]


def _in_lists(item: NumberType | TextsType | Json, levels: int) -> FieldType:
    type_: NumberType | TextsType | Json | ListOf = item
    for _ in range(levels):
        type_ = ListOf(type_)
    return type_


def _takes_null(type_: FieldType, level: _Field) -> bool:
    """Whether null has a place of its own among the values of a level."""
    if isinstance(type_, NumberType):  # Null is NaN, which may be a value as well.
        return pa.types.is_floating(type_.arrow) and not level.has_nans
    return not isinstance(type_, Dense)


def _as_json(field: _Field, why: str) -> _Choice:
    """Return the choice of Python values, which holds everything below the field."""
    outside = field.levels[:-1]
    note = "; ".join(filter(None, (why, _about_lists(sum(level.nulls for level in outside)))))
    type_ = _in_lists(Json(), len(outside))
    return _Choice(type_, note, () if field.around is None else field.around.exceptions)


def _about_lists(empty: int) -> str:
    if not empty:
        return ""
    return f"{counted(empty, 'null list', ('is an empty one', 'are empty ones'))}"
