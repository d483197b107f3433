"""Time and reads of a run, in numbers."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.loading._delivery import Lot

_log = logging.getLogger("penstock.loading")

_LOGGED = 100
"""Reasons of bad records that are logged."""


class Tally:
    """Sums over the batches of one pass; the user either waits for a batch or uses one."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._each = (0, 0.0, 0.0)
        """Records, and seconds of gathering and encoding, of each batch of the present lot."""
        self._of_lot = 0
        """Batches of the lot that are not in the sums yet."""
        self.costs: Mapping[str, float] = {}
        """What the engine has read until now."""
        self._waiting = self._using = 0.0
        self._since = time.perf_counter()

    def begin(self, lot: Lot) -> None:
        """Begin a lot: the next batches handed out are its."""
        self._add_up()
        self._each = (lot.records, lot.gathering, lot.encoding)

    def handed_out(self) -> None:
        """Count a batch that is about to be handed out, and how long the user waited for it."""
        self._of_lot += 1
        now = time.perf_counter()
        self._waiting += now - self._since
        self._since = now

    def came_back(self) -> None:
        """Count the time that the user had the last batch."""
        now = time.perf_counter()
        self._using += now - self._since
        self._since = now

    def sums(self) -> Counter[str]:
        """Return everything that was counted."""
        self._add_up()
        times = {"waiting": self._waiting, "using": self._using}
        return Counter({**self._sums, **times, **self.costs})

    def _add_up(self) -> None:
        """Add the batches of the present lot to the sums."""
        count, self._of_lot = self._of_lot, 0
        records, gathering, encoding = self._each
        self._sums["batches"] += count
        self._sums["records"] += count * records
        self._sums["gathering"] += count * gathering  # type: ignore[assignment] # seconds
        self._sums["encoding"] += count * encoding  # type: ignore[assignment] # seconds


class BadRecords:
    """The numbers of bad records; why they are bad goes to the log, up to a hundred reasons."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self._reasons: set[str] = set()

    def add(self, number: int, why: str) -> None:
        """Note a record that was found bad."""
        is_known = number in self.ids
        self.ids.add(number)
        # Records that are damaged together have the same reason.
        if is_known or why in self._reasons or len(self._reasons) > _LOGGED:
            return
        self._reasons.add(why)
        if len(self._reasons) > _LOGGED:
            _log.warning("more records do not count: they are not logged, stats() counts them")
        else:
            _log.warning("record %d does not count: %s", number, why)


class Stats:
    """Sums over all batches that a loader handed out, in any number of passes.

    Seconds of read, decode and encode are sums over all threads or worker processes, so they may
    exceed the elapsed time. `wait` is how long the user's loop stood still.
    """

    def __init__(self) -> None:
        self.bad_records = BadRecords()
        self._ended: Counter[str] = Counter()
        self._under_way: list[Tally] = []

    def begin_pass(self) -> Tally:
        """Return the tally of a new pass."""
        self._under_way.append(Tally())
        return self._under_way[-1]

    def end_pass(self, tally: Tally) -> None:
        self._under_way = [other for other in self._under_way if other is not tally]
        self._ended.update(tally.sums())

    def numbers(self) -> dict[str, float]:
        """Return everything by its stable name."""
        found = Counter(self._ended)
        for tally in self._under_way:
            found.update(tally.sums())
        elapsed = found["waiting"] + found["using"]
        numbers = {
            "batches": found["batches"],
            "records": found["records"],
            "bad_records": len(self.bad_records.ids),
            "records_per_second": found["records"] / elapsed if elapsed else 0,
            "read_seconds": found["seconds_reading"],
            "decode_seconds": max(0, found["gathering"] - found["seconds_reading"]),
            "encode_seconds": found["encoding"],
            "wait_seconds": found["waiting"],
            "use_seconds": found["using"],
            "storage_requests": found["requests"],
            "storage_bytes": found["bytes"],
            "storage_retries": found["retries"],
            "storage_throttled": found["throttled"],
            "cache_hits": found["cache_hits"],
        }
        return {name: float(number) for name, number in numbers.items()}
