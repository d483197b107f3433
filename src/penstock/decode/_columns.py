"""Python values into an Arrow array of one type, exactly or not at all.

Arrow's own conversion is generous (1.5 becomes 1, 1e300 an infinite float32); a column here takes
a value only when the type can hold it, and otherwise raises `Misfit`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode._bad_rows import bad_rows

WHOLE_FLOATS = 2**53
"""Below this a float that is a whole number stands for that number alone; this one may be 2**53 + 1
as well, which no double is."""

_LONGEST_VALUE = 80
_TICKS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}

# Errors of pyarrow for values that do not fit: its own, and Python's from the conversion.
REFUSALS = (pa.ArrowException, ValueError, TypeError, OverflowError)


class Misfit(Exception):  # noqa: N818 - says what a value is, not what went wrong
    """A value that a column cannot hold; `row` is known where Arrow columns are fitted."""

    def __init__(self, path: str, value: object, wanted: str, why: str = "", row: int = 0) -> None:
        super().__init__(path, value, wanted, why)
        self.path, self.value, self.wanted, self.why, self.row = path, value, wanted, why, row

    @property
    def fact(self) -> str:
        try:
            value = repr(self.value)
        except RecursionError:
            value = f"a {type(self.value).__name__}"
        if len(value) > _LONGEST_VALUE:
            value = value[: _LONGEST_VALUE - 1] + "…"
        why = f" ({self.why})" if self.why else ""
        return f"field {self.path!r} holds {value}, which does not fit {self.wanted}{why}."


def json_types(values: Sequence[object]) -> set[type]:
    """Return the types that the values have, None aside."""
    types = set(map(type, values))
    types.discard(type(None))
    return types


class JsonColumn:
    """How values of one Arrow type are made from JSON values.

    There are two ways: `build` takes what any JSON text holds and names the value that does not
    fit; `decoded` takes only what msgspec decoded as `annotation`, and is fast.
    """

    accepts: frozenset[type]
    trusted: bool = False
    """Whether `pyarrow.array` converts or refuses every value that the annotation lets through;
    `verify` finds values that the conversion changed."""

    def __init__(self, type_: pa.DataType, path: str) -> None:
        self.type = type_
        self.path = path

    @property
    def annotation(self) -> Any:  # noqa: ANN401 (a type, perhaps one made at run time)
        """The type that msgspec decodes such values with."""
        return Any

    def decoded(self, values: Sequence[object]) -> pa.Array:
        """Return what msgspec decoded as `annotation`, or None, as an array.

        Raise `Misfit` or one of `REFUSALS` if a value does not fit; which one it is, and why, only
        `build` can say.
        """
        if not self.trusted:
            return self.build(values)
        array = pa.array(values, self.type)
        self.verify(array)
        return array

    def verify(self, array: pa.Array) -> None:
        """Raise `Misfit` if an array does not hold the values it was made from by Arrow."""

    def build(self, values: Sequence[object]) -> pa.Array:
        """Return the values (None is null) as an array; raise `Misfit` if one does not fit."""
        if not json_types(values) <= self.accepts:
            stray = next(v for v in values if v is not None and type(v) not in self.accepts)
            raise self.misfit(stray)
        try:
            return self.convert(values)
        except REFUSALS as why:
            whole = why
        some = bad_rows(len(values), lambda i, j: self.convert(values[i:j]), REFUSALS, has_bad=True)
        row, reason = next(some, (0, whole))
        raise self.misfit(values[row] if values else None, str(reason)) from None

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return the array of values that are all None or of an accepted type."""
        return pa.array(values, self.type)

    def misfit(self, value: object, why: str = "") -> Misfit:
        """Return the error that names this column and the value."""
        return Misfit(self.path, value, str(self.type), why)


class NullColumn(JsonColumn):
    """Nothing but null."""

    accepts = frozenset()


class BooleanColumn(JsonColumn):
    """true and false."""

    trusted = True
    annotation = bool
    accepts = frozenset({bool})


class IntegerColumn(JsonColumn):
    """Integers within the range of the type; 2.0 is taken for 2 where floats are exact."""

    trusted = True
    annotation = int
    accepts = frozenset({int, float})

    def convert(self, values: Sequence[object]) -> pa.Array:
        if float in json_types(values):
            values = [self._whole(v) if isinstance(v, float) else v for v in values]
        return pa.array(values, self.type)

    def _whole(self, value: float) -> int:
        if not value.is_integer():
            raise ValueError("it is not a whole number")
        if abs(value) >= WHOLE_FLOATS:
            raise ValueError("a float this large may stand for a neighbouring integer")
        return int(value)


