"""The records for which a condition holds, found once."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasets._arrow import read_fields, refuse_unknown
from penstock.datasets._mapped import Called
from penstock.datasets.fields._paths import type_at
from penstock.datasets.views._rule_views import Rule, RuleView
from penstock.datasets.views._views import Chosen, fingerprint_of
from penstock.datasets.where._expression import (
    LENGTH,
    Comparison,
    IsNull,
    Node,
    Not,
    names_in,
    parse,
    point_at,
)
from penstock.decode import batches_of_one_type, uuids_as_texts
from penstock.errors import OptionError

if TYPE_CHECKING:
    from penstock.datasets._source import Source
    from penstock.datasets.where._expression import Value

_VERSION = 1
"""Raised whenever the same expression would match other records."""
_ROW = "penstock row number"
ONLY_LENGTHS = "only texts and lists have a length"
is_ = pa.types

_COMPARE: dict[str, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def where(source: Source, expression: object) -> Chosen:
    """Return a view of the records for which an expression, as text or of pyarrow, holds.

    It is evaluated now; the numbers of the matching records are kept in the cache directory
    (for records in memory: in memory), where other processes find them.
    """
    condition: TextCondition | ArrowCondition
    if isinstance(expression, str):
        condition = TextCondition(expression)
    elif isinstance(expression, pc.Expression):
        condition = ArrowCondition(expression)
    elif callable(expression):
        return Called(source, expression)
    else:
        raise OptionError(
            f"where takes a text, as in where(\"age >= 18 and country in ('de', 'fr')\"), a "
            f"pyarrow.compute expression, or a function of a record, not "
            f"{type(expression).__name__}."
        )
    view = Matched(source, Search(source, condition))
    # An expression that does not fit the data is an error of this call and not of a later one.
    len(view)
    return view


class TextCondition:
    """A condition in the language of `_expression`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._node = parse(text)

    @property
    def key(self) -> str:
        """A text that is equal for equal conditions, whatever their spaces and brackets."""
        return repr(self._node)

    def names(self, source: Source) -> Sequence[str]:
        return names_in(self._node)

    def rows(self, columns: pa.RecordBatch, *, unknown: bool = False) -> np.ndarray:
        """Return the rows for which it is true, or also those for which it is `unknown`."""
        return _rows_of_parts(columns, partial(self._rows, unknown=unknown))

    def _rows(self, columns: pa.RecordBatch, *, unknown: bool) -> np.ndarray:
        named = dict(zip(columns.schema.names, columns.columns, strict=True))
        found = pc.fill_null(holds(self._node, named, self._text), unknown)
        return np.flatnonzero(found.to_numpy(zero_copy_only=False))

    def may_match(self, source: Source, length: int) -> np.ndarray | None:
        """Return the records that match as far as free fields tell; None for all of them."""
        names = names_in(self._node)
        free = [name for name in names if name in source.free_fields]
        tested = names_in(self._node, null_tests=True)
        if not free or len(free) == len(names) or not source.free_fields.issuperset(tested):
            return None
        found, start = [np.empty(0, np.int64)], 0
        for columns in read_fields(source, free, length):
            rows = columns.num_rows
            for name in names:
                if name not in free:  # A comparison with null is neither true nor false.
                    type_ = type_at(source.schema, name) or pa.null()
                    columns = columns.append_column(name, pa.nulls(rows, type_))  # noqa: PLW2901
            found.append(start + self.rows(columns, unknown=True))
            start += rows
        return np.concatenate(found)


class ArrowCondition:
    """A pyarrow compute expression over the top-level fields."""

    def __init__(self, expression: pc.Expression) -> None:
        self._expression = expression

    @property
    def key(self) -> bytes:
        """Its serialised form, because its text leaves out most of a long list of values."""
        return pickle.dumps(self._expression, protocol=5)

    def names(self, source: Source) -> Sequence[str]:
        """Return the fields whose names occur in the expression's text, or all."""
        text, names = str(self._expression), source.schema.names
        if "FieldPath" in text or "FieldRef" in text:  # By position: all must be there.
            return list(names)
        return [name for name in names if name in text] or names

    def may_match(self, source: Source, length: int) -> None:
        """Return None: any record may match."""

    def rows(self, columns: pa.RecordBatch) -> np.ndarray:
        return _rows_of_parts(columns, self._rows)

    def _rows(self, columns: pa.RecordBatch) -> np.ndarray:
        table = pa.Table.from_batches([columns])
        table = table.append_column(_ROW, pa.array(np.arange(columns.num_rows)))
        try:
            found = table.filter(self._expression)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            types = ", ".join(f"{column.name}: {column.type}" for column in columns.schema)
            problem = str(error).partition("\n")[0]
            raise OptionError(
                f"the expression {self._expression} does not fit the fields ({types}): {problem}"
            ) from None
        return np.sort(found[_ROW].to_numpy())


