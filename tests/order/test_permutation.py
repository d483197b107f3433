from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from itertools import permutations
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import OptionError, RecordIndexError
from penstock.order import Permutation
from penstock.order._permutation import _ROUNDS, _below
from tests.rounds import rounds

SEEDS = st.integers(-(2**70), 2**70)
EPOCHS = st.integers(0, 2**40)
LENGTHS = st.one_of(st.integers(0, 50), st.integers(4000, 4200), st.integers(0, 30_000))
HUGE = st.integers(4096, 2**63)
GRIDS = [4096, 4097, 64 * 65, 64 * 65 + 1, 71 * 71, 71 * 71 + 1, 2**14, 2**14 + 1, 2**15 - 1]


def all_of(length: int, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return Permutation(length, seed, epoch).positions(0, length)


def inverse(order: Permutation, numbers: np.ndarray) -> np.ndarray:
    """Return where numbers stand: the rounds of the network backwards, or a search of few."""
    if order.length < 4096:
        return np.argsort(order.positions(0, order.length))[numbers]
    sizes = [np.uint64(order._rows), np.uint64(order._columns)]  # noqa: SLF001
    cells = numbers.astype(np.uint64)
    todo = np.ones(len(cells), bool)
    while todo.any():
        halves = [cells[todo] // sizes[1], cells[todo] % sizes[1]]
        for number in reversed(range(_ROUNDS)):
            side = number % 2
            step = _below(sizes[side], halves[1 - side], order._keys[number])  # noqa: SLF001
            halves[side] = (halves[side] + sizes[side] - step) % sizes[side]
        cells[todo] = halves[0] * sizes[1] + halves[1]
        todo = cells >= np.uint64(order.length)
    return cells.astype(np.int64)


def surprise(observed: np.ndarray, expected: float) -> float:
    """Return by how many standard deviations a chi-square statistic is too large.

    Its cube root is nearly normal, also where there are few bins and the statistic is far from it.
    """
    freedom = observed.size - 1
    statistic = float(((observed - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return float((np.cbrt(statistic / freedom) - (1 - spread)) / sqrt(spread))


@given(length=LENGTHS, seed=SEEDS, epoch=EPOCHS)
def test_every_number_comes_exactly_once(length: int, seed: int, epoch: int) -> None:
    numbers = all_of(length, seed, epoch)
    assert numbers.dtype == np.int64
    assert np.array_equal(np.sort(numbers), np.arange(length))


@pytest.mark.parametrize("length", GRIDS)
def test_every_number_comes_exactly_once_around_the_borders_of_the_grid(length: int) -> None:
    assert np.array_equal(np.sort(all_of(length)), np.arange(length))


@given(length=HUGE, seed=SEEDS, at=st.floats(0, 1))
def test_any_window_of_a_huge_order_is_distinct_numbers_that_lead_back(
    length: int, seed: int, at: float
) -> None:
    order = Permutation(length, seed)
    start = min(int(at * length), length - 100)
    numbers = order.positions(start, start + 100)
    assert len(set(numbers.tolist())) == 100
    assert numbers.min() >= 0
    assert int(numbers.max()) < length
    assert inverse(order, numbers).tolist() == list(range(start, start + 100))


@given(length=LENGTHS, seed=SEEDS, data=st.data())
def test_a_window_is_a_part_of_the_whole(length: int, seed: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, length))
    stop = data.draw(st.integers(start, length))
    order = Permutation(length, seed)
    whole = order.positions(0, length)
    assert np.array_equal(order.positions(start, stop), whole[start:stop])
    some = np.arange(start, stop)[::-2]
    assert np.array_equal(order.at(some), whole[some])
    assert np.array_equal(inverse(order, whole), np.arange(length))


def test_the_order_is_the_same_in_every_release() -> None:
    assert Permutation.VERSION == 1
    assert all_of(10).tolist() == [0, 7, 2, 8, 1, 6, 3, 9, 5, 4]
    assert all_of(10, seed=1, epoch=2).tolist() == [6, 5, 7, 0, 1, 3, 2, 8, 4, 9]
    assert Permutation(5000).positions(0, 5).tolist() == [830, 2688, 3649, 929, 4766]
    assert Permutation(10**9, 7, 3).positions(123_456_789, 123_456_794).tolist() == [
        861631891,
        580139621,
        291218192,
        463791026,
        464927137,
    ]
    assert Permutation(2**63, -1).positions(2**63 - 3, 2**63).tolist() == [
        2461792633702976767,
        1823270334091460856,
        2497725502134312784,
    ]


def test_another_process_finds_the_same_order() -> None:
    program = (
        "from penstock.order import Permutation;"
        "print(Permutation(10**6, seed=5, epoch=6).positions(1000, 1010).tolist())"
    )
    out = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert out.stdout.decode().strip() == str(all_of(10**6, 5, 6)[1000:1010].tolist())


@pytest.mark.parametrize(
    "other",
    [(10_001, 1, 1), (10_000, 2, 1), (10_000, 1, 2), (10_000, -1, 1), (10_000, 1 + 2**64, 1)],
)
def test_length_seed_and_epoch_all_change_the_order(other: tuple[int, int, int]) -> None:
    # Two unrelated orders agree at one position on average, and at ten hardly ever.
    first, second = all_of(10_000, 1, 1), all_of(*other)[:10_000]
    assert np.count_nonzero(first[: len(second)] == second) < 10


@pytest.mark.parametrize("length", [2, 3, 4, 5])
def test_all_orders_of_a_few_numbers_are_equally_likely(length: int) -> None:
    count = rounds(6000, 60_000)
    seen = Counter(tuple(all_of(length, seed).tolist()) for seed in range(count))
    orders = list(permutations(range(length)))
    observed = np.array([seen[order] for order in orders])
    assert surprise(observed, count / len(orders)) < 4.5


@pytest.mark.parametrize("length", [6, 7, 8, 9, 10])
def test_every_number_is_equally_likely_at_every_position(length: int) -> None:
    count = rounds(4000, 40_000)
    orders = np.array([all_of(length, seed, seed % 3) for seed in range(count)])
    for position in range(length):
        observed = np.bincount(orders[:, position], minlength=length)
        assert surprise(observed, count / length) < 4.5


@pytest.mark.parametrize("length", [5000, 99_991, 2**17, 2**17 + 1])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_neighbours_are_as_far_apart_as_in_a_uniform_order(length: int, seed: int) -> None:
    distances = np.abs(np.diff(all_of(length, seed)))
    # Of two uniform numbers below n the median distance is (1 - √½) n; its standard error here
    # is 0.6 n / √n at most.
    assert abs(np.median(distances) / length - (1 - sqrt(0.5))) < 3 / sqrt(length)


@pytest.mark.parametrize("length", [40_000, 2**17, 2**17 + 1])
def test_what_comes_next_does_not_depend_on_what_came(length: int) -> None:
    numbers = all_of(length, seed=4)
    side = int(sqrt(length))
    for bins in (numbers * 8 // length, numbers % 8):
        for lag in (1, 2, 64, side, side + 1):
            pairs = np.bincount(bins[:-lag] * 8 + bins[lag:], minlength=64)
            assert surprise(pairs, (length - lag) / 64) < 4.5


def test_two_epochs_are_unrelated() -> None:
    length = 2**17
    first, second = all_of(length, 1, 0) * 8 // length, all_of(length, 1, 1) * 8 // length
    assert surprise(np.bincount(first * 8 + second, minlength=64), length / 64) < 4.5


def test_it_pickles_to_its_arguments_and_prints_them() -> None:
    order = Permutation(3000, seed=2, epoch=1)
    copy = pickle.loads(pickle.dumps(order))
    assert len(pickle.dumps(order)) < 200
    assert copy == order
    assert hash(copy) == hash(order)
    assert copy != Permutation(3000, seed=2)
    assert np.array_equal(copy.positions(0, 3000), order.positions(0, 3000))
    assert repr(order) == "Permutation(3000, seed=2, epoch=1)"
    assert len(order) == 3000


def test_arrays_of_any_shape_and_integer_type_are_taken_and_left_alone() -> None:
    order = Permutation(5000)
    asked = np.arange(6, dtype=np.uint64).reshape(2, 3)
    assert order.at(asked).shape == (2, 3)
    assert np.array_equal(asked, np.arange(6).reshape(2, 3))
    assert order.at(np.empty(0, np.int64)).tolist() == []
    assert order.at([1, 0]).tolist() == order.positions(0, 2)[::-1].tolist()


@pytest.mark.parametrize("length", [-1, 2**63 + 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    with pytest.raises(OptionError, match=f"length={length}"):
        Permutation(length)


@pytest.mark.parametrize("window", [(-1, 2), (3, 2), (0, 5001)])
def test_a_window_outside_is_refused_with_the_length(window: tuple[int, int]) -> None:
    with pytest.raises(RecordIndexError, match="5,000"):
        Permutation(5000).positions(*window)


@pytest.mark.parametrize("bad", [-1, 5000])
def test_a_position_outside_is_refused_with_the_length(bad: int) -> None:
    with pytest.raises(RecordIndexError, match=f"{bad} does not lie .* 5,000"):
        Permutation(5000).at(np.array([1, bad]))


def test_positions_are_integers() -> None:
    with pytest.raises(TypeError, match="float64"):
        Permutation(5000).at(np.array([1.0]))
