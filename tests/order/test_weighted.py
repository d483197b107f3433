from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import OptionError
from penstock.order import Cursor, Weighted, alias_table
from penstock.order._weighted import WeightedOrder
from tests.order.order_contract import RecordOrderContract

FULL = 2**32
GOLDEN_TABLE = [
    [967879903, 2],
    [0, 7],
    [2480192004, 7],
    [1940, 7],
    [3871519599, 7],
    [3871519598, 7],
    [483939953, 7],
    [4294967295, 7],
]
GOLDEN = [7, 6, 5, 7, 7, 4, 4, 4, 7, 5, 4, 7]
GOLDEN_LATER = [7, 5, 4, 7, 7, 5, 7, 7, 7, 7, 2, 7]


class TestWeightedOrder(RecordOrderContract):
    MAKE = (
        "order.ORDERS['weighted'].make(70, seed=4, epoch=1, draws=5000, skip=[7], weights='', "
        "table=lambda: order.alias_table(np.arange(69.0)))"
    )
    LENGTH = 70


class TestPlainOrder(RecordOrderContract):
    MAKE = "order.Order(5000, seed=4, epoch=1, skip=[7])"
    LENGTH = 5000


class TestBlockOrder(RecordOrderContract):
    MAKE = "order.Order(70_000, kind='block', blocks=np.arange(0, 70_001, 100))"
    LENGTH = 70_000


def drawn(weights: list[float], count: int, seed: int = 0, epoch: int = 0) -> np.ndarray:
    """Return how often each record is drawn."""
    table = alias_table(np.array(weights, np.float64))
    order = WeightedOrder(len(weights), seed=seed, epoch=epoch, draws=count, table=lambda: table)
    return np.bincount(order.positions(0, count), minlength=len(weights))


def shares(table: np.ndarray) -> list[int]:
    """Return how much of all cells each record has."""
    found = [0] * len(table)
    for record, (own, other) in enumerate(table.tolist()):
        if other == record:
            found[record] += FULL
        else:
            found[record] += own
            found[other] += FULL - own
    return found


WEIGHTS = st.one_of(
    st.lists(st.floats(0, 1), min_size=1, max_size=60),
    st.lists(st.sampled_from([0.0, 1.0, 1.0, 3.0, 1e-9, 1e9]), min_size=1, max_size=60),
    st.lists(st.floats(0, allow_infinity=False), min_size=1, max_size=60),
).filter(any)


@example(weights=[0.0] * 5000 + [1.0, 1e-9])
@given(weights=WEIGHTS)
def test_a_table_holds_each_weight(weights: list[float]) -> None:
    table = alias_table(np.array(weights))
    assert table.dtype == np.uint32
    assert table.shape == (len(weights), 2)
    found, total = shares(table), sum(map(Fraction, weights))
    assert sum(found) == len(weights) * FULL
    for weight, share in zip(weights, found, strict=True):
        assert (share > 0) == (weight > 0)
        exact = Fraction(weight) * len(weights) * FULL / total
        assert abs(share - exact) <= max(exact, FULL) / 2**29


def test_equal_weights_are_equal() -> None:
    for weight in (1.0, 0.1, 5e-324, 1.7e308):
        assert shares(alias_table(np.full(1000, weight))) == [FULL] * 1000


def test_one_record_may_have_all_the_weight() -> None:
    weights = np.zeros(1000)
    weights[17] = 1e-5
    assert shares(alias_table(weights))[17] == 1000 * FULL
    assert drawn(weights.tolist(), 100)[17] == 100


def test_too_many_records_are_refused() -> None:
    weights = np.broadcast_to(np.float64(1), 2**31)
    with pytest.raises(OptionError, match=r"2,147,483,648 weights: at most 2,147,483,647"):
        alias_table(weights)


@pytest.mark.parametrize("seed", range(3))
def test_records_come_as_often_as_their_weights_say(seed: int) -> None:
    weights = np.random.default_rng(seed).pareto(1.2, 200)
    counts = drawn(weights.tolist(), 200_000, seed=seed, epoch=seed)
    expected = weights / weights.sum() * 200_000
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert 140 < chi_square < 271  # Between 0.1 % and 99.95 % for 199 degrees of freedom.


def test_neighbouring_positions_are_independent() -> None:
    table = alias_table(np.array([1.0, 2.0, 3.0]))
    order = WeightedOrder(3, draws=90_000, table=lambda: table)
    found = order.positions(0, 90_000)
    pairs = np.bincount(found[::2] * 3 + found[1::2], minlength=9)
    expected = np.outer([1, 2, 3], [1, 2, 3]).reshape(-1) / 36 * 45_000
    assert ((pairs - expected) ** 2 / expected).sum() < 26.1  # 99.9 % for 8 degrees of freedom.


def test_records_without_weight_never_come() -> None:
    counts = drawn([0, 1, 0, 0, 1e-3, 0], 100_000)
    assert counts[[0, 2, 3, 5]].sum() == 0
    assert counts[4] > 0


def test_epochs_and_seeds_have_draws_of_their_own() -> None:
    table = alias_table(np.ones(1000))
    runs = [
        WeightedOrder(1000, seed=seed, epoch=epoch, table=lambda: table).positions(0, 1000)
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    assert len({run.tobytes() for run in runs}) == 3


@given(
    count=st.integers(2, 50),
    skip=st.sets(st.integers(0, 49), max_size=20),
    draws=st.one_of(st.none(), st.integers(1, 300)),
)
def test_skipped_records_never_come(count: int, skip: set[int], draws: int | None) -> None:
    skip = {number for number in skip if number < count - 1}
    kept = [number for number in range(count) if number not in skip]
    table = alias_table(np.ones(len(kept)))
    order = WeightedOrder(count, skip=sorted(skip), draws=draws, table=lambda: table)
    assert len(order) == (len(kept) if draws is None else draws)
    assert set(order.positions(0, len(order)).tolist()) <= set(kept)


def test_draws_are_those_of_every_release() -> None:
    weights = np.array([0.5, 0, 3, 1e-6, 2, 2, 0.25, 10])
    table = alias_table(weights)
    assert table.tolist() == GOLDEN_TABLE
    order = WeightedOrder(8, seed=3, epoch=2, draws=2**62, table=lambda: table)
    assert order.positions(0, 12).tolist() == GOLDEN
    assert order.positions(2**61, 2**61 + 12).tolist() == GOLDEN_LATER


def test_the_length_is_known_without_the_weights() -> None:
    own = {"weights": "ab", "draws": None}
    cursor = Cursor(fingerprint="", length=10, kind="weighted", own=own, skip=((3, 5),))
    assert cursor.order_length == 8
    assert Cursor.from_dict(cursor.to_dict()) == cursor
    longer = Cursor(fingerprint="", length=10, kind="weighted", own={**own, "draws": 10**9})
    assert longer.at(position=10**9).order_length == 10**9
    with pytest.raises(OptionError, match="position is 1000000001"):
        longer.at(position=10**9 + 1).order()


def test_a_length_of_no_positions_is_refused() -> None:
    with pytest.raises(OptionError, match="length=0"):
        Weighted([1, 2], length=0)
