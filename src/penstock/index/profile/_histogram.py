"""Histograms of numbers, as fine as a fixed number of buckets allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_BUCKETS = 256
_BARS = 16
_HUGE = 1e300
_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)


class Histogram:
    """Counts of finite numbers in buckets.

    A bucket holds all floats whose first bits are equal: as many bits as keep the buckets below a
    fixed number. The result depends neither on the order of the numbers nor on how they are parted.

    >>> numbers = Histogram()
    >>> numbers.add(np.arange(1001.0))
    >>> numbers.low, [round(one, -1) for one in numbers.quantiles([0.25, 0.5, 0.99])], numbers.high
    (0.0, [250.0, 500.0, 990.0], 1000.0)
    """

    def __init__(self) -> None:
        self.low = np.inf
        self.high = -np.inf
        self.shift = 0
        """Last bits that are ignored."""
        self.keys = np.empty(0, np.int64)
        """The buckets that are not empty, ascending."""
        self.counts = np.empty(0, np.int64)

    def add(self, values: NDArray[np.float64]) -> None:
        """Count finite numbers."""
        if not len(values):
            return
        values = values + 0.0  # Without -0.0.
        self.low = min(self.low, float(values.min()))
        self.high = max(self.high, float(values.max()))
        keys, counts = np.unique(_ordered(values) >> np.int64(self.shift), return_counts=True)
        self._take(keys, counts)

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        shift = max(self.shift, other.shift)
        self.keys = self.keys >> np.int64(shift - self.shift)
        self.shift = shift
        self._take(other.keys >> np.int64(shift - other.shift), other.counts)

    def _take(self, keys: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        keys, counts = np.concatenate([self.keys, keys]), np.concatenate([self.counts, counts])
        order = np.argsort(keys)
        keys, counts = _joined(keys[order], counts[order])
        while len(keys) > _BUCKETS:
            self.shift += 1
            keys, counts = _joined(keys >> np.int64(1), counts)
        self.keys, self.counts = keys, counts

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return the quantiles of these shares; numbers count as spread evenly in their bucket."""
        low, high = self._borders()
        after = np.cumsum(self.counts)
        found = []
        for share in shares:
            rank = share * float(after[-1])
            at = int(np.searchsorted(after, rank))
            inside = (rank - float(after[at] - self.counts[at])) / float(self.counts[at])
            found.append(float(low[at] + (high[at] - low[at]) * inside))
        return found

    def bars(self, low: float, high: float, *, whole: bool) -> list[int]:
        """Return counts in bars of equal width from `low` to `high`; the outer bars hold the rest.

        If numbers are `whole`, no bar is narrower than 1.
        """
        count = int(min(_BARS, high - low + 1)) if whole else _BARS
        stop = high + 1 if whole else high
        if not stop > low:
            return [int(self.counts.sum())]
        numbers = np.arange(1, count)[:, None]
        if abs(low) + abs(stop) < _HUGE:
            edges = low + (stop - low) * numbers / count  # Exact for whole numbers.
        else:
            edges = low * ((count - numbers) / count) + stop * (numbers / count)
        first, last = self._borders()
        room = np.where(last > first, last - first, 1.0)
        inside = (np.clip(edges, first, last) - first) / room
        inside = np.where(last > first, inside, edges > first)
        below = (inside * self.counts).sum(axis=1)
        heights = np.diff(below, prepend=0.0, append=float(self.counts.sum()))
        return [round(height) for height in heights.tolist()]

    def _borders(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and the largest number of each bucket."""
        shift = np.int64(self.shift)
        low = _floats(self.keys << shift)
        high = _floats((self.keys << shift) | np.int64((1 << self.shift) - 1))
        return np.clip(low, self.low, self.high), np.clip(high, self.low, self.high)


def _ordered(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return integers in the order of the floats."""
    bits = values.view(np.int64)
    return bits ^ ((bits >> np.int64(63)) & _MAGNITUDE)


def _floats(keys: NDArray[np.int64]) -> NDArray[np.float64]:
    floats = (keys ^ ((keys >> np.int64(63)) & _MAGNITUDE)).view(np.float64)
    # A bucket at either end of all floats may reach beyond the largest one.
    return np.where(np.isnan(floats), np.copysign(np.inf, keys.astype(np.float64)), floats)


def _joined(
    keys: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ascending keys once each, with the sums of their counts."""
    if not len(keys):
        return keys, counts
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(counts, starts)
