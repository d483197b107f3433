"""Random-looking numbers by key and counter, and a keyed permutation made of them."""

from __future__ import annotations

import hashlib
import math
import operator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penstock._words import counted
from penstock.errors import OptionError, RecordIndexError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LONGEST = 2**63
_ROUNDS = 8
_SORTED_BELOW = 4096
"""Shorter ones are a sort of random numbers: a network over few values is not uniform."""
_STRETCH = 16_384
"""Numbers that go through the network together, so that every step stays in the cache."""
_HALF = np.uint64(32)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ by the golden ratio."""


def keys(purpose: str, *numbers: int, count: int = 1) -> list[int]:
    """Return 64-bit keys (at most 8) that depend on a purpose and on integers of any size."""
    text = " ".join([purpose, *map(str, map(int, numbers))])
    digest = hashlib.blake2b(text.encode(), digest_size=8 * count).digest()
    return [int.from_bytes(digest[at : at + 8], "little") for at in range(0, 8 * count, 8)]


def mixed(counters: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Return uint64 numbers that look independent and uniform, one for each counter (uint64).

    Under one key different counters give different numbers.
    """
    state = counters * GOLDEN  # Spreads neighbouring counters.
    state += np.uint64(key)
    return stirred(state)


def stirred(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix numbers in place, one to one and without any pattern, and return them.

    Twice a shift brings the high bits down, and a multiplication brings the low ones up: the end of
    SplitMix64 (Steele, Lea and Flood, 2014).
    """
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return state


class Permutation:
    """All numbers from 0 to `length - 1` in an order decided by `seed` and `epoch`.

    A pure function of (length, seed, epoch, `VERSION`): nothing is stored, so any window of an
    order of 10⁹ costs what the window costs, and a copy in another process agrees.

    >>> import numpy as np
    >>> order = Permutation(10, seed=1)
    >>> order.positions(0, 10).tolist()
    [1, 5, 9, 0, 8, 6, 2, 7, 3, 4]
    >>> order.positions(4, 6).tolist(), order.at(np.array([5, 4])).tolist()
    ([8, 6], [6, 8])
    >>> Permutation(10**18, seed=1).positions(5 * 10**17, 5 * 10**17 + 2).tolist()
    [295150361168140217, 88029096172671642]
    """

    VERSION: ClassVar[int] = 1
    """Raised whenever the same arguments would give another order."""

    def __init__(self, length: int, seed: int = 0, epoch: int = 0) -> None:
        self.length = operator.index(length)
        self.seed = operator.index(seed)
        self.epoch = operator.index(epoch)
        if not 0 <= self.length <= _LONGEST:
            raise OptionError(f"length={length}: a permutation has from 0 to 2**63 numbers.")
        numbers = (self.VERSION, self.length, self.seed, self.epoch)
        self._keys = keys("permutation", *numbers, count=_ROUNDS)
        # A number x is the pair (x // columns, x % columns) of a grid that is nearly a square;
        # the grid has fewer than `rows` cells too many, so hardly any number walks twice.
        self._rows = math.isqrt(max(0, self.length - 1)) + 1
        self._columns = -(-self.length // self._rows)
        self._table: NDArray[np.int64] | None = None
        if self.length < _SORTED_BELOW:
            self._table = np.argsort(mixed(np.arange(self.length, dtype=np.uint64), self._keys[0]))

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"Permutation({self.length}, seed={self.seed}, epoch={self.epoch})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Permutation) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__reduce__())

    def __reduce__(self) -> tuple[type[Permutation], tuple[int, int, int]]:
        return Permutation, (self.length, self.seed, self.epoch)

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the numbers that stand at `start` … `stop - 1`, int64[stop - start]."""
        return self._through(stretch_of(start, stop, self.length))

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers that stand at positions (integers), int64 of the same shape."""
        return self._through(checked_positions(positions, self.length).astype(np.uint64))

    def _through(self, values: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Send values through the permutation; `values` is used up."""
        if self._table is not None:
            return self._table[values.astype(np.int64)]
        flat = values.reshape(-1)
        for start in range(0, len(flat), _STRETCH):
            stretch = flat[start : start + _STRETCH]
            stretch[:] = self._once(stretch)
            # A cell beyond the end goes on until it is inside; every cycle of the grid has as many
            # ways in as out, so what remains is a permutation of the numbers inside.
            while (outside := np.flatnonzero(stretch >= np.uint64(self.length))).size:
                stretch[outside] = self._once(stretch[outside])
        return flat.view(np.int64).reshape(values.shape)

    def _once(self, cells: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Send cells through the network once: each round adds a hash of one half to the other."""
        sizes = [np.uint64(self._rows), np.uint64(self._columns)]
        row = cells // sizes[1]
        halves = [row, cells - row * sizes[1]]
        for number in range(_ROUNDS):
            side = number % 2
            size = sizes[side]
            step = _below(size, halves[1 - side], self._keys[number])
            half = halves[side]
            half += step
            # Unsigned, so of x and x - size the one inside the grid is the smaller one.
            np.minimum(half, half - size, out=half)
        halves[0] *= sizes[1]
        halves[0] += halves[1]
        return halves[0]


def stretch_of(start: int, stop: int, length: int) -> NDArray[np.uint64]:
    """Return `start` … `stop - 1`, if they lie in an order of so many records."""
    start, stop = operator.index(start), operator.index(stop)
    if not 0 <= start <= stop <= length:
        raise RecordIndexError(
            f"positions {start:,} to {stop:,} do not lie in an order of "
            f"{counted(length, 'record')}."
        )
    return np.uint64(start) + np.arange(stop - start, dtype=np.uint64)


def checked_positions(positions: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return positions as an array of integers, if they lie in an order of so many records."""
    array = np.asarray(positions)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"positions are integers, not {array.dtype}")
    bad = (array < 0) | (array >= length)
    if bad.any():
        raise RecordIndexError(
            f"position {array[bad].flat[0]} does not lie in an order of "
            f"{counted(length, 'record')}."
        )
    return array


def _below(size: np.uint64, half: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """Return a hash of each half (below 2**32) that is smaller than `size` (at most 2**32)."""
    state = half + np.uint64(key)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> _HALF
    state *= np.uint64(0x94D049BB133111EB)
    state >>= _HALF
    state *= size
    state >>= _HALF
    return state
