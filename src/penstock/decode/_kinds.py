"""Kinds of values that a field was seen to hold, and how two kinds widen into one.

A kind says a little more than an Arrow type: whether integers have been negative, which decides
between uint64 and string when one beyond int64 arrives, and whether strings stand for mixed values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode._assemble import STRINGS, is_any
from penstock.decode._columns import WHOLE_FLOATS, json_types
from penstock.decode._numbers import JSON_NUMBERS, NumbersType, floats_equal

if TYPE_CHECKING:
    from penstock.decode._records import Record


class Scalar(Enum):
    """Kinds without parts, each with the words for its values and the type that holds them."""

    NULL = "nulls", pa.null()
    BOOLEAN = "booleans", pa.bool_()
    NATURAL = "integers", pa.int64()
    NEGATIVE = "negative integers", pa.int64()
    UNSIGNED = "integers beyond int64", pa.uint64()
    WIDE = "negative integers and integers beyond int64", pa.string()
    # The same, with some that no float equals.
    INEXACT_NATURAL = "integers", pa.int64(), "inexact"
    INEXACT_NEGATIVE = "negative integers", pa.int64(), "inexact"
    INEXACT_UNSIGNED = "integers beyond int64", pa.uint64(), "inexact"
    INEXACT_WIDE = "negative integers and integers beyond int64", pa.string(), "inexact"
    FLOAT = "floats", pa.float64()
    NUMBERS = "floats and integers that no float equals", JSON_NUMBERS
    TEXT = "strings", pa.string()

    def __init__(self, words: str, type_: pa.DataType, _: str = "") -> None:
        self.words, self.type = words, type_


@dataclass(frozen=True, slots=True)
class ListKind:
    """Lists, and the one kind that holds every item."""

    item: Kind
    words: ClassVar[str] = "lists"

    @property
    def type(self) -> pa.DataType:
        return pa.list_(self.item.type)


@dataclass(frozen=True, slots=True)
class Fields:
    """Objects, and the kind of each field in the order they were met."""

    fields: Mapping[str, Kind]
    words: ClassVar[str] = "objects"

    @property
    def type(self) -> pa.DataType:
        return pa.struct(self.schema)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, kind.type) for name, kind in self.fields.items()])


@dataclass(frozen=True, slots=True)
class Foreign:
    """An Arrow type that JSON text never gives; it widens into nothing but strings."""

    type: pa.DataType

    @property
    def words(self) -> str:
        return f"{self.type} values"


@dataclass(frozen=True, slots=True)
class Mixed:
    """Values of several types, which become strings."""

    what: str = field(compare=False)
    """The words for the values."""
    type: ClassVar[pa.DataType] = pa.string()
    words: ClassVar[str] = "values of several types"


Kind = Scalar | ListKind | Fields | Foreign | Mixed

_INTEGERS = {
    Scalar.NATURAL: (False, False, False),
    Scalar.NEGATIVE: (True, False, False),
    Scalar.UNSIGNED: (False, True, False),
    Scalar.WIDE: (True, True, False),
    Scalar.INEXACT_NATURAL: (False, False, True),
    Scalar.INEXACT_NEGATIVE: (True, False, True),
    Scalar.INEXACT_UNSIGNED: (False, True, True),
    Scalar.INEXACT_WIDE: (True, True, True),
}
"""Whether some are negative, some beyond int64, and some such that no float equals them."""
_KIND_OF_INTEGERS = {facts: kind for kind, facts in _INTEGERS.items()}
_WIDE = (Scalar.WIDE, Scalar.INEXACT_WIDE)
_NUMBERS = (*_INTEGERS, Scalar.FLOAT, Scalar.NUMBERS)
_INT64 = [kind for kind in _INTEGERS if kind.type == pa.int64()]

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

DEEPEST = 64
"""Levels of nesting that a column may have; Arrow's readers of its own files stop there too."""

_SCALARS: dict[type, Scalar] = {bool: Scalar.BOOLEAN, float: Scalar.FLOAT, str: Scalar.TEXT}

