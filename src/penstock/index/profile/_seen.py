"""What is known of the values of one type at one place in records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.index.profile._distinct import Distinct
from penstock.index.profile._spread import Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Sized

    from numpy.typing import NDArray


@dataclass(slots=True)
class Seen:
    """Counts and borders of values of one type; what does not apply to it stays empty.

    Of values that were parted and seen apart, in whatever order, the same is known in the end.
    """

    count: int = 0
    first: int = 0
    """Number of the first record that holds one,"""
    last: int = 0
    """and of the last."""
    low: Any = None
    """The least one: a number, the beginning of a text; of moments a number of units."""
    high: Any = None
    distinct: Distinct | None = None
    spread: Spread | None = None
    """Of numbers."""
    lengths: Spread | None = None
    """Of texts, lists and bytes."""
    trues: int = 0
    nans: int = 0
    infinite: int = 0

    def merge(self, other: Seen, shift: int) -> None:
        """Take what another has seen in records that are numbered from `shift` on."""
        self.number(other.count, other.first + shift, other.last + shift)
        self.reach(other.low, other.high)
        self.trues += other.trues
        self.nans += other.nans
        self.infinite += other.infinite
        if other.distinct is not None:
            self.distinct = self.distinct or Distinct()
            self.distinct.merge(other.distinct)
        if other.spread is not None:
            self.spread = self.spread or Spread()
            self.spread.merge(other.spread)
        if other.lengths is not None:
            self.lengths = self.lengths or Spread()
            self.lengths.merge(other.lengths)

    def number(self, count: int, first: int, last: int) -> None:
        """Count values, and note which records hold them."""
        self.first = min(self.first, first) if self.count else first
        self.last = max(self.last, last) if self.count else last
        self.count += count

    def reach(self, low: Any, high: Any) -> None:  # noqa: ANN401 (whatever can be compared)
        """Note the least and the greatest of some values."""
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    def tell_apart(self, hashes: NDArray[np.uint64], value_at: Callable[[int], object]) -> None:
        """Count how many different values there are, by their hashes."""
        self.distinct = self.distinct or Distinct()
        self.distinct.add(hashes, value_at)

    def weigh(self, numbers: NDArray[np.float64]) -> None:
        """Count finite numbers by their size."""
        self.spread = self.spread or Spread()
        self.spread.add(numbers)

    def measure(self, values: Sequence[Sized]) -> None:
        """Count values by their lengths."""
        self.lengths = self.lengths or Spread()
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self.lengths.add(lengths.astype(np.float64))
