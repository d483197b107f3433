"""Columns of types that JSON has no token for: instants, dates, times of day, decimals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode._columns import Column, json_types

if TYPE_CHECKING:
    from collections.abc import Sequence

_TICKS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


class MomentColumn(Column):
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


class DurationColumn(Column):
    """Durations: an integer in the type's own unit."""

    accepts = frozenset({int})

    def convert(self, values: Sequence[object]) -> pa.Array:
        """Return integers as the counts that Arrow stores."""
        return pa.array(values, self.type)


class DecimalColumn(Column):
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
