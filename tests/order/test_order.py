from __future__ import annotations

import pickle
import subprocess
import sys
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import OptionError, RecordIndexError
from penstock.order import Order, Permutation, Skips, clip_blocks
from tests.rounds import rounds

SEEDS = st.integers(-(2**70), 2**70)
EPOCHS = st.integers(0, 2**40)
KINDS = st.sampled_from(["sequential", "full", "block"])
FEW = settings(max_examples=rounds(8, 60))
"""An order with lanes has more than 65,536 records, which takes a while."""


@st.composite
def blocks_of(draw: st.DrawFn, length: int) -> np.ndarray:
    """Draw block borders of a length: few or many, some of them empty."""
    inner = draw(st.lists(st.integers(0, length), max_size=20))
    return np.array([0, *sorted(inner), length])


@st.composite
def skips_of(draw: st.DrawFn, length: int) -> list[int | tuple[int, int]]:
    """Draw record numbers and ranges that overlap, touch, repeat and may be empty."""
    if length == 0:
        return []
    ranges = st.tuples(st.integers(0, length), st.integers(0, length)).map(
        lambda pair: (min(pair), max(pair))
    )
    return draw(st.lists(st.one_of(st.integers(0, length - 1), ranges), max_size=6))


def left(length: int, skip: list[int | tuple[int, int]]) -> list[int]:
    """Return the records that are not skipped, the slow way."""
    gone: set[int] = set()
    for entry in skip:
        gone.update([entry] if isinstance(entry, int) else range(*entry))
    return [record for record in range(length) if record not in gone]


def laned(
    length: int = 70_000, block: int = 500, seed: int = 0, epoch: int = 0, **more: object
) -> Order:
    borders = np.append(np.arange(0, length, block), length)
    return Order(length, seed=seed, epoch=epoch, kind="block", blocks=borders, **more)


def all_of(order: Order) -> np.ndarray:
    return order.positions(0, len(order))


@given(length=st.integers(0, 200), seed=SEEDS, epoch=EPOCHS, kind=KINDS, data=st.data())
def test_every_record_that_is_not_skipped_comes_exactly_once(
    length: int, seed: int, epoch: int, kind: str, data: st.DataObject
) -> None:
    blocks = data.draw(blocks_of(length))
    skip = data.draw(skips_of(length))
    order = Order(length, seed=seed, epoch=epoch, kind=kind, blocks=blocks, skip=skip)
    kept = left(length, skip)
    records = all_of(order)
    assert records.dtype == np.int64
    assert len(order) == len(kept)
    assert sorted(records.tolist()) == kept
    if kind == "sequential":
        assert records.tolist() == kept


@FEW
@given(length=st.integers(66_000, 90_000), seed=SEEDS, epoch=EPOCHS, data=st.data())
def test_every_record_comes_exactly_once_in_lanes(
    length: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(129, 3000))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    inner = np.sort(random.integers(0, length, count))
    order = Order(
        length, seed=seed, epoch=epoch, kind="block", blocks=np.array([0, *inner, length])
    )
    assert np.array_equal(np.sort(all_of(order)), np.arange(length))


@FEW
@given(seed=SEEDS, data=st.data())
def test_skipped_records_are_left_out_of_lanes(seed: int, data: st.DataObject) -> None:
    skip = data.draw(st.lists(st.integers(0, 99_990).map(lambda at: (at, at + 9)), max_size=50))
    order = laned(100_000, 100, seed, skip=[*skip, 5, (200, 500)])
    kept = np.ones(100_000, dtype=bool)
    kept[[5, *range(200, 500), *(record for pair in skip for record in range(*pair))]] = False
    assert order.lanes == 64
    assert np.array_equal(np.sort(all_of(order)), np.flatnonzero(kept))


@given(length=st.integers(1, 200), kind=KINDS, data=st.data())
def test_a_window_is_a_part_of_the_whole(length: int, kind: str, data: st.DataObject) -> None:
    skip = data.draw(skips_of(length))
    order = Order(length, kind=kind, blocks=data.draw(blocks_of(length)), skip=skip)
    whole = all_of(order)
    start = data.draw(st.integers(0, len(order)))
    stop = data.draw(st.integers(start, len(order)))
    assert np.array_equal(order.positions(start, stop), whole[start:stop])
    some = np.arange(start, stop)[::-2]
    assert np.array_equal(order.at(some), whole[some])


