"""The kinds of Python values and of Arrow arrays."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode._columns import json_types
from penstock.decode._kinds import (
    BOOLEAN,
    FLOAT,
    MIXED,
    NATURAL,
    NEGATIVE,
    NULL,
    TEXT,
    UNSIGNED,
    WIDE,
    Fields,
    Foreign,
    Kind,
    ListKind,
    Scalar,
    describe,
    inner_path,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.decode._kinds import OnMixed
    from penstock.decode._records import Record

INT64_MIN, INT64_MAX, UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

DEEPEST = 64
"""Levels of nesting that a column may have; Arrow's readers of its own files stop there too."""

_SCALARS: dict[type, Scalar] = {bool: BOOLEAN, float: FLOAT, str: TEXT}

is_ = pa.types
_KINDS: dict[int, Scalar] = {
    pa.null().id: NULL,
    pa.bool_().id: BOOLEAN,
    pa.uint64().id: UNSIGNED,
    pa.float16().id: FLOAT,
    pa.float32().id: FLOAT,
    pa.float64().id: FLOAT,
    pa.string().id: TEXT,
    pa.large_string().id: TEXT,
    pa.string_view().id: TEXT,
}


class TooDeepError(ValueError):
    """A record is nested more deeply than a column may be."""


def kind_of_records(
    rows: Sequence[Record], on_mixed: OnMixed, path: str = "", depth: int = 1
) -> Fields:
    """Return the kind of some records; `on_mixed` is called for fields of mixed values."""
    _check_depth(depth)
    names = dict.fromkeys(chain.from_iterable(rows))
    return Fields(
        {
            name: kind_of_values(
                [row.get(name) for row in rows], inner_path(path, name), on_mixed, depth
            )
            for name in names
        }
    )


def kind_of_values(values: Sequence[object], path: str, on_mixed: OnMixed, depth: int) -> Kind:
    """Return the kind that holds all of the values, None aside."""
    types = json_types(values)
    if not types:
        return NULL
    present = [value for value in values if value is not None]
    if types <= {int, float}:
        return _kind_of_numbers(present, types, path, on_mixed)
    if len(types) > 1:
        on_mixed(path, " and ".join(sorted({_word(type_) for type_ in types})))
        return MIXED
    if types == {dict}:
        return kind_of_records(cast("list[Record]", present), on_mixed, path, depth + 1)
    if types == {list}:
        _check_depth(depth + 1)
        items = list(chain.from_iterable(cast("list[list[object]]", present)))
        return ListKind(kind_of_values(items, f"{path}[]", on_mixed, depth + 1))
    return _SCALARS[types.pop()]


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise TooDeepError(f"it is nested more than {DEEPEST} levels deep, deeper than Arrow reads")


def _kind_of_numbers(
    values: Sequence[object], types: set[type], path: str, on_mixed: OnMixed
) -> Scalar:
    integers = cast("list[int]", [value for value in values if isinstance(value, int)])
    least, most = min(integers, default=0), max(integers, default=0)
    if least < INT64_MIN or most > UINT64_MAX:
        on_mixed(path, "integers beyond 64 bits")
        return MIXED
    if float in types:
        return FLOAT
    if least >= 0:
        return NATURAL if most <= INT64_MAX else UNSIGNED
    return NEGATIVE if most <= INT64_MAX else WIDE


def _word(type_: type) -> str:
    words = {int: describe(NATURAL), list: "lists", dict: "objects"}
    return words.get(type_) or describe(_SCALARS[type_])


def kind_of_batch(batch: pa.RecordBatch) -> Fields:
    """Return the kind of the records in a batch."""
    names = batch.schema.names
    return Fields({name: kind_of_array(array) for name, array in zip(names, batch, strict=True)})


def kind_of_array(array: pa.Array) -> Kind:
    """Return the kind that an array's type stands for; of integers also the sign counts."""
    type_ = array.type
    if type_.id in _KINDS:
        return _KINDS[type_.id]
    if is_.is_integer(type_):
        least = pc.min(array).as_py()
        return NEGATIVE if least is not None and least < 0 else NATURAL
    if is_.is_list(type_) or is_.is_large_list(type_) or is_.is_fixed_size_list(type_):
        return ListKind(kind_of_array(array.flatten()))
    if is_.is_struct(type_):
        # `flatten` hides the values under a null struct, `field` would show them.
        parts = zip(type_, array.flatten(), strict=True)
        return Fields({field.name: kind_of_array(part) for field, part in parts})
    return Foreign(type_)