_KINDS = (
    (("null",), Scalar.NULL),
    (("boolean",), Scalar.BOOLEAN),
    (("floating",), Scalar.FLOAT),
    (STRINGS, Scalar.TEXT),
)


def inner_path(path: str, name: str) -> str:
    """Return the path of a field inside the one at `path`; the record itself is at ""."""
    return f"{path}.{name}" if path else name


def mixed_fields(kind: Kind, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each field that becomes a string, and the words for its values."""
    if isinstance(kind, Mixed):
        yield path, kind.what
    elif isinstance(kind, ListKind):
        yield from mixed_fields(kind.item, f"{path}[]")
    elif isinstance(kind, Fields):
        for name, inner in kind.fields.items():
            yield from mixed_fields(inner, inner_path(path, name))


def join(old: Kind, new: Kind) -> Kind:
    """Return the kind that holds the values of both; new fields stand after the old ones."""
    if new is Scalar.NULL or old == new or isinstance(old, Mixed):
        return old
    if old is Scalar.NULL or isinstance(new, Mixed):
        return new
    if old in _NUMBERS and new in _NUMBERS:
        return _join_numbers((old, new))
    if isinstance(old, ListKind) and isinstance(new, ListKind):
        return ListKind(join(old.item, new.item))
    if isinstance(old, Fields) and isinstance(new, Fields):
        merged = dict(old.fields)
        for name, kind in new.fields.items():
            merged[name] = join(merged.get(name, Scalar.NULL), kind)
        return Fields(merged)
    return Mixed(f"{old.words} and {new.words}")


def _join_numbers(kinds: tuple[Kind, Kind]) -> Kind:
    facts = [_INTEGERS[kind] for kind in kinds if kind in _INTEGERS]
    negative, beyond, inexact = map(any, zip(*facts, strict=True)) if facts else (False,) * 3
    if len(facts) == len(kinds):
        return _KIND_OF_INTEGERS[negative, beyond, inexact]
    return Scalar.NUMBERS if inexact or Scalar.NUMBERS in kinds else Scalar.FLOAT


def settled(kind: Kind, *, keeps_numbers: bool = False) -> Kind:
    """Return the kind to go on with after a batch: numbers that no type holds are strings now.

    Until then a float that equals each of them may make a double of all. With `keeps_numbers`
    integers next to floats stay numbers.
    """
    if kind in _WIDE or (kind is Scalar.NUMBERS and not keeps_numbers):
        return Mixed(kind.words)
    if isinstance(kind, ListKind):
        return ListKind(settled(kind.item, keeps_numbers=keeps_numbers))
    if isinstance(kind, Fields):
        inner = kind.fields.items()
        return Fields({name: settled(i, keeps_numbers=keeps_numbers) for name, i in inner})
    return kind


def first_change(old: Kind, seen: Kind, path: str = "") -> tuple[str, Kind, Kind] | None:
    """Return the first place where values of kind `seen` ask for another schema than `old` has.

    That is its path, the kind known there (null for a new field) and the kind seen.
    """
    if isinstance(old, Fields) and isinstance(seen, Fields):
        for name, kind in seen.fields.items():
            at = inner_path(path, name)
            if name not in old.fields:
                return at, Scalar.NULL, kind
            if change := first_change(old.fields[name], kind, at):
                return change
        return None
    if isinstance(old, ListKind) and isinstance(seen, ListKind):
        return first_change(old.item, seen.item, f"{path}[]")
    new = join(old, seen)
    return None if old == new or (old in _INT64 and new in _INT64) else (path, old, seen)


def turns_into_text(seen: Kind, into: Kind) -> bool:
    """Return whether `into`, a widened `seen`, makes text of values that are not strings."""
    if isinstance(seen, Fields) and isinstance(into, Fields):
        return any(turns_into_text(kind, into.fields[name]) for name, kind in seen.fields.items())
    if isinstance(seen, ListKind) and isinstance(into, ListKind):
        return turns_into_text(seen.item, into.item)
    is_text = isinstance(seen, Mixed) or seen in (Scalar.TEXT, Scalar.NULL)
    return isinstance(into, Mixed) and not is_text


class TooDeepError(ValueError):
    """A record is nested more deeply than a column may be."""


def kind_of_records(rows: Sequence[Record], depth: int = 1) -> Fields:
    """Return the kind of some records, at some level of nesting."""
    _check_depth(depth)
    names = dict.fromkeys(chain.from_iterable(rows))
    return Fields({name: kind_of_values([row.get(name) for row in rows], depth) for name in names})


def kind_of_values(values: Sequence[object], depth: int) -> Kind:
    """Return the kind that holds all of the values, None aside."""
    types = json_types(values)
    if not types:
        return Scalar.NULL
    present = [value for value in values if value is not None]
    if types <= {int, float}:
        return _kind_of_numbers(present, types)
    if len(types) > 1:
        return Mixed(" and ".join(sorted({_word(type_) for type_ in types})))
    if types == {dict}:
        return kind_of_records(cast("list[Record]", present), depth + 1)
    if types == {list}:
        _check_depth(depth + 1)
        items = list(chain.from_iterable(cast("list[list[object]]", present)))
        return ListKind(kind_of_values(items, depth + 1))
    return _SCALARS[types.pop()]


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise TooDeepError(f"it is nested more than {DEEPEST} levels deep, deeper than Arrow reads")


def _kind_of_numbers(values: Sequence[object], types: set[type]) -> Kind:
    integers = cast("list[int]", [value for value in values if isinstance(value, int)])
    least, most = min(integers, default=0), max(integers, default=0)
    if least < INT64_MIN or most > UINT64_MAX:
        return Mixed("integers beyond 64 bits")
    inexact = max(most, -least) > WHOLE_FLOATS and any(float(one) != one for one in integers)
    if float in types:
        return Scalar.NUMBERS if inexact else Scalar.FLOAT
    return _KIND_OF_INTEGERS[least < 0, most > INT64_MAX, inexact]


def _word(type_: type) -> str:
    words = {int: Scalar.NATURAL.words, list: ListKind.words, dict: Fields.words}
    return words.get(type_) or _SCALARS[type_].words


def kind_of_array(
    array: pa.Array, *, read_as_text: bool = False, of_any_value: bool = False
) -> Kind:
    """Return the kind that an array's type stands for; of integers also sign and size count.

    With `read_as_text` strings that are all null may be of any kind. With `of_any_value` integers
    stand for all of their type, however large these are.
    """
    how = {"read_as_text": read_as_text, "of_any_value": of_any_value}
    type_ = array.type
    for types, kind in _KINDS:
        if is_any(type_, types):
            is_text = kind is Scalar.TEXT and read_as_text
            return Scalar.NULL if is_text and array.null_count == len(array) else kind
    if pa.types.is_integer(type_):
        if of_any_value:
            return _KIND_OF_INTEGERS[False, pa.types.is_uint64(type_), type_.bit_width == 64]  # noqa: PLR2004
        return _kind_of_integers(array)
    if isinstance(type_, NumbersType) and all(not is_any(t, ["decimal"]) for t, _ in type_.parts):
        return Scalar.NUMBERS
    if is_any(type_, ("list", "large_list", "fixed_size_list")):
        return ListKind(kind_of_array(array.flatten(), **how))
    if pa.types.is_struct(type_):
        # `flatten` hides the values under a null struct, `field` would show them.
        parts = zip(type_, array.flatten(), strict=True)
        return Fields({one.name: kind_of_array(part, **how) for one, part in parts})
    return Foreign(type_)


def _kind_of_integers(array: pa.Array) -> Kind:
    beyond = pa.types.is_uint64(array.type)
    least, most = (value or 0 for value in pc.min_max(array).as_py().values())
    inexact = max(most, -least) > WHOLE_FLOATS and not floats_equal(array)
    return _KIND_OF_INTEGERS[least < 0, beyond, inexact]