@FEW
@given(seed=SEEDS, data=st.data())
def test_a_window_of_lanes_is_a_part_of_the_whole(seed: int, data: st.DataObject) -> None:
    order = laned(seed=seed)
    whole = all_of(order)
    asked = laned(seed=seed)
    for _ in range(5):
        start = data.draw(st.integers(0, 70_000))
        stop = min(70_000, start + data.draw(st.integers(0, 3000)))
        assert np.array_equal(asked.positions(start, stop), whole[start:stop])
        assert np.array_equal(asked.at(np.arange(start, stop, 8)), whole[start:stop:8])


def test_what_a_caller_does_to_a_result_does_not_spoil_the_order() -> None:
    order = laned()
    whole = all_of(order)
    for start in range(0, 70_000 - 100, 9000):
        order.positions(start, start + 100)[:] = -1
        assert np.array_equal(order.positions(start, start + 100), whole[start : start + 100])


@given(length=st.integers(0, 300), seed=SEEDS, epoch=EPOCHS)
def test_full_order_is_the_permutation_and_block_order_of_one_window_too(
    length: int, seed: int, epoch: int
) -> None:
    expected = Permutation(length, seed, epoch).positions(0, length)
    assert np.array_equal(all_of(Order(length, seed=seed, epoch=epoch)), expected)
    block = Order(length, seed=seed, epoch=epoch, kind="block", blocks=np.array([0, length]))
    assert np.array_equal(all_of(block), expected)
    assert block.lanes == 1


def test_the_orders_are_the_same_in_every_release() -> None:
    assert Order.VERSION == 1
    assert Order(10, seed=1, skip=[4]).positions(0, 9).tolist() == [7, 5, 0, 3, 8, 2, 1, 6, 9]
    assert laned().positions(0, 8).tolist() == [
        22003,
        30509,
        61523,
        11043,
        54328,
        58325,
        65333,
        63362,
    ]
    late = laned(1_000_000, 3001, seed=-5, epoch=2, skip=[(10, 20_000), 77_777])
    assert late.positions(900_000, 900_008).tolist() == [
        836680,
        82788,
        24659,
        377559,
        966215,
        340940,
        541248,
        538417,
    ]


def test_another_process_finds_the_same_block_order() -> None:
    program = (
        "import numpy as np; from penstock.order import Order;"
        "order = Order(70_000, seed=5, kind='block', blocks=np.arange(0, 70_001, 500));"
        "print(order.positions(1000, 1010).tolist())"
    )
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert out.stdout.decode().strip() == str(laned(seed=5).positions(1000, 1010).tolist())


@pytest.mark.parametrize("other", [{"seed": 1}, {"epoch": 1}, {"length": 70_001}, {"block": 499}])
def test_seed_epoch_length_and_blocks_all_change_a_block_order(other: dict[str, int]) -> None:
    first, second = all_of(laned()), all_of(laned(**other))[:70_000]
    # Unrelated orders agree at one position on average.
    assert np.count_nonzero(first == second) < 20


@pytest.mark.parametrize("world_size", [1, 2, 4, 8, 16, 32, 64])
def test_ranks_that_take_whole_lanes_share_no_block_but_those_at_their_borders(
    world_size: int,
) -> None:
    length, block = 200_000, 307
    blocks = all_of(laned(length, block)) // block
    reads = sum(len(np.unique(blocks[rank::world_size])) for rank in range(world_size))
    assert reads <= len(np.unique(blocks)) + world_size - 1


