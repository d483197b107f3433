"""Few large reads instead of many small ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import starmap
from operator import itemgetter

from penstock.storage._meter import carried

GAP = 1 << 20
"""Bytes between two ranges up to which fetching the gap beats a second request."""


def coalesce(ranges: Sequence[tuple[int, int]], gap: int = GAP) -> list[tuple[int, int]]:
    """Return sorted, disjoint `(start, length)` reads that cover all ranges."""
    merged: list[tuple[int, int]] = []
    for start, length in sorted(filter(itemgetter(1), ranges)):
        if merged and start <= sum(merged[-1]) + gap:
            first, covered = merged[-1]
            merged[-1] = (first, max(covered, start + length - first))
        else:
            merged.append((start, length))
    return merged


def read_coalesced(
    read_at: Callable[[int, int], bytes], ranges: Sequence[tuple[int, int]], threads: int = 1
) -> list[bytes]:
    """Return the bytes of each range, in the order asked, through coalesced reads."""
    reads = coalesce(ranges)
    if min(threads, len(reads)) > 1:
        with ThreadPoolExecutor(min(threads, len(reads)), "penstock-read") as pool:
            found = [*pool.map(carried(read_at), *zip(*reads, strict=True))]
    else:
        found = [*starmap(read_at, reads)]
    blocks = dict(zip(map(itemgetter(0), reads), found, strict=True))
    starts = [*blocks]
    pieces = []
    for start, length in ranges:
        if not length:
            pieces.append(b"")
            continue
        first = starts[bisect_right(starts, start) - 1]
        pieces.append(blocks[first][start - first : start - first + length])
    return pieces
