"""Batches of records of similar length, so that little is padded."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from penstock._words import counted
from penstock.order._permutation import keys, mixed
from penstock.order._plans import LengthPlan, ahead
from penstock.order._whole import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.order._order import RecordOrder
    from penstock.order._plans import Lengths

_TOGETHER = 65_536
"""Positions that are sorted in one go, in windows, since each call of an order has a fixed cost."""
_NAMES = 8
"""First records of an order, which tell it from the orders of other epochs and seeds."""


class BucketPlan(LengthPlan):
    """Batches of `batch_size` records of similar length.

    Each `buckets × batch_size` records that follow each other in the order of the epoch are
    sorted by length and cut into `buckets` batches, which come in random order. More buckets leave
    less padding and mix records less. Nothing is planned ahead: any batch is computed from its
    window. See `LengthPlan` for `lengths` and `order`.

    >>> from penstock.order import Order
    >>> plan = BucketPlan([3, 9, 1, 8, 2, 7], 2, buckets=3, order=Order(6, kind="sequential"))
    >>> sorted(batch.tolist() for batch in plan)
    [[0, 5], [2, 4], [3, 1]]
    """

    least = 0

    def __init__(
        self,
        lengths: Lengths,
        batch_size: int,
        buckets: int = 8,
        *,
        order: RecordOrder | None = None,
    ) -> None:
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self.buckets = whole_number("buckets", buckets, 1)
        super().__init__(f"bucket-{self.batch_size}-{self.buckets}", lengths, order)

    def describe(self) -> str:
        records, buckets = counted(self.batch_size, "record"), counted(self.buckets, "bucket")
        return f"{records} of similar length a batch, {buckets}"

    def over(self, order: RecordOrder) -> BucketBatches:
        if int(self.lengths.min(initial=self.least)) < self.least:
            # Refused now if a record of the order has it: in mid-epoch it can no longer be skipped.
            deque(ahead(lambda *ends: self.at(order.positions(*ends)), len(order)), maxlen=0)
        return BucketBatches(self, order)


class BucketBatches:
    """The batches of a `BucketPlan` over one order."""

    def __init__(self, plan: BucketPlan, order: RecordOrder) -> None:
        self._plan, self._order = plan, order
        names = order.positions(0, min(_NAMES, len(order))).tolist()
        (self._key,) = keys("bucket batches", plan.version, *names)
        self._group = plan.buckets * max(1, _TOGETHER // (plan.buckets * plan.batch_size))
        """Batches that are computed together: those of whole windows."""
        self._known: tuple[int, list[NDArray[np.int64]]] = (-1, [])

    def __len__(self) -> int:
        return (len(self._order) - 1) // self._plan.batch_size + 1

    def positions(self, number: int) -> NDArray[np.int64]:
        group, place = divmod(number, self._group)
        if self._known[0] != group:
            self._known = group, self._batches(group)
        return self._known[1][place]

    def _batches(self, group: int) -> list[NDArray[np.int64]]:
        size, buckets = self._plan.batch_size, self._plan.buckets
        first = group * self._group * size
        stop = min(first + self._group * size, len(self._order))
        lengths = self._plan.at(self._order.positions(first, stop))
        found = []
        for start in range(first, stop, size * buckets):
            window = lengths[start - first : start - first + size * buckets]
            rows = start + np.argsort(window, kind="stable")
            batches = np.split(rows, range(size, len(rows), size))
            numbers = np.arange(len(batches)) + start // size
            shuffled = np.argsort(mixed(numbers.astype(np.uint64), self._key))
            found += [batches[place] for place in shuffled.tolist()]
        return found