def test_few_blocks_of_a_block_order_are_open_at_a_time() -> None:
    length, block = 600_000, 600
    blocks = all_of(laned(length, block)) // block
    position = np.arange(length)
    first, last = np.full(1000, length), np.zeros(1000, np.int64)
    np.minimum.at(first, blocks, position)
    np.maximum.at(last, blocks, position)
    opened = np.bincount(first, minlength=length) - np.bincount(last, minlength=length)
    # Two blocks in the window of each lane, and one at each of its ends.
    assert np.cumsum(opened).max() <= 64 * 4


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("block", [100, 300])
def test_records_of_a_block_order_go_as_far_as_in_a_full_one(seed: int, block: int) -> None:
    length = 200_000
    records = all_of(laned(length, block, seed))
    moved = np.abs(records - np.arange(length)) / length
    full = np.abs(all_of(Order(length, seed=seed)) - np.arange(length)) / length
    # The distance of two uniform numbers has mean 1/3 and deviation √(1/18); here the blocks are
    # what is uniform, so there are as many independent distances as blocks.
    assert abs(moved.mean() - 1 / 3) < 4 * sqrt(1 / 18) / sqrt(length / block)
    # The largest difference of the two distributions, for so many independent values, is
    # 1.95 / √blocks once in a thousand times.
    bins = np.linspace(0, 1, 101)
    apart = np.histogram(moved, bins)[0].cumsum() - np.histogram(full, bins)[0].cumsum()
    assert np.abs(apart).max() / length < 1.95 / sqrt(length / block)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_neighbours_of_a_block_order_do_not_stay_neighbours(seed: int) -> None:
    records = all_of(laned(200_000, 300, seed))
    # In a full order two pairs are expected; more than ten come once in 10⁵ times.
    assert np.count_nonzero(np.abs(np.diff(records)) == 1) <= 10


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("block", [100, 300, 1000])
def test_a_batch_of_a_block_order_comes_from_many_blocks(seed: int, block: int) -> None:
    length = 200_000
    blocks = all_of(laned(length, block, seed))[: length // 1024 * 1024] // block
    for batch in blocks.reshape(-1, 1024):
        counts = np.bincount(batch)
        assert np.count_nonzero(counts) >= 64
        # A block lies in two lanes at most, and each gives 1/64 of a batch.
        assert counts.max() <= 1024 * 2 / 64


def test_the_blocks_of_an_epoch_come_in_another_order_in_the_next() -> None:
    def firsts(epoch: int) -> np.ndarray:
        blocks = all_of(laned(200_000, 300, epoch=epoch)) // 300
        return np.unique(blocks, return_index=True)[1].astype(np.float64)

    # Of 667 unrelated pairs the correlation has a deviation of 0.04.
    assert abs(np.corrcoef(firsts(0), firsts(1))[0, 1]) < 0.2


@given(length=st.integers(0, 200), data=st.data())
def test_skips_become_sorted_ranges_that_do_not_touch(length: int, data: st.DataObject) -> None:
    skip = data.draw(skips_of(length))
    skips = Skips(skip, length)
    kept = left(length, skip)
    ends = [end for pair in skips.ranges for end in pair]
    assert ends == sorted(set(ends))
    assert left(length, list(skips.ranges)) == kept
    assert skips.records(np.arange(len(kept))).tolist() == kept
    before = [sum(record < border for record in kept) for border in range(length + 1)]
    assert skips.ranks(np.arange(length + 1)).tolist() == before


@given(length=st.integers(0, 200), data=st.data())
def test_skips_know_what_they_hold_and_what_they_hold_more_than_others(
    length: int, data: st.DataObject
) -> None:
    some, others = (data.draw(skips_of(length)) for _ in range(2))
    first, second = Skips(some, length), Skips(others, length)
    numbers = np.arange(length)
    assert numbers[~first.hold(numbers)].tolist() == left(length, some)
    assert first.hold(numbers.reshape(1, -1)).shape == (1, length)
    more = Skips(first.without(second), length)
    assert more.ranges == first.without(second)
    assert np.array_equal(more.hold(numbers), first.hold(numbers) & ~second.hold(numbers))


@given(length=st.integers(0, 200), more=st.integers(0, 200), data=st.data())
def test_the_blocks_of_a_source_that_grew_are_cut_to_those_it_had(
    length: int, more: int, data: st.DataObject
) -> None:
    before = np.unique(data.draw(blocks_of(length)))
    inside = data.draw(st.lists(st.integers(length, length + more), max_size=5))
    after = np.unique([*before, *inside, length + more])
    clipped = clip_blocks(after, length)
    assert clipped.dtype == np.int64
    assert np.array_equal(clipped, before)


def test_a_border_that_lies_in_no_block_is_drawn() -> None:
    assert clip_blocks(np.array([0, 4, 8, 12]), 9).tolist() == [0, 4, 8, 9]
    assert clip_blocks(np.array([0, 4]), 0).tolist() == [0]


def test_blocks_that_are_too_short_are_not_stretched() -> None:
    with pytest.raises(OptionError, match="from 0 to 5"):
        Order(10, kind="block", blocks=clip_blocks(np.array([0, 5]), 10))


def test_skips_may_be_arrays() -> None:
    numbers = np.array([5, 3, 4, 9], np.int32)
    assert Skips(np.array([255], np.uint8), 300).ranges == ((255, 256),)
    assert Skips(numbers, 10).ranges == ((3, 6), (9, 10))
    assert Skips(np.array([[2, 4], [3, 7]]), 10).ranges == ((2, 7),)
    assert Skips(list(numbers), 10).ranges == ((3, 6), (9, 10))
    assert Skips(np.empty(0, np.int64), 10).ranges == ()


@pytest.mark.parametrize("order", [laned(), Order(5000), Order(5000, kind="sequential")])
def test_positions_may_have_any_shape_order_and_integer_type_and_are_left_alone(
    order: Order,
) -> None:
    asked = np.array([[7, 70, 700], [3, 2, 7]], np.uint16)
    whole = order.positions(0, 1000)
    assert np.array_equal(order.at(asked), whole[asked])
    assert asked[0].tolist() == [7, 70, 700]
    assert order.at([]).shape == (0,)


def test_an_order_of_almost_any_length_costs_nothing() -> None:
    length = 2**63 - 1
    order = Order(length, skip=[(0, 2**62)])
    assert len(order) == 2**63 - 1 - 2**62
    assert order.positions(10**18, 10**18 + 3).min() >= 2**62
    huge = Order(length, kind="block", blocks=np.array([*range(0, length, 2**54), length]))
    assert len(set(huge.positions(length - 200, length).tolist())) == 200


def test_an_order_pickles_without_what_it_computed() -> None:
    order = laned(skip=[3, (10, 20)])
    whole = all_of(order)
    copy = pickle.loads(pickle.dumps(order))
    assert len(pickle.dumps(order)) < 3000
    assert np.array_equal(all_of(copy), whole)
    assert copy.skip == ((3, 4), (10, 20))
    assert repr(copy) == "<Order of 70,000 records, seed=0, epoch=0, kind='block', 11 skipped>"


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([0, 5], "from 0 to 5; .* length, 10"),
        ([1, 10], "from 1 to 10"),
        ([0, 7, 6, 10], r"blocks\[2\] is 6, less than blocks\[1\], 7"),
        ([], "float64"),
        ([[0, 10]], r"\[1, 2\]"),
        ([0.0, 10.0], "float64"),
        (None, "needs blocks"),
    ],
)
def test_blocks_that_cannot_be_are_refused(blocks: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Order(10, kind="block", blocks=None if blocks is None else np.array(blocks))


@pytest.mark.parametrize(
    ("skip", "message"),
    [
        ([10], "10 to 11 do not lie in a dataset of 10"),
        ([-1], "-1 to 0"),
        ([(5, 3)], "5 to 3"),
        ([True], "True"),
        ([1.5], "1.5"),
        ([(1, 2, 3)], r"\(1, 2, 3\)"),
        (["ab"], "'ab'"),
        (np.array([1.5]), "float64"),
        (np.ones((2, 3), int), r"\[2, 3\]"),
        ([2**80], "do not lie"),
        (np.array([2**64 - 1], np.uint64), "do not lie"),
        (3, "skip=3"),
    ],
)
def test_skips_that_cannot_be_are_refused(skip: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Order(10, skip=skip)


@pytest.mark.parametrize("length", [-1, 2**63])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(OptionError, match=f"length={length}"):
        Order(length)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"'blocks': .* sequential, full, block"):
        Order(10, kind="blocks")


@pytest.mark.parametrize("window", [(-1, 2), (3, 2), (0, 10)])
def test_a_window_outside_is_refused_with_the_length(window: tuple[int, int]) -> None:
    with pytest.raises(RecordIndexError, match="order of 9 records"):
        Order(10, skip=[0]).positions(*window)


def test_positions_outside_or_of_another_type_are_refused() -> None:
    with pytest.raises(RecordIndexError, match=r"position 9 .* order of 9"):
        Order(10, skip=[0]).at(np.array([1, 9]))
    with pytest.raises(TypeError, match="float64"):
        Order(10).at(np.array([1.0]))
