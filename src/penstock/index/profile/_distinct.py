"""The estimated number of different values, and a few of them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_KEPT = 2048
"""Hashes; the estimate is within 2.2 % two times out of three, and exact for fewer values."""
_EXAMPLES = 4
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Distinct:
    """The smallest hashes of values: repeats and the order change nothing.

    >>> seen = Distinct()
    >>> seen.add(hash_texts(["a", "b", "a"]), ["a", "b", "a"].__getitem__)
    >>> seen.estimate, seen.is_exact, sorted(seen.examples)
    (2, True, ['a', 'b'])
    """

    def __init__(
        self,
        hashes: NDArray[np.uint64] | None = None,
        examples: Sequence[object] = (),
    ) -> None:
        self.hashes = np.empty(0, np.uint64) if hashes is None else hashes
        """Ascending."""
        self.examples = list(examples)
        """The values of the first few hashes."""

    def add(self, hashes: NDArray[np.uint64], value_at: Callable[[int], object]) -> None:
        """Count values by their hashes; `value_at` gives the one at an index."""
        if len(self.hashes) == _KEPT:
            # Nearly always nothing is left: new values have larger hashes.
            at = np.flatnonzero(hashes < self.hashes[-1])
            if not len(at):
                return
            new = _unique(hashes[at])
        else:
            new = _unique(hashes)
        examples = []
        for one in new[:_EXAMPLES]:
            index = int(np.argmax(hashes == one))
            examples.append(value_at(index))
        self._take(new[:_KEPT], examples)

    def merge(self, other: Distinct) -> None:
        """Add the values of another."""
        self._take(other.hashes, other.examples)

    @property
    def is_exact(self) -> bool:
        """Whether the estimate is exact."""
        return len(self.hashes) < _KEPT

    @property
    def estimate(self) -> int:
        """The number of different values."""
        if self.is_exact:
            return len(self.hashes)
        return round((_KEPT - 1) * 2.0**64 / float(self.hashes[-1]))

    def _take(self, hashes: NDArray[np.uint64], examples: list[object]) -> None:
        values = dict(zip(self.hashes[:_EXAMPLES].tolist(), self.examples, strict=True))
        values |= dict(zip(hashes[:_EXAMPLES].tolist(), examples, strict=True))
        self.hashes = _unique(np.concatenate([self.hashes, hashes]))[:_KEPT]
        self.examples = [values[one] for one in self.hashes[:_EXAMPLES].tolist()]


def _unique(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # Ten times as quick as `np.unique`, which hashes them once more.
    ordered = np.sort(hashes)
    if not len(ordered):
        return ordered
    is_new = np.empty(len(ordered), bool)
    is_new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]


def hash_ints(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a hash for each integer, the same everywhere and always."""
    return _mixed(values.view(np.uint64))


def hash_floats(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return a hash for each float; 0.0 and -0.0 are one value, and so is every NaN."""
    plain = values + 0.0
    plain[np.isnan(plain)] = np.nan
    return _mixed(plain.view(np.uint64))


def hash_texts(values: Sequence[str]) -> NDArray[np.uint64]:
    """Return a hash for each text."""
    try:
        return hash_bytes(list(map(str.encode, values)))
    except UnicodeEncodeError:
        return hash_bytes([value.encode("utf-8", "surrogatepass") for value in values])


def hash_bytes(values: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return a hash for each run of bytes."""
    # Python's own hash differs from process to process; a checksum and the length are quicker
    # than any hash function, and unequal for unequal values as often as 32 bits can be.
    sums = np.fromiter(map(crc32, values), np.uint64, len(values))
    lengths = np.fromiter(map(len, values), np.uint64, len(values))
    return _mixed(sums | (lengths << np.uint64(32)))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the numbers mixed: one to one, without any pattern.

    The constants and shifts are those of SplitMix64 (Steele, Lea and Flood, 2014).
    """
    mixed = values + _GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed
