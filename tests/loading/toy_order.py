"""An order that shows how little one needs: the last record first, from a place that moves on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock.order import OrderKind, Skips

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Backwards:
    """Records backwards, from the one of `seed + epoch` on."""

    VERSION: ClassVar[int] = 2
    kind = "backwards"
    lanes = 1
    repeats = False

    def __init__(self, length: int, *, seed: int, epoch: int, skip: Any, **_: Any) -> None:
        self._skips = Skips(skip, length)
        self._first = seed + epoch

    def __len__(self) -> int:
        return self._skips.kept

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        return self.at(np.arange(start, stop))

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        ranks = (self._first - positions) % max(1, len(self))
        return self._skips.records(ranks.reshape(-1)).reshape(positions.shape)


BACKWARDS = OrderKind(Backwards, Backwards.VERSION)
