"""Records drawn with replacement, each as often as its weight says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock.errors import OptionError
from penstock.order._permutation import checked_positions, keys, mixed, stretch_of
from penstock.order._skips import Skips
from penstock.order._whole import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from penstock.order._skips import Skip

_HALF = np.uint64(32)
_LOW = np.uint64(2**32 - 1)
_FULL = 2**32
"""The weight of one cell: a draw of 32 bits decides between its two records."""
_MOST = 2**31
"""Records, so that all cells together weigh less than 2**63."""
_STRETCH = 1 << 20
"""Weights that are worked on together, so that little memory is needed beside the table."""


@dataclass(frozen=True, slots=True, eq=False)
class Weighted:
    """Weights of records, and how many are drawn in an epoch; `DataLoader(weights=…)` takes it.

    >>> Weighted([0.5, 1, 3], length=100).length
    100
    """

    weights: Any
    """An array with a number for each record, or the name of the field that has it."""
    length: int | None = None
    """Positions of an epoch; as many as there are records unless given."""

    def __post_init__(self) -> None:
        if self.length is not None:
            object.__setattr__(self, "length", whole_number("length", self.length, 1))


class WeightedOrder:
    """The records of a dataset drawn with replacement; a `RecordOrder`.

    The record at a position is a pure function of weights, seed, epoch and position: a hash chooses
    a cell of an alias table, and one of its two records.

    >>> table = alias_table(np.array([1.0, 0.0, 3.0]))
    >>> order = WeightedOrder(3, table=lambda: table, draws=4000)
    >>> np.bincount(order.positions(0, 4000), minlength=3).tolist()
    [982, 0, 3018]
    """

    VERSION: ClassVar[int] = 1
    kind = "weighted"
    lanes = 1
    repeats = True

    def __init__(  # noqa: PLR0913 (what a draw depends on, and what a state has of it)
        self,
        length: int,
        *,
        seed: int = 0,
        epoch: int = 0,
        skip: Skip = (),
        draws: int | None = None,
        table: Callable[[], NDArray[np.uint32]] | None = None,
        **_: object,
    ) -> None:
        """Make the order of one epoch.

        Args:
            length: Records, with those that are skipped.
            seed: Decides the draws, with the epoch.
            epoch: The same draws never come in two epochs.
            skip: Records that are never drawn.
            draws: Positions of the epoch; None for as many as records are kept.
            table: Returns the alias table of the records that are kept, when the first is drawn.
        """
        self._skips = Skips(skip, length)
        self._draws = self._skips.kept if draws is None else draws
        self._find = table
        self._table: NDArray[np.uint32] | None = None
        (self._key,) = keys("weighted", self.VERSION, seed, epoch)

    def __len__(self) -> int:
        return self._draws

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the record numbers that stand at `start` … `stop - 1`, int64[stop - start]."""
        return self._drawn(stretch_of(start, stop, self._draws))

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the record numbers that stand at positions (integers), int64 of the same shape."""
        return self._drawn(checked_positions(positions, self._draws).astype(np.uint64))

    def _drawn(self, positions: NDArray[np.uint64]) -> NDArray[np.int64]:
        if self._table is None:
            assert self._find is not None  # noqa: S101 (only a length was asked for so far)
            self._table = self._find()
        table = self._table
        # A number of 64 bits times the cells, as two halves: the high part is the cell, and the 32
        # bits behind it are a place in the cell.
        size = np.uint64(len(table))
        numbers = mixed(positions, self._key)
        product = (numbers >> _HALF) * size + (((numbers & _LOW) * size) >> _HALF)
        cells = (product >> _HALF).astype(np.int64)
        own, other = table[cells, 0], table[cells, 1]
        return self._skips.records(np.where((product & _LOW) < own, cells, other))


def alias_table(weights: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Return the alias table of weights (finite, none below 0, some above), uint32[n, 2].

    Cell i holds record i and another one: a draw takes record i with probability
    `table[i, 0] / 2**32`, else record `table[i, 1]`. The table is the same on every machine.
    """
    if len(weights) >= _MOST:
        raise OptionError(f"{len(weights):,} weights: at most {_MOST - 1:,} records have some.")
    shares = _shares(weights)
    # Records lighter than a cell leave room in theirs, the others have a surplus. Both stand in
    # line: a light cell is filled up by the heavy record whose turn it is. One that has given too
    # much away is filled up by the next heavy one. Sums up to each say whose turn it is.
    light = np.flatnonzero(shares < _FULL).astype(np.uint32)
    heavy = np.flatnonzero(shares > _FULL).astype(np.uint32)
    before = np.zeros(len(light) + 1, np.int64)
    np.cumsum(_FULL - shares[light], out=before[1:])
    room, surplus = before[1:], np.cumsum(shares[heavy] - _FULL)
    table = shares.view(np.uint32).reshape(-1, 2)  # In the memory of the shares.
    for part in _parts(len(shares)):
        own = np.minimum(shares[part], _FULL - 1)
        table[part, 0], table[part, 1] = own, np.arange(part.start, part.stop)
    for part in _parts(len(light)):
        table[light[part], 1] = heavy[np.searchsorted(surplus, before[part], side="right")]
    for part in _parts(len(heavy)):
        given = room[np.searchsorted(room, surplus[part])] - surplus[part]
        rows = np.flatnonzero(given)
        lent = part.start + rows
        table[heavy[lent], 0] = _FULL - given[rows]
        table[heavy[lent], 1] = heavy[lent + 1]
    return table


def _parts(count: int) -> Iterator[slice]:
    return (slice(at, min(at + _STRETCH, count)) for at in range(0, count, _STRETCH))


def _shares(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return weights as whole numbers whose sum is that of all cells, int64[n].

    0 stays 0, all others are at least 1. A share is off by less than 2**-29 of itself, or of the
    average if that is more.
    """
    count, positive = len(weights), int(np.count_nonzero(weights))
    # Sums and products of powers of two are exact, so that no machine rounds in another way.
    largest = int(np.frexp(weights.max())[1])
    units = 0
    for part in _parts(count):
        scaled = np.ldexp(weights[part], -largest)
        high = np.floor(np.ldexp(scaled, 30))
        low = np.rint(np.ldexp(scaled - np.ldexp(high, -30), 62))
        units += (int(high.astype(np.int64).sum()) << 32) + int(low.astype(np.int64).sum())
    # A little less than all, so that what rounding up to 1 adds has room.
    scale = ((count * _FULL - 4 * positive) << 62) / units
    shares = np.empty(count, np.int64)
    left = count * _FULL
    for part in _parts(count):
        own = (np.ldexp(weights[part], -largest) * scale).astype(np.int64)
        shares[part] = np.maximum(own, weights[part] > 0)
        left -= int(shares[part].sum())
    each, rest = divmod(left, positive)
    for part in _parts(count):
        own = shares[part]
        own[own > 0] += each
        first = np.flatnonzero(own)[:rest]
        own[first] += 1
        rest -= len(first)
    return shares
