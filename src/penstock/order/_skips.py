"""Records to leave out: sorted ranges, and the numbers of those kept."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, SupportsIndex, TypeAlias, cast

import numpy as np

from penstock.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Skip: TypeAlias = "Iterable[int | Iterable[int]] | NDArray[np.int64]"
"""Record numbers and (start, stop) ranges, mixed; or an int64 array of [n] numbers or [n, 2]."""


class Skips:
    """The records that a run leaves out; the kept ones are numbered by rank.

    Memory is that of the ranges, whatever the length.

    >>> import numpy as np
    >>> skips = Skips([7, (2, 4), 3, 4], length=10)
    >>> skips.ranges, skips.kept
    (((2, 5), (7, 8)), 6)
    >>> skips.records(np.arange(6)).tolist()
    [0, 1, 5, 6, 8, 9]
    >>> skips.ranks(np.array([0, 3, 6, 10])).tolist()
    [0, 2, 3, 6]
    """

    def __init__(self, skip: Skip, length: int) -> None:
        starts, stops = _disjoint(*_ranges(skip, length))
        self._starts, self._stops = starts, stops
        self._widths = stops - starts
        self._skipped = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._widths)])
        self.kept = length - int(self._skipped[-1])

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The sorted, disjoint (start, stop) ranges of records left out."""
        return tuple(zip(self._starts.tolist(), self._stops.tolist(), strict=True))

    def records(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the record numbers of ranks among those kept, int64 of the same shape."""
        if not self._starts.size:
            return ranks
        passed = np.searchsorted(self._starts - self._skipped[:-1], ranks, side="right")
        records: NDArray[np.int64] = ranks + self._skipped[passed]
        return records

    def ranks(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many kept records stand before each record number, int64, same shape."""
        if not self._starts.size:
            return records
        last = np.searchsorted(self._starts, records, side="right") - 1
        inside = np.minimum(records - self._starts[last], self._widths[last])
        return records - np.where(last < 0, 0, self._skipped[last] + inside)

    def hold(self, records: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which record numbers are among those left out, bool of the same shape."""
        begun = np.searchsorted(self._starts, records, side="right")
        held: NDArray[np.bool_] = begun > np.searchsorted(self._stops, records, side="right")
        return held

    def without(self, other: Skips) -> tuple[tuple[int, int], ...]:
        """Return the ranges that are left out here and not in `other`."""
        ends = np.unique(np.concatenate([self._starts, self._stops, other._starts, other._stops]))
        starts, stops = ends[:-1], ends[1:]
        here = self.hold(starts) & ~other.hold(starts)
        starts, stops = _disjoint(starts[here], stops[here])
        return tuple(zip(starts.tolist(), stops.tolist(), strict=True))


def _ranges(skip: Skip, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return starts and stops (int64[n] each) as they were given, checked."""
    if isinstance(skip, np.ndarray):
        if not (skip.ndim == 1 or skip.shape[1:] == (2,)) or (
            skip.size and skip.dtype.kind not in "iu"
        ):
            raise OptionError(
                f"skip is an array of {skip.dtype}{list(skip.shape)}; give integers, "
                "[n] record numbers or [n, 2] ranges (start, stop)."
            )
        pairs = skip.astype(np.int64)
        if pairs.ndim == 1:
            pairs = np.stack([pairs, pairs + 1], axis=1)
    elif not isinstance(skip, Iterable):
        raise OptionError(f"skip={skip!r}: give a list of record numbers or ranges (start, stop).")
    else:
        pairs = np.array([_pair(entry) for entry in skip], dtype=object).reshape(-1, 2)
    bad = (pairs[:, 0] < 0) | (pairs[:, 1] > length) | (pairs[:, 0] > pairs[:, 1])
    if bad.any():
        start, stop = pairs[np.argmax(bad)].tolist()
        raise OptionError(
            f"skip: records {start:,} to {stop:,} do not lie in a dataset of {length:,}; "
            "give numbers below its length, or ranges (start, stop) with start ≤ stop."
        )
    pairs = pairs.astype(np.int64)
    return pairs[:, 0], pairs[:, 1]


def _pair(entry: int | Iterable[int]) -> tuple[int, int]:
    if isinstance(entry, SupportsIndex) and not isinstance(entry, bool):
        return operator.index(entry), operator.index(entry) + 1
    try:
        start, stop = cast("Iterable[int]", entry)
        return operator.index(start), operator.index(stop)
    except (TypeError, ValueError):
        raise OptionError(
            f"skip has the entry {entry!r}; give record numbers or ranges (start, stop)."
        ) from None


def _disjoint(
    starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the same records as sorted ranges that neither overlap nor touch."""
    full = starts < stops
    order = np.argsort(starts[full], kind="stable")
    starts, stops = starts[full][order], stops[full][order]
    reach = np.maximum.accumulate(stops)
    first = np.ones(len(starts), dtype=bool)
    first[1:] = starts[1:] > reach[:-1]
    last = np.append(first[1:], True)[: len(starts)]
    return starts[first], reach[last]
