"""A plan that shows how little one needs: batches of 3, 5, 3, 5 …"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.order import Order


class ThreeFive:
    """Cuts the order into batches of 3 and 5 in turn; the last one has what is left."""

    name, version = "three-five", 1

    def over(self, order: Order) -> ThreeFiveBatches:
        return ThreeFiveBatches(len(order))


class ThreeFiveBatches:
    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        pairs, rest = divmod(self._length, 8)
        return 2 * pairs + (rest > 0) + (rest > 3)

    def positions(self, number: int) -> NDArray[np.int64]:
        start = 8 * (number // 2) + 3 * (number % 2)
        return np.arange(start, min(start + (5 if number % 2 else 3), self._length))
