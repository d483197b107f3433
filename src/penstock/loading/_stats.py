"""Where the time of a run goes, in numbers."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.loading._delivery import Lot


class Stats:
    """Sums over all batches that a loader handed out.

    Seconds of read, decode and encode are added up over all threads or worker processes, so they
    may be more than the time that went by. `wait` is how long the user's loop stood still.
    """

    def __init__(self) -> None:
        self._batches = self._records = 0
        self._each = (0, 0.0, 0.0)
        """Records, and seconds of gathering and encoding, of each batch of the present lot."""
        self._of_lot = 0
        """Batches of it that are not in the sums yet."""
        self.bad_ids: set[int] = set()
        """The records that were found bad."""
        self._gathering = self._encoding = self._waiting = 0.0
        self._using = 0.0
        self._costs: Counter[str] = Counter()
        self._present: Mapping[str, float] = {}
        self._handed_out: float | None = None

    def waited(self, seconds: float) -> None:
        """Add time during which the user waited for a batch."""
        self._waiting += seconds

    def begin(self, lot: Lot) -> None:
        """Let the batches that are handed out from now on be those of a lot."""
        self._add_up()
        self._each = (lot.records, lot.gathering, lot.encoding)

    def handed_out(self) -> None:
        """Count a batch that is about to be handed out."""
        self._of_lot += 1
        self._handed_out = time.perf_counter()

    def _add_up(self) -> None:
        """Add the batches of the present lot to the sums."""
        count, self._of_lot = self._of_lot, 0
        records, gathering, encoding = self._each
        self._batches += count
        self._records += count * records
        self._gathering += count * gathering
        self._encoding += count * encoding

    def came_back(self) -> None:
        """Count the time that the user had the last batch."""
        if self._handed_out is not None:
            self._using += time.perf_counter() - self._handed_out
            self._handed_out = None

    def costs(self, present: Mapping[str, float]) -> None:
        """Note what the engine at work read until now."""
        self._present = present

    def pass_ended(self) -> None:
        """Add up what the engine read in all: the next one counts from zero."""
        self._add_up()
        self._costs.update(self._present)
        self._present = {}
        self._handed_out = None

    def numbers(self) -> dict[str, float]:
        """Return everything by its stable name."""
        self._add_up()
        costs = self._costs + Counter(self._present)
        reading = float(costs["seconds_reading"])
        elapsed = self._waiting + self._using
        return {
            "batches": float(self._batches),
            "records": float(self._records),
            "bad_records": float(len(self.bad_ids)),
            "records_per_second": self._records / elapsed if elapsed else 0.0,
            "read_seconds": reading,
            "decode_seconds": max(0.0, self._gathering - reading),
            "encode_seconds": self._encoding,
            "wait_seconds": self._waiting,
            "use_seconds": self._using,
            "storage_requests": float(costs["requests"]),
            "storage_bytes": float(costs["bytes"]),
            "storage_retries": float(costs["retries"]),
            "storage_throttled": float(costs["throttled"]),
            "cache_hits": float(costs["cache_hits"]),
        }