class FloatColumn(JsonColumn):
    """Floats and integers, rounded to the type's precision but never to infinity."""

    trusted = True
    annotation = float
    accepts = frozenset({int, float})

    def verify(self, array: pa.Array) -> None:
        # All were finite doubles when decoded: an infinity is one that was too large.
        if not pa.types.is_float64(self.type) and pc.is_inf(array).true_count:
            raise self.misfit(None, "one of them is beyond the range of the type")

    def convert(self, values: Sequence[object]) -> pa.Array:
        if int in json_types(values):
            values = [float(v) if isinstance(v, int) else v for v in values]
        return narrowed_floats(pa.array(values, pa.float64()), self.type)


def narrowed_floats(wide: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return doubles as the nearest floats of a type, none of which becomes infinite."""
    if pa.types.is_float64(type_):
        return wide
    narrow = wide.cast(type_, safe=False)
    if pc.sum(pc.is_inf(narrow)) != pc.sum(pc.is_inf(wide)):
        raise OverflowError("it is beyond the range of the type")
    return narrow


class TextColumn(JsonColumn):
    """Strings, also as the UTF-8 bytes of a binary type."""

    trusted = True
    annotation = str
    accepts = frozenset({str})

    def convert(self, values: Sequence[object]) -> pa.Array:
        try:
            return pa.array(values, self.type)
        except UnicodeEncodeError:
            raise ValueError("it holds a lone surrogate, which UTF-8 cannot express") from None


class MomentColumn(JsonColumn):
    """Timestamps, dates, times of day: an ISO 8601 string, or an integer in the type's own unit."""

    accepts = frozenset({str, int})

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return strings parsed by Arrow and integers as the counts that Arrow stores."""
        types = json_types(values)
        if types == {str, int}:
            texts = [v if isinstance(v, str) else None for v in values]
            counts = [v if isinstance(v, int) else None for v in values]
            return pc.coalesce(self._parsed(texts), self._counted(counts))
        return self._parsed(values) if str in types else self._counted(values)

    def _parsed(self, texts: Sequence[object]) -> pa.Array:
        strings = pa.array(texts, pa.string())
        if not pa.types.is_time(self.type):
            return strings.cast(self.type)
        # Arrow parses no times of day, but it parses instants, as strictly as needed here.
        instants = pc.binary_join_element_wise("1970-01-01T", strings, "")
        return instants.cast(pa.timestamp(self.type.unit)).cast(self.type)

    def _counted(self, counts: Sequence[object]) -> pa.Array:
        if pa.types.is_time(self.type):
            day = _TICKS_PER_DAY[self.type.unit]
            if any(isinstance(v, int) and not 0 <= v < day for v in counts):
                raise ValueError(f"a time of day is at least 0 and below {day:,} {self.type.unit}")
        if pa.types.is_date64(self.type):
            day = _TICKS_PER_DAY["ms"]
            if any(isinstance(v, int) and v % day for v in counts):
                raise ValueError(f"a date is a multiple of {day:,} ms")
        return pa.array(counts, self.type)


class DurationColumn(JsonColumn):
    """Durations: an integer in the type's own unit."""

    accepts = frozenset({int})


class DecimalColumn(JsonColumn):
    """Decimals: an integer, a string, or a float of so few digits that it is exact."""

    accepts = frozenset({str, int, float})

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return the decimals; Arrow refuses digits that precision or scale would drop."""
        if json_types(values) - {str}:
            values = [v if v is None or isinstance(v, str) else _digits(v) for v in values]
        return pa.array(values, pa.string()).cast(self.type)


def _digits(number: object) -> str:
    if not isinstance(number, float):
        return str(number)
    # A decimal text of at most 15 digits survives the way through a double; a longer one may not.
    text = f"{number:.15g}"
    if float(text) != number:
        raise ValueError("a float of more than 15 digits is not exact; write it as a string")
    return text


class JsonTextColumn(JsonColumn):
    """Values of any kind as strings: a string as it is, another value as its JSON text."""

    accepts = frozenset({bool, int, float, str, list, dict})

    def convert(self, values: Sequence[object]) -> pa.Array:
        if json_types(values) - {str}:
            values = [v if v is None or isinstance(v, str) else json_text(v) for v in values]
        return pa.array(values, self.type)


def json_text(value: object) -> str:
    """Return compact JSON for a value; what JSON does not know becomes its `str`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
