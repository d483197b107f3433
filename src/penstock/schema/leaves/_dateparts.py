"""Parts of dates and times."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from penstock.errors import OptionError
from penstock.schema._nodes import MASKED, VALUED, Leaf
from penstock.schema._values import BadSlotError, SlotValues, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.schema._arrays import LeafArrays
    from penstock.schema._vocabulary import Vocabulary

SHIFT = 5
"""Added to each part: the numbers below are states."""

BUCKETS = {
    "day_of_year": 366,
    "week_of_year": 53,
    "month_of_year": 12,
    "day_of_month": 31,
    "week_of_month": 6,
    "day_of_week": 7,
    "hour_of_day": 24,
    "minute_of_hour": 60,
}
"""The parts, and how many values each has."""

_DIRECTIVES = set("aAbBdHIjmMpSfyYzZUwWGuV%cxX")
_NEVER = np.iinfo(np.int64).min
_MINUTES_A_DAY = 1440
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (naive, as times are compared with it)
_FIRST = pa.scalar(dt.date.min, pa.date32()).cast(pa.timestamp("us"))
_PRECISE = pa.timestamp("us")


class DateParts(Leaf):
    """Parts of a date or time: an int64 for each, the part + 5. Offsets become UTC.

    Args:
        name: As for every leaf.
        dateparts: The parts: day_of_year, week_of_year, month_of_year, day_of_month, week_of_month,
            day_of_week (Sunday is 0), hour_of_day, minute_of_hour.
        pattern: How texts are written, in the directives of `strptime`; by default ISO 8601.
    """

    kind = "dateparts"
    guess = pa.string()
    hidden = MASKED
    dateparts: tuple[str, ...]
    pattern: str | None

    def __init__(
        self,
        name: str,
        *,
        dateparts: Sequence[str],
        pattern: str | None = None,
        **shared: Any,
    ) -> None:
        label = f"DateParts {name!r}"
        parts = tuple(_part(label, one) for one in dateparts)
        if not parts or len(set(parts)) < len(parts):
            raise OptionError(f"{label}: dateparts={[*dateparts]}: expected parts, each once.")
        if pattern is not None:
            for directive in re.findall(r"%(.?)", pattern):
                if directive not in _DIRECTIVES or not directive:
                    raise OptionError(
                        f"{label}: pattern={pattern!r}: strptime has no directive %{directive}."
                    )
        super().__init__(name, dateparts=parts, pattern=pattern, **shared)

    def wanted(self, found: pa.DataType) -> pa.DataType | None:
        is_known = is_.is_timestamp(found) or is_.is_date(found) or is_.is_string(found)
        return found if is_known else None

    def from_values(self, values: Sequence[Any]) -> SlotValues:
        texts, codes = numbered([one if isinstance(one, str) else None for one in values])
        # A text is parsed once for all its slots.
        parsed = []
        for code, text in enumerate(texts):
            try:
                parsed.append(_minutes(0, text, self.pattern))
            except BadSlotError as why:
                raise BadSlotError(int(np.argmax(codes == code)), why.why) from None
        minutes = np.array([*parsed, _NEVER], np.int64)[codes]
        for slot, value in enumerate(values):
            if codes[slot] < 0 and value is not None:
                minutes[slot] = _minutes(slot, value, None)
        return self._of_minutes(minutes)

    def from_arrow(self, values: pa.Array) -> SlotValues:
        if is_.is_string(values.type):
            # Python reads more ways to write a time, has no year 0, and names the slot.
            with suppress(pa.ArrowInvalid):
                times = values.cast(_PRECISE) if self.pattern is None else None
                if times is not None and not pc.any(pc.less(times, _FIRST)).as_py():
                    return self.from_arrow(times)
            return super().from_arrow(values)
        plain = pa.timestamp(values.type.unit) if is_.is_timestamp(values.type) else None
        # Times of a zone are UTC in Arrow.
        times = values.cast(pa.timestamp("ms") if plain is None else plain)
        ticks = times.cast(pa.int64()).fill_null(0).to_numpy()
        per_minute = 60 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[times.type.unit]
        is_there = values.is_valid().to_numpy(zero_copy_only=False)
        return self._of_minutes(np.where(is_there, ticks // per_minute, _NEVER))

    def _of_minutes(self, minutes: NDArray[np.int64]) -> SlotValues:
        valued = minutes != _NEVER
        found = parts_of(np.where(valued, minutes, 0), self.dateparts)
        content = {name: np.where(valued, part + SHIFT, 0) for name, part in found.items()}
        return SlotValues(valued, content)

    def finished(
        self,
        arrays: LeafArrays,
        words: Vocabulary | None,
        *,
        learn: bool,
        valid: NDArray[np.bool_] | None,
    ) -> dict[str, NDArray[Any]]:
        is_valued = arrays.state == VALUED
        return {
            name: np.where(is_valued, part, arrays.state) for name, part in arrays.content.items()
        }

    def empty(self, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        return {name: np.full(shape, self.hidden, np.int64) for name in self.dateparts}


def parts_of(minutes: NDArray[np.int64], names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Return parts of times, given in minutes since 1970."""
    days = minutes // _MINUTES_A_DAY
    dates = days.astype("M8[D]")
    month, year = dates.astype("M8[M]"), dates.astype("M8[Y]")
    first_of_month = month.astype("M8[D]").astype(np.int64)
    first_of_year = year.astype("M8[D]").astype(np.int64)
    weekday = (days + 4) % 7  # 1970 began on a Thursday.
    found: dict[str, Callable[[], NDArray[np.int64]]] = {
        "day_of_year": lambda: days - first_of_year + 1,
        # Weeks begin on Thursdays, as those since 1970 do; a year has 54 of them at most.
        "week_of_year": lambda: np.minimum(days // 7 - first_of_year // 7 + 1, 53),
        "month_of_year": lambda: month.astype(np.int64) % 12 + 1,
        "day_of_month": lambda: days - first_of_month + 1,
        "week_of_month": lambda: (days - first_of_month + (first_of_month + 4) % 7) // 7 + 1,
        "day_of_week": lambda: weekday,
        "hour_of_day": lambda: minutes % _MINUTES_A_DAY // 60,
        "minute_of_hour": lambda: minutes % 60,
    }
    return {name: found[name]() for name in names}


def _part(label: str, name: str) -> str:
    """Return the part that a name in any spelling means."""
    spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name).strip())
    plain = re.sub(r"[\s_-]+", "_", spelled).lower()
    if plain not in BUCKETS:
        near = difflib.get_close_matches(plain, BUCKETS, 1, 0.0)
        raise OptionError(
            f"{label}: there is no date part {name!r}; did you mean {near[0]!r}? There are: "
            f"{', '.join(BUCKETS)}."
        )
    return plain


def _minutes(slot: int, value: Any, pattern: str | None) -> int:
    """Return the minutes since 1970 of a time."""
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            return _NEVER
        return int(value.astype("M8[m]").astype(np.int64))
    if isinstance(value, str):
        if value in ("", "NaT"):  # As NumPy reads both.
            return _NEVER
        try:
            if pattern is None:
                value = dt.datetime.fromisoformat(value)
            else:
                value = dt.datetime.strptime(value, pattern)  # noqa: DTZ007 (naive stays so)
        except ValueError as why:
            raise BadSlotError(slot, f"{value!r} is no date: {why}") from None
    if not isinstance(value, dt.date):
        raise BadSlotError(slot, f"{value!r} is no date")
    if value != value:  # noqa: PLR0124 (pandas' own value for no time)
        return _NEVER
    time = value if isinstance(value, dt.datetime) else dt.datetime.combine(value, dt.time())
    ahead = time.utcoffset() or dt.timedelta()
    return int((time.replace(tzinfo=None) - _EPOCH - ahead) // dt.timedelta(minutes=1))
