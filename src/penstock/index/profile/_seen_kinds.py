"""The types of values in records, and what is looked at in those of each."""

from __future__ import annotations

import datetime as dt
import math
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from penstock.index.profile._distinct import hash_bytes, hash_floats, hash_ints, hash_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.index.profile._seen import Seen

    Values: TypeAlias = Sequence[Any]

CUT = 60
"""Letters of a text that are shown, as an example, as the least or as the greatest."""
_LOOKED_AT = 64
_LARGEST = float(np.finfo(np.float64).max)
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
_MIDNIGHT = dt.datetime(1, 1, 1)  # noqa: DTZ001 (of no day and no place)

_KINDS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((type(None),), "null"),
    ((bool, np.bool_), "bool"),
    ((int, np.integer), "int"),
    ((float, np.floating), "float"),
    ((str,), "string"),
    ((dict,), "object"),
    ((list, tuple), "list"),
    ((bytes, bytearray, memoryview), "binary"),
    ((dt.datetime,), "timestamp"),
    ((dt.date,), "date"),
    ((dt.time,), "time"),
    ((dt.timedelta,), "duration"),
    ((Decimal,), "decimal"),
)
"""The first that fits: a bool is an int to Python, and a datetime a date."""


class Unreadable:
    """Stands for a record that cannot be read."""


UNREADABLE = Unreadable()


@lru_cache(1024)
def kind_of(type_: type) -> str:
    """Return the word for values of a Python type.

    >>> kind_of(int), kind_of(bool), kind_of(dt.datetime), kind_of(complex)
    ('int', 'bool', 'timestamp', 'complex')
    """
    if type_ is Unreadable:
        return "unreadable"
    return next((kind for types, kind in _KINDS if issubclass(type_, types)), type_.__name__)


def look_at(seen: Seen, kind: str, values: Values, where: NDArray[np.int64]) -> None:
    """Note values of one kind, and the numbers of the records that hold them."""
    seen.number(len(values), int(where.min()), int(where.max()))
    look = _LOOKS.get(kind)
    if look is not None:
        look(seen, values)


def _bools(seen: Seen, values: Values) -> None:
    seen.trues += int(sum(values))


def _ints(seen: Seen, values: Values) -> None:
    try:
        ints = np.fromiter(values, np.int64, len(values))
    except OverflowError:
        small = [value for value in values if -(1 << 63) <= value < 1 << 63]
        _wide_ints(seen, [value for value in values if not -(1 << 63) <= value < 1 << 63])
        if not small:
            return
        ints = np.array(small, np.int64)
    seen.reach(int(ints.min()), int(ints.max()))
    seen.tell_apart(hash_ints(ints), lambda at: int(ints[at]))
    seen.weigh(ints.astype(np.float64))


def _wide_ints(seen: Seen, values: list[int]) -> None:
    seen.reach(min(values), max(values))
    texts = [value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True) for value in values]
    seen.tell_apart(hash_bytes(texts), values.__getitem__)
    seen.weigh(np.array([_as_float(value) for value in values]))


def _as_float(value: int | Decimal) -> float:
    try:
        return max(-_LARGEST, min(_LARGEST, float(value)))
    except OverflowError:
        return _LARGEST if value > 0 else -_LARGEST


def _floats(seen: Seen, values: Values) -> None:
    floats = np.fromiter(values, np.float64, len(values)) + 0.0  # Without -0.0.
    seen.tell_apart(hash_floats(floats), lambda at: float(floats[at]))
    is_finite = np.isfinite(floats)
    finite = floats
    if not is_finite.all():
        nans = int(np.isnan(floats).sum())
        finite = floats[is_finite]
        seen.nans += nans
        seen.infinite += len(floats) - len(finite) - nans
    if len(finite):
        seen.reach(float(finite.min()), float(finite.max()))
        seen.weigh(finite)


def _decimals(seen: Seen, values: Values) -> None:
    # 1.0 and 1.00 are one value, and of equal ones the first would be the least.
    plain = [_EXACT.normalize(_EXACT.add(value, 0)) for value in values if value.is_finite()]
    nans = sum(value.is_nan() for value in values)
    seen.nans += nans
    seen.infinite += len(values) - len(plain) - nans
    if plain:
        seen.reach(min(plain), max(plain))
        seen.tell_apart(hash_texts([str(value) for value in plain]), plain.__getitem__)
        seen.weigh(np.array([_as_float(value) for value in plain]))


def _texts(seen: Seen, values: Values) -> None:
    seen.measure(values)
    if len(set(values[:_LOOKED_AT])) < min(len(values), _LOOKED_AT) // 2:
        values = list(set(values))  # Words that come again and again are looked at once.
    # The beginning of the least is the least beginning.
    seen.reach(min(values)[: CUT + 1], max(values)[: CUT + 1])
    seen.tell_apart(hash_texts(values), lambda at: str(values[at][: CUT + 1]))


def _bytes(seen: Seen, values: Values) -> None:
    plain = [bytes(value) for value in values]
    seen.measure(plain)
    seen.tell_apart(hash_bytes(plain), lambda at: plain[at][: CUT + 1])


def _lists(seen: Seen, values: Values) -> None:
    seen.measure(values)


def _moments(unit: str) -> Callable[[Seen, Values], None]:
    def look(seen: Seen, values: Values) -> None:
        moments = [value for value in values if value == value]  # noqa: PLR0124 (pandas' NaT)
        seen.nans += len(values) - len(moments)
        if moments:
            _ints(seen, np.array(moments, unit).astype(np.int64).tolist())

    return look


def _durations(seen: Seen, values: Values) -> None:
    unit = dt.timedelta(microseconds=1)
    _ints(seen, [value // unit for value in values])  # The longest do not fit into 64 bits.


def _zoned(seen: Seen, values: Values) -> None:
    _LOOKS["timestamp"](seen, [_as_utc(value) for value in values])


def _as_utc(value: dt.datetime) -> dt.datetime:
    try:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:  # In the first or the last hours that there are.
        return value.replace(tzinfo=None)


def _times(seen: Seen, values: Values) -> None:
    days = [dt.datetime.combine(_MIDNIGHT, value.replace(tzinfo=None)) for value in values]
    _durations(seen, [day - _MIDNIGHT for day in days])


_LOOKS: dict[str, Callable[[Seen, Values], None]] = {
    "bool": _bools,
    "int": _ints,
    "float": _floats,
    "string": _texts,
    "list": _lists,
    "binary": _bytes,
    "timestamp": _moments("M8[us]"),
    "timestamp[tz]": _zoned,
    "date": _moments("M8[D]"),
    "time": _times,
    "duration": _durations,
    "decimal": _decimals,
}
WHOLE = ("int", "timestamp", "timestamp[tz]", "date", "time", "duration")
"""Kinds whose borders and examples are integers."""


def shown(kind: str, value: Any) -> object:  # noqa: ANN401 (as `Seen` keeps it)
    """Return a value as JSON can hold it, and as people read it.

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
"""Bits; Python turns no longer ones into decimal digits."""
