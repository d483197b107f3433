"""The column for each type of a schema that a caller asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode._assemble import LISTS, TEXTS, is_any
from penstock.decode._columns import (
    REFUSALS,
    BooleanColumn,
    FloatColumn,
    IntegerColumn,
    JsonColumn,
    Misfit,
    NullColumn,
    TextColumn,
    json_types,
)
from penstock.decode._nested_columns import (
    DictionaryColumn,
    ExtensionColumn,
    ListColumn,
    MapColumn,
    StructColumn,
)
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_TICKS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


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

    def convert(self, values: Sequence[object]) -> pa.Array:
        return pa.array(values, self.type)


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


is_ = pa.types

_LEAVES: list[tuple[Sequence[str], Callable[[pa.DataType, str], JsonColumn]]] = [
    (("null",), NullColumn),
    (("boolean",), BooleanColumn),
    (("integer",), IntegerColumn),
    (("floating",), FloatColumn),
    (("decimal",), DecimalColumn),
    (("duration",), DurationColumn),
    (("timestamp", "date", "time"), MomentColumn),
    (TEXTS, TextColumn),
]


def column_for(type_: pa.DataType, path: str) -> JsonColumn:
    """Return the column that reads JSON values as `type_`, or refuse a type that JSON cannot be."""
    column = _column(type_, path)
    try:
        # Some combinations, such as a dictionary of structs, are known to be missing only to Arrow.
        column.build([None])
    except (Misfit, *REFUSALS) as why:
        raise _unsupported(type_, path, str(getattr(why, "why", why))) from None
    return column


def _column(type_: pa.DataType, path: str) -> JsonColumn:
    if isinstance(type_, pa.BaseExtensionType):
        return ExtensionColumn(type_, path, _column(type_.storage_type, path))
    for kinds, leaf in _LEAVES:
        if is_any(type_, kinds):
            return leaf(type_, path)
    if is_any(type_, LISTS):
        return ListColumn(type_, path, _column(type_.value_type, f"{path}[]"))
    if is_.is_struct(type_):
        names = [field.name for field in type_]
        if len(set(names)) < len(names):
            raise _unsupported(type_, path, "two of its fields have the same name")
        children = [_column(field.type, f"{path}.{field.name}") for field in type_]
        return StructColumn(type_, path, children)
    if is_.is_map(type_):
        key = _column(type_.key_type, f"{path}{{}}")
        if not isinstance(key, TextColumn):
            raise _unsupported(type_, path, "the keys of a JSON object are strings")
        return MapColumn(type_, path, key, _column(type_.item_type, f"{path}{{}}"))
    if is_.is_dictionary(type_):
        return DictionaryColumn(type_, path, _column(type_.value_type, path))
    raise _unsupported(type_, path)


def _unsupported(type_: pa.DataType, path: str, why: str = "") -> OptionError:
    reason = f": {why}" if why else ""
    return OptionError(
        f"field {path!r} cannot be read from JSON as {type_}{reason}. "
        f"Give it another type in the schema, for instance string"
    )
