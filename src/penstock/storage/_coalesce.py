"""Few large reads instead of many small ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.storage._meter import carried

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = 1 << 20
"""Bytes between two ranges up to which fetching the gap beats a second request."""
_FEW_READS = 2
_MOST_READS = 16


def coalesce(ranges: Sequence[tuple[int, int]], gap: int = GAP) -> list[tuple[int, int]]:
    """Return sorted, disjoint `(start, length)` reads that cover all ranges.

    >>> coalesce([(100, 10), (0, 10), (5_000_000, 1)])
    [(0, 110), (5000000, 1)]
    """
    merged: list[tuple[int, int]] = []
    for start, length in sorted(r for r in ranges if r[1]):
        if merged and start <= sum(merged[-1]) + gap:
            first, covered = merged[-1]
            merged[-1] = (first, max(covered, start + length - first))
        else:
            merged.append((start, length))
    return merged


ReadAt = Callable[[int, int], bytes]


def one_by_one(read_at: ReadAt, reads: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return the bytes of each read."""
    return [read_at(start, length) for start, length in reads]


def at_once(read_at: ReadAt, reads: Sequence[tuple[int, int]]) -> list[bytes]:
    """Do the same by many threads, because each read waits for a network."""
    if len(reads) < _FEW_READS:
        return one_by_one(read_at, reads)
    with ThreadPoolExecutor(min(_MOST_READS, len(reads)), "penstock-read") as pool:
        return list(pool.map(carried(read_at), *zip(*reads, strict=True)))


def read_coalesced(
    read_at: ReadAt,
    ranges: Sequence[tuple[int, int]],
    read_all: Callable[[ReadAt, Sequence[tuple[int, int]]], list[bytes]] = one_by_one,
) -> list[bytes]:
    """Return the bytes of each range, in the order asked, through coalesced reads."""
    reads = coalesce(ranges)
    blocks = dict(zip((start for start, _ in reads), read_all(read_at, reads), strict=True))
    starts = [start for start, _ in reads]
    pieces = []
    for start, length in ranges:
        if not length:
            pieces.append(b"")
            continue
        first = starts[bisect_right(starts, start) - 1]
        pieces.append(blocks[first][start - first : start - first + length])
    return pieces
