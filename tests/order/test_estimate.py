from __future__ import annotations

from collections import OrderedDict
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import OptionError
from penstock.order import Order, estimate, share_rows, steps

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCKS, RECORDS = 700, 200
"""Blocks and records in each: more than a window, so that there are lanes."""
SIZES, COUNTS = np.full(BLOCKS, 1000), np.full(BLOCKS, RECORDS)


def counted(
    kind: str, world_size: int, batch_size: int, cache_blocks: int, workers: int = 0
) -> int:
    """Go through an epoch with a cache that drops what was used longest ago; count its misses.

    Each of `workers` is up to two batches ahead, so the batches that a rank has in hand are fetched
    in any order, and so are those of the ranks.
    """
    length = BLOCKS * RECORDS
    order = Order(length, seed=1, kind=kind, blocks=np.arange(0, length + 1, RECORDS))
    cache: OrderedDict[int, None] = OrderedDict()
    misses = 0
    shares = [
        (step, rank)
        for step in range(steps(length, batch_size, world_size, drop_last=False))
        for rank in range(world_size)
    ]
    for step, rank in jumbled(shares, world_size * 2 * workers):
        rows, valid = share_rows(
            step, batch_size, rank, world_size, length, drop_last=False, lanes=order.lanes
        )
        for block in np.unique(order.at(rows[valid]) // RECORDS).tolist():
            misses += block not in cache
            cache[block] = None
            cache.move_to_end(block)
            if len(cache) > cache_blocks:
                cache.popitem(last=False)
    return misses


def jumbled(items: list[tuple[int, int]], hand: int) -> Iterator[tuple[int, int]]:
    """Yield items so that each may overtake others, but none is `hand` ahead of one to come."""
    random = Random(4)
    held: list[int] = []
    taken = 0
    while held or taken < len(items):
        while taken < min(len(items), (held[0] if held else taken) + max(1, hand)):
            held.append(taken)
            taken += 1
        yield items[held.pop(random.randrange(len(held)))]


@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("world_size", [1, 2, 8])
def test_a_cache_that_holds_what_is_open_reads_each_block_once_in_block_order(
    world_size: int, workers: int
) -> None:
    told = estimate(SIZES, "block", world_size, workers, 600_000, block_records=COUNTS)
    assert told.open_bytes <= 600_000
    assert told.requests == BLOCKS
    assert told.bytes == 1000 * BLOCKS
    found = counted("block", world_size, 512 // world_size, told.open_bytes // 1000, workers)
    assert BLOCKS <= found <= 1.05 * BLOCKS


@pytest.mark.parametrize(
    ("kind", "world_size", "batch_size", "cache_blocks"),
    [
        ("full", 1, 256, 0),
        ("full", 2, 16, 350),
        ("full", 1, 256, 700),
        ("block", 1, 256, 0),
        ("block", 8, 64, 0),
        ("sequential", 1, 256, 0),
        ("sequential", 1, 50, 2),
    ],
)
def test_the_estimate_is_near_what_is_counted(
    kind: str, world_size: int, batch_size: int, cache_blocks: int
) -> None:
    found = counted(kind, world_size, batch_size, cache_blocks)
    told = estimate(
        SIZES,
        kind,
        world_size,
        cache_bytes=1000 * cache_blocks,
        block_records=COUNTS,
        batch_size=batch_size,
    )
    assert 0.75 * found <= told.requests <= 1.25 * found


@given(
    count=st.integers(0, 3000),
    records=st.integers(1, 500),
    world_size=st.integers(1, 100),
    cache=st.integers(0, 10**7),
    batch_size=st.integers(1, 5000),
)
def test_a_larger_cache_never_costs_more_and_every_block_is_read(
    count: int, records: int, world_size: int, cache: int, batch_size: int
) -> None:
    sizes, counts = np.full(count, 1000), np.full(count, records)
    for kind in ("sequential", "full", "block"):
        less, more = (
            estimate(sizes, kind, world_size, 2, each, block_records=counts, batch_size=batch_size)
            for each in (cache, 2 * cache)
        )
        assert count <= more.requests <= less.requests
        assert less.bytes == 1000 * less.requests


def test_block_order_does_not_grow_with_the_cluster_and_full_order_does() -> None:
    sizes = np.full(100_000, 2**20)
    block = estimate(sizes, "block", 64, 4, 2**40, hosts=8)
    full = estimate(sizes, "full", 64, 4, 2**40, hosts=8)
    assert block.requests == 100_007
    assert full.requests == 800_000
    # Seven ranks do not divide the lanes: they take slices, and every host needs every block.
    assert estimate(sizes, "block", 7, 4, 2**40, hosts=7).requests == 700_000


def test_no_blocks_and_empty_ones_cost_nothing() -> None:
    assert estimate(np.empty(0, np.int64), "full").requests == 0
    some = estimate(
        np.array([10, 10, 0]), "full", cache_bytes=100, block_records=np.array([3, 2, 0])
    )
    assert (some.requests, some.bytes) == (2, 20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "blocks"}, "sequential, full, block"),
        ({"world_size": 0}, "world_size=0"),
        ({"workers": -1}, "workers=-1"),
        ({"cache_bytes": -1}, "cache_bytes=-1"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"hosts": 0}, "hosts=0"),
        ({"hosts": 2}, "hosts=2: there may be at most 1"),
        ({"block_records": None}, "give block_records"),
        ({"block_records": np.array([1])}, "1 block_records for 700"),
        ({"block_bytes": np.array([1.5])}, "block_bytes is an array of float64"),
        ({"block_bytes": np.array([-1])}, "block_bytes has -1"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    arguments = {"block_bytes": SIZES, "kind": "full", "block_records": COUNTS} | change
    with pytest.raises(OptionError, match=message):
        estimate(**arguments)
