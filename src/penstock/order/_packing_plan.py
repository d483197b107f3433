"""Batches of samples that are packed with whole records of different lengths."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock._words import counted
from penstock.order._packing import best_fit
from penstock.order._plans import CutPlan, ahead, position_type
from penstock.order._whole import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.order._order import RecordOrder
    from penstock.order._plans import Lengths, Oversize


class PackingPlan(CutPlan):
    """Batches of `batch_size` bins; the records of a bin are at most `sample_size` together.

    The order of the epoch is packed 262,144 records at a time, the longest first, each into the
    bin that it fills best; bins come in the order of their first records. The rows of a batch
    stand bin by bin: those from `bins[k]` to `bins[k + 1]` share bin k (`Batch.bins`,
    `BatchPosition.bins`). `oversize` is that of `CostPlan`, for a bin. See `LengthPlan` for
    `lengths` and `order`.

    >>> from penstock.order import Order
    >>> order = Order(6, kind="sequential")
    >>> batches = PackingPlan([3, 4, 1, 9, 2, 5], 7, batch_size=2).over(order)
    >>> [batches.positions(number).tolist() for number in range(len(batches))]
    [[0, 1, 2], [3, 4, 5]]
    >>> [batches.bins(number).tolist() for number in range(len(batches))]
    [[0, 2, 3], [0, 1, 3]]
    """

    limit_argument = "sample_size"
    bins = True

    def __init__(
        self,
        lengths: Lengths,
        sample_size: int,
        batch_size: int = 1,
        *,
        oversize: Oversize = "emit",
        order: RecordOrder | None = None,
    ) -> None:
        limit = whole_number("sample_size", sample_size, 1)
        each = whole_number("batch_size", batch_size, 1)
        super().__init__(f"packing-{limit}-{each}", lengths, limit, each, oversize, order)

    def describe(self) -> str:
        return f"batches of {counted(self.each, 'bin')} of at most {self.limit:,}"

    def space(self, lengths: NDArray[np.int64], bins: NDArray[np.int64] | None) -> int:
        """Return how much the bins of a batch hold."""
        return self.limit * (0 if bins is None else len(bins) - 1)

    def arrays(self, order: RecordOrder) -> list[NDArray[np.integer]]:
        length, kept = len(order), 0
        type_ = position_type(length)
        rows, starts = np.empty(length, type_), [np.empty(0, type_)]
        for found, firsts in ahead(partial(self._stretch, order), length):
            rows[kept : kept + len(found)] = found
            starts.append((kept + firsts).astype(type_))
            kept += len(found)
        starts.append(np.array([kept], type_))
        return [np.concatenate(starts), rows[:kept]]

    def _stretch(self, order: RecordOrder, start: int, stop: int) -> _PackedStretch:
        positions, lengths = self._kept(order, start, stop)
        # What is beyond the limit fills a bin, as a record does that is just as long.
        packing = best_fit(np.minimum(lengths, self.limit), self.limit)
        pieces = packing.piece_document
        found = start + pieces if positions is None else positions[pieces]
        return _PackedStretch(found, packing.sample_offsets[:-1])


class _PackedStretch(NamedTuple):
    positions: NDArray[np.int64]
    """Of its records, bin by bin."""
    firsts: NDArray[np.int64]
    """The first record of each bin, among them."""
