"""Which source of a mixture stands at which position, and how many of its records came before."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.order._permutation import keys, mixed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Counts = Sequence[int]
    """One number for each source."""

LONGEST = 2**63 - 1
"""Positions of a mixture without an end: the most that `len` can return."""
_BLOCK = 64
"""Positions that are arranged at random together: in a run of positions the share of a source is
off by what two cut blocks are off, at most."""


class Stretch(NamedTuple):
    """Positions with the same weights."""

    start: int
    end: int
    """Where it was planned to end: another weight may have been given before."""
    weights: tuple[int, ...]
    """Of each source; their sum is less than 2**31. 0 for a source that does not come here."""


class Schedule:
    """The sources of the positions of one epoch, by stretches of equal weights; pure.

    A stretch is cut into blocks. Up to the end of each block every source came as often as its
    weight says, within rounding; inside a block the places of all sources are random.

    >>> schedule = Schedule([Stretch(0, LONGEST, (3, 1))], seed=0)
    >>> sources, ranks = schedule.at(np.arange(8))
    >>> sources.tolist(), ranks.tolist()
    ([0, 0, 0, 0, 1, 0, 0, 1], [0, 1, 2, 3, 0, 4, 5, 1])
    >>> schedule.counts(6400)
    [4800, 1600]
    """

    VERSION = 1
    """Raised whenever the same arguments would give another schedule."""

    def __init__(self, stretches: Sequence[Stretch], seed: int, epoch: int = 0) -> None:
        self._stretches = list(stretches)
        self._starts = np.array([one.start for one in stretches], np.int64)
        (self._key,) = keys("mixture", self.VERSION, seed, epoch)
        self._before: list[Counts] = [[0] * len(stretches[0].weights)]
        """How often each source came before each stretch."""
        for one in self._stretches[1:]:
            self._before.append(self.counts(one.start))

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the source of each position (int64[n]), and how often it came before, int64[n]."""
        if len(self._stretches) == 1:
            return self._in_stretch(0, positions)
        sources, ranks = np.empty_like(positions), np.empty_like(positions)
        places = np.searchsorted(self._starts, positions, side="right") - 1
        for place in np.unique(places).tolist():
            own = np.flatnonzero(places == place)
            sources[own], ranks[own] = self._in_stretch(place, positions[own])
        return sources, ranks

    def counts(self, position: int) -> list[int]:
        """Return how often each source came before a position."""
        place = bisect_left([one.start for one in self._stretches], position + 1) - 1
        if place == len(self._before):  # A stretch begins where the one before is cut.
            place -= 1
        stretch = self._stretches[place]
        inside = (position - stretch.start) % _BLOCK
        begin = position - inside
        found = _add(self._before[place], _dealt(begin - stretch.start, stretch.weights))
        if inside:
            sources, _ = self._in_stretch(place, np.arange(begin, position))
            found = _add(found, np.bincount(sources, minlength=len(found)).tolist())
        return found

    def first(self, holds: Callable[[Counts], bool]) -> int:
        """Return the first position before which the counts are such that something holds.

        What holds once must hold for all larger counts, too. `LONGEST` where it never does.
        """
        ends = [*(one.start for one in self._stretches[1:]), LONGEST]
        at = next((at for at, end in enumerate(ends) if holds(self.counts(end))), None)
        if at is None:
            return LONGEST
        start, _, weights = self._stretches[at]
        length, before = ends[at] - start, self._before[at]

        def holds_at(block: int) -> bool:
            return holds(_add(before, _dealt(block * _BLOCK, weights)))

        # The last block at whose beginning it does not hold yet, and then a position in it.
        begin = start + max(0, _first(holds_at, length // _BLOCK + 1) - 1) * _BLOCK
        most = min(_BLOCK, ends[at] - begin)
        return begin + _first(lambda cell: holds(self.counts(begin + cell)), most)

    def _in_stretch(
        self, place: int, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        stretch = self._stretches[place]
        numbers, cells = np.divmod(positions - stretch.start, _BLOCK)
        steps = np.diff(numbers, prepend=-1)
        if (steps >= 0).all():  # Nearly always: positions ascend.
            blocks, which = numbers[steps > 0], np.cumsum(steps > 0) - 1
        else:
            blocks, which = np.unique(numbers, return_inverse=True)
        sources, ranks = self._arranged(stretch, self._before[place], blocks)
        cells += which * _BLOCK
        return sources.reshape(-1)[cells], ranks.reshape(-1)[cells]

    def _arranged(
        self, stretch: Stretch, before: Counts, blocks: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sources in blocks, and how often each came before, int64[blocks, 64] each."""
        begins = blocks * _BLOCK
        last = stretch.end - stretch.start
        cells = np.add.outer(begins, np.arange(_BLOCK))
        numbers = mixed((cells + stretch.start).view(np.uint64), self._key)
        # Cells behind the end of the stretch stand last, where no source reaches.
        numbers[cells >= last] = np.uint64(2**64 - 1)
        order = np.argsort(numbers, axis=1, kind="stable")
        at_begin = _dealt_many(begins, stretch.weights)
        at_end = _dealt_many(np.minimum(begins, last - _BLOCK) + _BLOCK, stretch.weights)
        sorted_sources = np.zeros_like(cells)
        taken = np.zeros_like(begins)
        for first, end in zip(at_begin[:-1], at_end[:-1], strict=True):
            taken += end - first
            sorted_sources += np.less_equal.outer(taken, np.arange(_BLOCK))
        sources, ranks = np.empty_like(cells), np.empty_like(cells)
        np.put_along_axis(sources, order, sorted_sources, axis=1)
        for source, (count, first) in enumerate(zip(before, at_begin, strict=True)):
            own = sources == source
            came = np.cumsum(own, axis=1, dtype=np.int8)
            np.add(came, (first + (count - 1))[:, np.newaxis], out=ranks, where=own)
        return sources, ranks


def _first(holds: Callable[[int], bool], most: int) -> int:
    """Return the first number for which something holds, which it then goes on to do, or `most`."""
    return bisect_left(range(most), 1, key=holds)


def _add(one: Counts, other: Counts) -> list[int]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _dealt(count: int, weights: Counts) -> list[int]:
    """Return how `count` positions are dealt to sources: by weight, within rounding.

    Each source takes its share, rounded, of what those before it leave. A larger count takes
    nothing away from any source.
    """
    found, left = [], sum(weights)
    for weight in weights:
        share = (count * weight + left // 2) // left if weight else 0
        found.append(share)
        count, left = count - share, left - weight
    return found


def _dealt_many(counts: NDArray[np.int64], weights: Counts) -> list[NDArray[np.int64]]:
    """Return what `_dealt` returns for each of many counts, int64[n] for each source."""
    found, left = [], sum(weights)
    for weight in weights:
        # Whole rounds are apart, so that no product is beyond 64 bit.
        rounds, rest = np.divmod(counts, max(1, left))
        share = rounds * weight + (rest * weight + left // 2) // left if weight else counts * 0
        found.append(share)
        counts, left = counts - share, left - weight
    return found
