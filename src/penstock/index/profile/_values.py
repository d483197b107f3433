"""The values of one type at one place in records: the facts that a profile keeps of them."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Sized
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from penstock.index.profile._sketches import (
    Distinct,
    Histogram,
    hash_bytes,
    hash_floats,
    hash_ints,
    hash_texts,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values: TypeAlias = Sequence[Any]

CUT = 60
"""Letters that are shown of a text."""
_LOOKED_AT = 64
_MOST_CLASSES = 256
"""Different values that are counted, each by itself."""
_LARGEST = float(np.finfo(np.float64).max)
EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
_MIDNIGHT = dt.datetime(1, 1, 1)  # noqa: DTZ001 (a time of day alone)


class Unreadable:
    """Takes the place of a record that cannot be read."""


UNREADABLE = Unreadable()


class ValueStats(msgspec.Struct, array_like=True, eq=False):
    """Counts and bounds of the values of one type; facts that do not apply to it stay empty.

    The result depends neither on the order of the values nor on how they are parted.
    """

    count: int = 0
    first: int = 0
    """The first record that holds one."""
    last: int = 0
    """The last record that holds one."""
    low: Any = None
    """The least value: a number, the beginning of a text; of dates and times a number of units."""
    high: Any = None
    distinct: Distinct | None = None
    numbers: Histogram | None = None
    """Of numbers."""
    lengths: Histogram | None = None
    """Of texts, lists and bytes."""
    trues: int = 0
    nans: int = 0
    beyond: int = 0
    """Numbers that are infinite, integers beyond int64, texts beyond UTF-8 (with half of a
    surrogate pair); an older profile counts the first alone."""
    classes: dict[Any, int] | None = None
    """How often each integer or text is there; None for too many, and in an older profile."""

    def is_sound(self, kind: str) -> bool:
        """Whether facts that were read from a file can be those of values of a kind."""
        low, high = self.low, self.high
        counts = (self.count - 1, self.trues, self.count - self.trues, self.nans, self.beyond)
        sketches = (self.distinct, self.numbers, self.lengths)
        try:
            for value in [low, high, *(self.distinct.examples if self.distinct else ())]:
                if value is not None:
                    shown(kind, value)
        except OverflowError:  # A date or a time that is none.
            return False
        return (
            0 <= self.first <= self.last
            and min(counts) >= 0
            and (low is high is None or (None not in (low, high) and bool(low <= high)))
            and all(one is None or one.is_sound for one in sketches)
        )

    def merge(self, other: ValueStats, shift: int) -> None:
        """Add the facts of other records, whose numbers are `shift` higher here."""
        self.add_classes(other.classes)
        self.add_count(other.count, other.first + shift, other.last + shift)
        self.add_bounds(other.low, other.high)
        self.trues += other.trues
        self.nans += other.nans
        self.beyond += other.beyond
        for sketch in ("distinct", "numbers", "lengths"):
            if (theirs := getattr(other, sketch)) is not None:
                mine = getattr(self, sketch) or type(theirs)()
                mine.merge(theirs)
                setattr(self, sketch, mine)

    def add_count(self, count: int, first: int, last: int) -> None:
        self.first = min(self.first, first) if self.count else first
        self.last = max(self.last, last) if self.count else last
        self.count += count

    def add_classes(self, counts: Mapping[Any, int] | None) -> None:
        """Add how often values are there, before they are counted."""
        known = self.classes if self.count else {}
        both = None if known is None or counts is None else Counter(known) + Counter(counts)
        self.classes = None if both is None or len(both) > _MOST_CLASSES else both

    def add_bounds(self, low: Any, high: Any) -> None:  # noqa: ANN401 (any ordered type)
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    def add_hashes(self, hashes: NDArray[np.uint64], value_at: Callable[[int], object]) -> None:
        self.distinct = self.distinct or Distinct()
        self.distinct.add(hashes, value_at)

    def add_numbers(self, numbers: NDArray[np.float64]) -> None:
        self.numbers = self.numbers or Histogram()
        self.numbers.add(numbers)

    def add_lengths(self, values: Sequence[Sized]) -> None:
        self.lengths = self.lengths or Histogram()
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self.lengths.add(lengths.astype(np.float64))


@lru_cache(1024)
def kind_of(type_: type) -> str:
    """Return the name of the kind of a Python type.

    >>> kind_of(int), kind_of(bool), kind_of(dt.datetime), kind_of(complex)
    ('int', 'bool', 'timestamp', 'complex')
    """
    if type_ is Unreadable:
        return "unreadable"
    kinds = (kind for kind, (types, _) in _KINDS.items() if issubclass(type_, types))
    return next(kinds, type_.__name__)


def add_values(stats: ValueStats, kind: str, values: Values, where: NDArray[np.int64]) -> None:
    """Add values of one kind, and the numbers of the records that hold them."""
    may_be_few = stats.classes is not None or not stats.count
    stats.add_classes(_classes(kind, values) if may_be_few else None)
    stats.add_count(len(values), int(where.min()), int(where.max()))
    look = _KINDS[kind][1] if kind in _KINDS else None
    if look is not None:
        look(stats, values)


def _classes(kind: str, values: Values) -> dict[Any, int] | None:
    """Return how often each integer or short text is there; None for other values."""
    if kind == "int":
        return {int(value): count for value, count in Counter(values).items()}
    return Counter(values) if kind == "string" and max(map(len, values)) <= CUT else None


def _bools(stats: ValueStats, values: Values) -> None:
    stats.trues += int(sum(values))


def _ints(stats: ValueStats, values: Values) -> None:
    try:
        ints = np.fromiter(values, np.int64, len(values))
    except OverflowError:
        small = [value for value in values if -(1 << 63) <= value < 1 << 63]
        _wide_ints(stats, [value for value in values if not -(1 << 63) <= value < 1 << 63])
        if not small:
            return
        ints = np.array(small, np.int64)
    stats.add_bounds(int(ints.min()), int(ints.max()))
    stats.add_hashes(hash_ints(ints), lambda at: int(ints[at]))
    stats.add_numbers(ints.astype(np.float64))


def _wide_ints(stats: ValueStats, values: list[int]) -> None:
    stats.beyond += len(values)
    stats.add_bounds(min(values), max(values))
    texts = [value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True) for value in values]
    stats.add_hashes(hash_bytes(texts), values.__getitem__)
    stats.add_numbers(np.array([_as_float(value) for value in values]))


def _as_float(value: int | Decimal) -> float:
    try:
        return max(-_LARGEST, min(_LARGEST, float(value)))
    except OverflowError:
        return _LARGEST if value > 0 else -_LARGEST


def _floats(stats: ValueStats, values: Values) -> None:
    floats = np.fromiter(values, np.float64, len(values)) + 0.0  # Without -0.0.
    stats.add_hashes(hash_floats(floats), lambda at: float(floats[at]))
    is_finite = np.isfinite(floats)
    finite = floats
    if not is_finite.all():
        nans = int(np.isnan(floats).sum())
        finite = floats[is_finite]
        stats.nans += nans
        stats.beyond += len(floats) - len(finite) - nans
    if len(finite):
        stats.add_bounds(float(finite.min()), float(finite.max()))
        stats.add_numbers(finite)


def _decimals(stats: ValueStats, values: Values) -> None:
    # 1.0 and 1.00 are one value: without this, their order would decide the least one.
    plain = [EXACT.normalize(EXACT.add(value, 0)) for value in values if value.is_finite()]
    nans = sum(value.is_nan() for value in values)
    stats.nans += nans
    stats.beyond += len(values) - len(plain) - nans
    if plain:
        stats.add_bounds(min(plain), max(plain))
        stats.add_hashes(hash_texts([str(value) for value in plain]), plain.__getitem__)
        stats.add_numbers(np.array([_as_float(value) for value in plain]))


def _texts(stats: ValueStats, values: Values) -> None:
    stats.add_lengths(values)
    stats.beyond += _beyond_utf8(values)
    if len(set(values[:_LOOKED_AT])) < min(len(values), _LOOKED_AT) // 2:
        values = list(set(values))  # Repeated words are looked at once.
    # The beginning of the least is the least beginning.
    stats.add_bounds(min(values)[: CUT + 1], max(values)[: CUT + 1])
    stats.add_hashes(hash_texts(values), lambda at: str(values[at][: CUT + 1]))


def _beyond_utf8(values: Values) -> int:
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        return sum(any("\ud800" <= letter <= "\udfff" for letter in value) for value in values)
    return 0


def _bytes(stats: ValueStats, values: Values) -> None:
    plain = [bytes(value) for value in values]
    stats.add_lengths(plain)
    stats.add_hashes(hash_bytes(plain), lambda at: plain[at][: CUT + 1])


def _moments(unit: str) -> Callable[[ValueStats, Values], None]:
    def look(stats: ValueStats, values: Values) -> None:
        moments = [value for value in values if value == value]  # noqa: PLR0124 (pandas' NaT)
        stats.nans += len(values) - len(moments)
        if moments:
            _ints(stats, np.array(moments, unit).astype(np.int64).tolist())

    return look


_timestamps = _moments("M8[us]")


def _durations(stats: ValueStats, values: Values) -> None:
    unit = dt.timedelta(microseconds=1)
    _ints(stats, [value // unit for value in values])  # The longest do not fit into 64 bits.


def _zoned(stats: ValueStats, values: Values) -> None:
    _timestamps(stats, [_as_utc(value) for value in values])


def _as_utc(value: dt.datetime) -> dt.datetime:
    try:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:  # In the first or the last hours of the calendar.
        return value.replace(tzinfo=None)


def _times(stats: ValueStats, values: Values) -> None:
    days = [dt.datetime.combine(_MIDNIGHT, value.replace(tzinfo=None)) for value in values]
    _durations(stats, [day - _MIDNIGHT for day in days])


_KINDS: dict[str, tuple[tuple[type, ...], Callable[[ValueStats, Values], None] | None]] = {
    "null": ((type(None),), None),
    "bool": ((bool, np.bool_), _bools),
    "int": ((int, np.integer), _ints),
    "float": ((float, np.floating), _floats),
    "string": ((str,), _texts),
    "object": ((dict,), None),
    "list": ((list, tuple), ValueStats.add_lengths),
    "binary": ((bytes, bytearray, memoryview), _bytes),
    "timestamp": ((dt.datetime,), _timestamps),
    "timestamp[tz]": ((), _zoned),
    "date": ((dt.date,), _moments("M8[D]")),
    "time": ((dt.time,), _times),
    "duration": ((dt.timedelta,), _durations),
    "decimal": ((Decimal,), _decimals),
}
"""Types of each kind, and what adds the facts of values. The first match counts: in Python a bool
is an int, and a datetime is a date."""
WHOLE = ("int", "timestamp", "timestamp[tz]", "date", "time", "duration")
"""Kinds whose bounds and examples are integers."""


def shown(kind: str, value: Any) -> object:  # noqa: ANN401 (as `ValueStats` keeps it)
    """Return a value as JSON can hold it and people read it.

    >>> shown("date", 0), shown("string", "a" * 99)[-4:], shown("float", math.inf)
    ('1970-01-01', 'aaa…', 'inf')
    """
    if kind == "string":
        text = value.encode("utf-8", "backslashreplace").decode()
        return text if len(value) <= CUT else text[:CUT] + "…"
    if kind == "binary":
        text = str(value[:CUT])[2:-1]
        return text if len(value) <= CUT else text + "…"
    if kind == "float":
        return value if math.isfinite(value) else str(value)
    if kind == "int" and value.bit_length() > _LONGEST_INT:
        return f"{value:#x}"[:CUT] + "…"
    if kind in ("timestamp", "timestamp[tz]"):
        return f"{np.datetime64(value, 'us')}" + ("Z" if kind == "timestamp[tz]" else "")
    if kind == "date":
        return f"{np.datetime64(value, 'D')}"
    if kind == "time":
        return (_MIDNIGHT + dt.timedelta(microseconds=value)).time().isoformat()
    if kind == "duration":
        return str(dt.timedelta(microseconds=value))
    if kind == "decimal":
        return f"{value:f}" if abs(value.adjusted()) < CUT else str(value)
    return value


_LONGEST_INT = 14_000
"""Bits; Python converts no longer integers to decimal digits."""
