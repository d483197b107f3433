"""Batches under a cost: as many records as fit, one after the other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.errors import OptionError
from penstock.order._plans import CutPlan, ahead, position_type
from penstock.order._whole import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.order._order import RecordOrder
    from penstock.order._plans import Lengths, Oversize

_MOST = 2**44
"""The largest limit: the costs of a stretch, cut off behind it, sum to an int64."""


class CostPlan(CutPlan):
    """Batches whose costs sum to at most `batch_cost_size`; a loader takes it as `batch_size`.

    The records come in the order of the epoch. A batch ends before the first record that does not
    fit. `oversize` says what a single record beyond the limit is: "emit" makes it a batch of its
    own, "skip" leaves it out, "error" raises and names it. See `LengthPlan` for `costs` and
    `order`.

    >>> from penstock.order import Order
    >>> plan = CostPlan([3, 4, 1, 9, 2, 5], 7, order=Order(6, kind="sequential"))
    >>> [batch.tolist() for batch in plan]
    [[0, 1], [2], [3], [4, 5]]
    """

    argument = "costs"
    limit_argument = "batch_cost_size"

    def __init__(
        self,
        costs: Lengths,
        batch_cost_size: int,
        *,
        oversize: Oversize = "emit",
        order: RecordOrder | None = None,
    ) -> None:
        limit = whole_number("batch_cost_size", batch_cost_size, 1)
        if limit > _MOST:
            raise OptionError(f"batch_cost_size={limit:,}: expected at most 2**44, {_MOST:,}.")
        super().__init__(f"cost-{limit}", costs, limit, 1, oversize, order)

    def describe(self) -> str:
        return f"batches that cost at most {self.limit:,} each"

    def arrays(self, order: RecordOrder) -> list[NDArray[np.integer]]:
        length, kept, spent = len(order), 0, 0
        type_ = position_type(length)
        rows, starts = [np.empty(0, type_)], [np.empty(0, type_)]
        for positions, upto, following in ahead(partial(self._stretch, order), length):
            rows.append(positions.astype(type_))
            if not len(upto):
                continue
            # The batch that is open goes on as long as records fit into it.
            first = int(np.searchsorted(upto, self.limit - spent, "right")) if kept else 0
            firsts = _chain(following, first)
            before = int(upto[firsts[-1] - 1]) if len(firsts) and firsts[-1] else 0
            spent = int(upto[-1]) - before + (0 if len(firsts) else spent)
            starts.append((kept + firsts).astype(type_))
            kept += len(upto)
        starts.append(np.array([kept], type_))
        return [np.concatenate(starts), np.concatenate(rows)]

    def _stretch(self, order: RecordOrder, start: int, stop: int) -> _Stretch:
        positions, costs = self._kept(order, start, stop)
        if self.oversize != "skip":
            positions = np.empty(0, np.int64)  # Row and position are the same.
        elif positions is None:
            positions = np.arange(start, stop, dtype=np.int64)
        # Any cost beyond the limit is alone: how much beyond does not matter.
        upto = np.cumsum(np.minimum(costs, self.limit + 1))
        before = np.concatenate([np.zeros(1, np.int64), upto])[:-1]
        following = np.searchsorted(upto, before + self.limit, "right")
        return _Stretch(positions, upto, np.maximum(following, np.arange(1, len(upto) + 1)))


class _Stretch(NamedTuple):
    positions: NDArray[np.int64]
    """Of its rows, where records are left out."""
    upto: NDArray[np.int64]
    """The cost of the stretch up to each record, which is included."""
    following: NDArray[np.int64]
    """For each record the first one of the next batch, if a batch begins with it."""


def _chain(following: NDArray[np.int64], first: int) -> NDArray[np.int64]:
    """Return `first`, the one that follows it, and so on, as long as they lie in the stretch.

    Each round doubles both how many are known and how far a jump leads.

    >>> _chain(np.array([2, 2, 3, 6, 5, 6]), 0).tolist()
    [0, 2, 3]
    """
    end = len(following)
    jump = np.append(following, end).astype(np.int32)
    found = np.array([first][: first < end], np.int64)
    while len(further := jump[found]) and (further := further[further < end]).size:
        found = np.concatenate([found, further])
        jump = jump[jump]
    return found
