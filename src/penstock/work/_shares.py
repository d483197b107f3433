"""Cuts work into units of about equal size."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray


class Sized(Protocol):
    """Has a size."""

    @property
    def size(self) -> int:
        """Its size."""
        ...


T = TypeVar("T", bound=Sized)


def grouped(parts: Iterable[T], most: int) -> list[tuple[T, ...]]:
    """Return parts in order, small ones grouped up to a size of `most`.

    A larger part is a group of its own.

    >>> import numpy as np
    >>> [[part.size for part in group] for group in grouped(map(np.zeros, [1, 2, 3, 9, 1]), 5)]
    [[1, 2], [3], [9], [1]]
    """
    groups: list[list[T]] = []
    room = 0
    for part in parts:
        if part.size > room or not groups:
            groups.append([])
            room = most
        groups[-1].append(part)
        room -= part.size
    return [*map(tuple, groups)]


def shares(
    total: int, borders: Sequence[int] | NDArray[np.int64], least: int
) -> list[tuple[int, int]]:
    """Cut `[0, total)` at some of the ascending borders into ranges of at least `least` each.

    Each is as short as that allows; only the last may be shorter. Borders at or beyond the ends are
    ignored.

    >>> shares(10, [0, 1, 4, 5, 9, 10], 4)
    [(0, 4), (4, 9), (9, 10)]
    """
    ranges, start = [], 0
    while start < total:
        at = bisect_left(borders, start + max(1, least))
        stop = min(total, int(borders[at])) if at < len(borders) else total
        ranges.append((start, stop))
        start = stop
    return ranges