def _rows_of_parts(
    columns: pa.RecordBatch, rows: Callable[[pa.RecordBatch], np.ndarray]
) -> np.ndarray:
    """Return the rows that a condition finds; it sees numbers of several types one by one."""
    found = [own[rows(part)] for own, part in batches_of_one_type(columns)]
    return found[0] if len(found) == 1 else np.sort(np.concatenate([*found, np.empty(0, np.int64)]))


class Search(Rule):
    """Chooses the records for which a condition holds."""

    def __init__(self, source: Source, condition: TextCondition | ArrowCondition) -> None:
        super().__init__(source)
        self._condition = condition

    def fingerprint(self, part: int, source: str) -> str:
        return fingerprint_of("where", source, str(_VERSION), self._condition.key)

    def _search(self) -> list[np.ndarray]:
        names = self._condition.names(self.source)
        unknown = dict.fromkeys(names)
        found = [np.empty(0, np.int64)]
        start = 0
        ids = self._condition.may_match(self.source, self.length)
        source = self.source if ids is None else self.source.take(ids)
        for columns in read_fields(source, names, self.length if ids is None else len(ids)):
            for name, array in zip(names, columns.columns, strict=True):
                if array.null_count < len(array):
                    unknown.pop(name, None)
            found.append(start + self._condition.rows(columns))
            start += columns.num_rows
        if self.length:
            for name in unknown:
                refuse_unknown(self.source, name)
        rows = np.concatenate(found)
        return [rows if ids is None else ids[rows]]


class Matched(RuleView):
    """The records for which a condition holds."""


def holds(node: Node, columns: Mapping[str, pa.Array], text: str) -> pa.BooleanArray:
    """Return where an expression is true, false or (for want of a value) null.

    `text` is what the user wrote; errors point into it.
    """
    if isinstance(node, Comparison):
        array = plain(columns[node.name])
        if node.how.startswith(LENGTH):
            lengths = lengths_in(array)
            if lengths is None:
                problem = f"the field {node.name!r} is {array.type}: {ONLY_LENGTHS}."
                raise point_at(text, node.at[0], problem)
            array = lengths
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


def plain(array: pa.Array) -> pa.Array:
    array = uuids_as_texts(array)
    if is_.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_.is_string_view(array.type):
        return array.cast(pa.string())
    return array


def _compared(
    node: Comparison, array: pa.Array, value: Value, error: Callable[[str], Exception]
) -> pa.Array:
    asked = node.how.removeprefix(LENGTH)
    type_, how = array.type, "==" if asked == "in" else asked
    if is_.is_null(type_):
        return pa.nulls(len(array), pa.bool_())
    if is_.is_string(type_) or is_.is_large_string(type_):
        if isinstance(value, str):
            return _texts(how, array, value)
    elif how in _COMPARE:
        if is_.is_boolean(type_):
            if isinstance(value, bool) and how in ("==", "!="):
                return _COMPARE[how](array, pa.scalar(value))
        elif is_.is_integer(type_) or is_.is_floating(type_) or is_.is_decimal(type_):
            if isinstance(value, int | float) and not isinstance(value, bool):
                return _numbers(how, array, value)
        elif is_.is_temporal(type_) and isinstance(value, str):
            return _COMPARE[how](array, _moment(node, type_, value, error))
    way = {"starts": "starts with"}.get(node.how, node.how)
    raise error(f"the field {node.name!r} is {type_}: it has no {way!r} with {_word(value)}.")


def lengths_in(array: pa.Array) -> pa.Array | None:
    """Return how many characters or items each value has; None where the type has no length."""
    type_ = array.type
    if is_.is_null(type_):
        return array
    if is_.is_string(type_) or is_.is_large_string(type_):
        return pc.utf8_length(array)
    if is_.is_list(type_) or is_.is_large_list(type_) or is_.is_fixed_size_list(type_):
        return pc.list_value_length(array)
    return None


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
    below: float | Decimal | None
    above: float | Decimal | None
    if is_.is_integer(array.type):
        below, above = _integers_around(value, array.type)
    elif is_.is_decimal(array.type):
        below, above = _decimals_around(value, array.type)
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
    return _within(value, int(limits.min), int(limits.max))


def _decimals_around(value: float, type_: pa.DataType) -> tuple[Decimal | None, Decimal | None]:
    """Return the same of decimals; a float is meant as it is written."""
    most = 10**type_.precision - 1
    found = _within(Fraction(str(value)) * 10**type_.scale, -most, most)
    below, above = (None if one is None else Decimal(f"{one}E{-type_.scale}") for one in found)
    return below, above


def _within(value: float | Fraction, least: int, most: int) -> tuple[int | None, int | None]:
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
