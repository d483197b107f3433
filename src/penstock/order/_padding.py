"""How much of its batches a plan leaves empty, beside plain batches of the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from penstock.order._order import Batches, RecordOrder
    from penstock.order._plans import LengthPlan

_PLACES, _RUN = 16, 32
"""So many batches in each of so many places of the order stand for all."""
_RECORDS = 1 << 20
"""Of plain batches, at most."""


class Padding(NamedTuple):
    """The shares of batches that hold nothing, from 0 to 1, judged by up to 512 of them."""

    planned: float
    plain: float
    """In batches of `rows` records of the same order, each padded to its longest record."""
    rows: int
    """Records of a batch of the plan, on average."""


def padding_of(plan: LengthPlan, order: RecordOrder, batches: Batches) -> Padding:
    """Return the padding of a plan's batches over an order; only lengths are looked at.

    >>> from penstock.order import BucketPlan, Order
    >>> order = Order(64, seed=1)
    >>> plan = BucketPlan(list(range(1, 65)), 8)
    >>> [round(share, 2) for share in padding_of(plan, order, plan.over(order))[:2]]
    [0.1, 0.44]
    """
    count = len(batches)
    if not count:
        return Padding(0.0, 0.0, 0)
    shows_bins = getattr(batches, "bins", lambda _: None)
    used = space = rows = 0
    places = np.linspace(0, max(0, count - _RUN), _PLACES).astype(np.int64)
    numbers = np.unique(places[:, np.newaxis] + np.arange(min(_RUN, count)))
    for number in numbers.tolist():
        lengths = plan.at(order.at(batches.positions(number)))
        used += int(lengths.sum())
        space += plan.space(lengths, shows_bins(number))
        rows += len(lengths)
    mean = max(1, round(rows / len(numbers)))
    plain = max(1, min(_PLACES * _RUN, _RECORDS // mean, len(order) // mean))
    starts = np.linspace(0, len(order) - mean, plain).astype(np.int64)
    lengths = plan.at(order.at(starts[:, np.newaxis] + np.arange(mean)).reshape(-1))
    longest = lengths.reshape(plain, mean).max(axis=1)
    return Padding(
        1 - min(used / max(1, space), 1.0),
        1 - int(lengths.sum()) / max(1, int(longest.sum()) * mean),
        mean,
    )
