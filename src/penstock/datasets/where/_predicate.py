"""Which rows of some columns an expression holds for."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasets.where._expression import Comparison, IsNull, Node, Not
from penstock.datasets.where._words import point_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.datasets.where._expression import Value

is_ = pa.types

_COMPARE: dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def holds(node: Node, columns: Mapping[str, pa.Array], text: str) -> pa.BooleanArray:
    """Return where an expression is true, false or (for want of a value) null.

    `text` is what the user wrote; errors point into it.

    >>> import pyarrow as pa
    >>> from penstock.datasets.where._expression import parse
    >>> holds(parse("a > 1"), {"a": pa.array([1, 2, None])}, "a > 1").to_pylist()
    [False, True, None]
    """
    if isinstance(node, Comparison):
        array = _plain(columns[node.name])
        results = [
            _compared(node, array, value, partial(point_at, text, at))
            for value, at in zip(node.values, node.at, strict=True)
        ]
        return _together(results, is_and=False)
    if isinstance(node, IsNull):
        return columns[node.name].is_null()
    if isinstance(node, Not):
        return pc.invert(holds(node.inner, columns, text))
    return _together([holds(part, columns, text) for part in node.parts], is_and=node.all)


def _together(results: list[pa.Array], *, is_and: bool) -> pa.Array:
    combine = pc.and_kleene if is_and else pc.or_kleene
    combined, *rest = results
    for result in rest:
        combined = combine(combined, result)
    return combined


def _plain(array: pa.Array) -> pa.Array:
    if is_.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_.is_string_view(array.type):
        return array.cast(pa.string())
    return array


def _compared(
    node: Comparison, array: pa.Array, value: Value, error: Callable[[str], Exception]
) -> pa.Array:
    type_, how = array.type, "==" if node.how == "in" else node.how
    if is_.is_null(type_):
        return pa.nulls(len(array), pa.bool_())
    if is_.is_string(type_) or is_.is_large_string(type_):
        if isinstance(value, str):
            return _texts(how, array, value)
    elif how in _COMPARE:
        if is_.is_boolean(type_):
            if isinstance(value, bool) and how in ("==", "!="):
                return _COMPARE[how](array, pa.scalar(value))
        elif _is_number(type_):
            if isinstance(value, int | float) and not isinstance(value, bool):
                return _numbers(how, array, value)
        elif is_.is_temporal(type_) and isinstance(value, str):
            return _COMPARE[how](array, _moment(node, type_, value, error))
    way = {"starts": "starts with"}.get(node.how, node.how)
    raise error(f"the field {node.name!r} is {type_}: it has no {way!r} with {_word(value)}.")


def _is_number(type_: pa.DataType) -> bool:
    return bool(is_.is_integer(type_) or is_.is_floating(type_) or is_.is_decimal(type_))


def _word(value: Value) -> str:
    if isinstance(value, str):
        return f"the text {value!r}"
    return str(value).lower() if isinstance(value, bool) else f"the number {value}"


def _texts(how: str, array: pa.Array, value: str) -> pa.Array:
    if how == "contains":
        return pc.match_substring(array, value)
    if how == "starts":
        return pc.starts_with(array, value)
    return _COMPARE[how](array, pa.scalar(value, array.type))


def _moment(
    node: Comparison, type_: pa.DataType, value: str, error: Callable[[str], Exception]
) -> pa.Scalar:
    try:
        return pa.scalar(value).cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
        raise error(
            f"the field {node.name!r} is {type_}, and {value!r} cannot be read as one: {failure}"
        ) from None


def _numbers(how: str, array: pa.Array, value: float) -> pa.Array:
    """Compare as numbers, not as the nearest number that the column's type has."""
    below: float | None
    above: float | None
    if is_.is_integer(array.type):
        below, above = _integers_around(value, array.type)
    else:
        array = array.cast(pa.float64())
        below, above = _floats_around(value)
    if below is not None and below == above:
        return _COMPARE[how](array, pa.scalar(below, array.type))
    if how in ("==", "!="):
        return _everywhere(array, how == "!=")
    # Nothing lies between the two neighbours, so "less than" and "at most" are the same.
    limit, how = (below, "<=") if how in ("<", "<=") else (above, ">=")
    if limit is None:
        return _everywhere(array, value=False)
    return _COMPARE[how](array, pa.scalar(limit, array.type))


def _everywhere(array: pa.Array, value: bool) -> pa.Array:  # noqa: FBT001 (the value itself)
    return pc.if_else(array.is_valid(), value, pa.scalar(None, pa.bool_()))


def _integers_around(value: float, type_: pa.DataType) -> tuple[int | None, int | None]:
    """Return the largest integer of a type that is at most `value`, and the smallest at least."""
    limits = np.iinfo(type_.to_pandas_dtype())
    least, most = int(limits.min), int(limits.max)
    below, above = math.floor(value), math.ceil(value)
    return (
        min(below, most) if below >= least else None,
        max(above, least) if above <= most else None,
    )


def _floats_around(value: float) -> tuple[float, float]:
    """Return the largest float that is at most `value` (also a large int), and the smallest."""
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf if value > 0 else -math.inf
    if nearest == value:
        return nearest, nearest
    if nearest < value:
        return nearest, math.nextafter(nearest, math.inf)
    return math.nextafter(nearest, -math.inf), nearest
