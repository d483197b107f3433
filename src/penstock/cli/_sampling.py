"""A share of the lines of a file, the same for the same seed."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class SampledLines:
    """Chooses line numbers, each with the same chance, by drawing how far to jump.

    What is chosen depends on share and seed alone, not on how the text is cut into pieces.
    """

    def __init__(self, share: float, seed: str) -> None:
        self._share = share
        self._chance = random.Random(seed)  # noqa: S311 (not a secret)
        self._next = self._jump()

    def among(self, first_line: int, count: int) -> Iterator[int]:
        """Yield the chosen ones of `count` lines from `first_line`, as indices from 0."""
        while self._next < first_line + count:
            yield self._next - first_line
            self._next += self._jump()

    def _jump(self) -> int:
        if self._share == 1:
            return 1
        draw = self._chance.random() or 0.5
        return math.floor(math.log(draw) / math.log1p(-self._share)) + 1
