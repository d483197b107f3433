"""Plans over lengths: every record once, bounds, the same batches everywhere, pinned batches."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import OptionError, RecordIndexError
from penstock.order import BucketPlan, CostPlan, Order, PackingPlan, Plan, padding_of
from penstock.order import _plans as plans

LENGTHS = st.lists(st.integers(1, 12), max_size=60)


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan 7 positions at a time, so that a few dozen records are many stretches."""
    monkeypatch.setattr(plans, "STRETCH", 7)


def records(plan: Any, order: Order) -> list[list[int]]:
    batches = plan.over(order)
    return [order.at(batches.positions(number)).tolist() for number in range(len(batches))]


def greedy(order: list[int], costs: list[int], limit: int, oversize: str) -> list[list[int]]:
    """Cut one record after the other, as the specification says it."""
    batches: list[list[int]] = []
    spent = 0
    for record in order:
        cost = costs[record]
        if cost > limit and oversize == "skip":
            continue
        if not batches or spent + cost > limit:
            batches.append([])
            spent = 0
        batches[-1].append(record)
        spent += cost
    return batches


@pytest.mark.usefixtures("short_stretches")
@given(LENGTHS, st.integers(1, 40), st.sampled_from(["emit", "skip"]), st.data())
def test_batches_by_cost_are_those_of_a_loop_over_records(
    costs: list[int], limit: int, oversize: Any, data: st.DataObject
) -> None:
    skip = data.draw(st.lists(st.integers(0, len(costs) - 1))) if costs else []
    epoch = data.draw(st.integers(0, 3))
    order = Order(len(costs), seed=5, epoch=epoch, skip=skip)
    numbers = order.positions(0, len(order)).tolist()
    found = records(CostPlan(costs, limit, oversize=oversize), order)
    assert found == greedy(numbers, costs, limit, oversize)


@pytest.mark.usefixtures("short_stretches")
@given(LENGTHS, st.integers(1, 20), st.integers(1, 4), st.sampled_from(["emit", "skip"]))
def test_packed_bins_hold_every_record_once_and_no_more_than_fits(
    lengths: list[int], size: int, each: int, oversize: Any
) -> None:
    order = Order(len(lengths), seed=2)
    batches = PackingPlan(lengths, size, each, oversize=oversize).over(order)
    seen: list[int] = []
    for number in range(len(batches)):
        ids = order.at(batches.positions(number)).tolist()
        borders = batches.bins(number)
        assert borders is not None
        assert borders[0] == 0
        assert borders[-1] == len(ids)
        is_last = number == len(batches) - 1
        assert 1 <= len(borders) - 1 <= each
        assert is_last or len(borders) - 1 == each
        for start, stop in pairwise(borders.tolist()):
            own = ids[start:stop]
            assert own
            assert len(own) == 1 or sum(lengths[record] for record in own) <= size
        seen += ids
    fits = [number for number, length in enumerate(lengths) if length <= size]
    assert sorted(seen) == (fits if oversize == "skip" else [*range(len(lengths))])


@given(LENGTHS, st.integers(1, 9), st.integers(1, 5), st.integers(0, 3))
def test_buckets_hold_every_record_once_and_neighbours_by_length(
    lengths: list[int], size: int, buckets: int, epoch: int
) -> None:
    order = Order(len(lengths), seed=2, epoch=epoch)
    found = records(BucketPlan(lengths, size, buckets), order)
    assert sorted(record for batch in found for record in batch) == [*range(len(lengths))]
    assert len(found) == -(-len(lengths) // size)
    window = size * buckets
    numbers = order.positions(0, len(order)).tolist()
    for start in range(0, len(numbers), window):
        own = sorted(lengths[record] for record in numbers[start : start + window])
        cut = sorted(own[at : at + size] for at in range(0, len(own), size))
        of_plan = found[start // size : start // size + buckets]
        assert sorted(sorted(lengths[record] for record in batch) for batch in of_plan) == cut


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (
            CostPlan([3, 4, 1, 9, 2, 5, 7, 6, 1, 2], 9),
            [[6], [5], [7, 0], [1], [3], [2, 8, 4, 9]],
        ),
        (
            PackingPlan([3, 4, 1, 9, 2, 5, 7, 6, 1, 2], 9, batch_size=2),
            [[6, 4, 5, 1], [7, 0, 3], [2, 8, 9]],
        ),
        (
            BucketPlan([3, 4, 1, 9, 2, 5, 7, 6, 1, 2], 2, buckets=3),
            [[0, 1], [5, 7], [6, 3], [2, 8], [4, 9]],
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_batches_of_version_1_are_pinned(plan: Any, expected: list[list[int]]) -> None:
    assert plan.version == 1
    assert records(plan, Order(10, seed=1, epoch=2)) == expected


def test_large_plans_are_pinned_by_their_borders() -> None:
    costs, order = np.arange(600_000) % 911 + 1, Order(600_000, seed=4)
    starts, rows = CostPlan(costs, 20_000).arrays(order)
    assert (len(starts), starts[1:4].tolist(), len(rows)) == (13_887, [37, 79, 129], 0)
    assert starts.astype(np.int64).sum() == 4_164_944_338
    starts, rows = PackingPlan(costs, 2048).arrays(order)
    assert (len(starts), rows[:4].tolist(), len(rows)) == (133_548, [0, 1926, 261600, 1], 600_000)
    assert starts.astype(np.int64).sum() == 39_767_633_878


def test_plans_fulfil_the_protocol_and_pickle() -> None:
    for plan in (CostPlan([1], 2), PackingPlan("len(text)", 2), BucketPlan([1], 2)):
        assert isinstance(plan, Plan)
        assert pickle.loads(pickle.dumps(plan)).name == plan.name


def test_a_plan_with_an_order_is_a_sequence_of_record_numbers() -> None:
    costs = [5, 5, 5, 5]
    plan = CostPlan(costs, 10, order=Order(4, kind="sequential"))
    assert [batch.tolist() for batch in plan] == [[0, 1], [2, 3]]
    assert len(plan) == 2
    with pytest.raises(RecordIndexError, match="no batch 2"):
        plan[2]
    with pytest.raises(OptionError, match="no order of its own"):
        len(CostPlan(costs, 10))


def test_the_key_tells_lengths_apart_and_ignores_what_was_appended() -> None:
    plan = CostPlan(np.array([1, 2, 3], np.int64), 5)
    longer = CostPlan(np.array([1, 2, 3, 30_000], np.int32), 5)
    assert plan.key(3) == longer.key(3) != longer.key(4)
    assert CostPlan([1, 2, 4], 5).key(3) != plan.key(3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: CostPlan([1, 2], 0), "batch_cost_size=0: expected a whole number, 1 or more"),
        (lambda: CostPlan([1, 2], 2**60), "at most 2"),
        (lambda: PackingPlan([1, 2], 0), "sample_size=0"),
        (lambda: PackingPlan([1, 2], 4, 0), "batch_size=0"),
        (lambda: BucketPlan([1, 2], 2, 0), "buckets=0"),
        (lambda: CostPlan([1, 2], 4, oversize="drop"), "oversize='drop': expected one of emit"),
        (lambda: CostPlan([1.0, np.nan], 4), "record 1 has NaN.*Round others up"),
        (lambda: CostPlan([[1, 2]], 4), r"costs is an array of int64\[1, 2\]"),
        (lambda: BucketPlan([True], 4), "lengths is an array of bool"),
        (lambda: CostPlan("tokens", 4).lengths, "only a DataLoader looks this up"),
    ],
)
def test_arguments_that_cannot_work_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        wrong()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (CostPlan([1, 2, 0, 1], 4), r"costs: record 2 has the value 0. Expected .* 1 or more"),
        (CostPlan([1, 2, -7, 1], 4), "record 2 has the value -7"),
        (PackingPlan([1, 2, 0, 1], 4), "lengths: record 2 has the value 0"),
        (BucketPlan([1, 2, -1, 1], 4), "record 2 has the value -1"),
        (CostPlan([1, 2, 9, 1], 4, oversize="error"), "record 2 has 9, more than batch_cost"),
        (PackingPlan([1, 2, 9, 1], 4, oversize="error"), "record 2 has 9, more than sample_"),
        (CostPlan([1, 2, 3], 4), "costs has 3 values, and there is a record 3"),
    ],
)
def test_records_that_cannot_be_planned_are_named_before_the_first_batch(
    plan: Any, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        plan.over(Order(4, seed=1))


def test_a_skipped_record_may_have_any_length() -> None:
    order = Order(3, kind="sequential", skip=[1])
    assert records(CostPlan([1, 0, 1], 4), order) == [[0, 2]]
    assert records(BucketPlan([1, -1, 1], 4), order) == [[0, 2]]


def test_without_records_there_are_no_batches() -> None:
    for plan in (CostPlan([], 2), PackingPlan([], 2), BucketPlan([], 2)):
        assert len(plan.over(Order(0))) == 0
        assert padding_of(plan, Order(0), plan.over(Order(0))) == (0, 0, 0)
    assert records(CostPlan([5], 2, oversize="skip"), Order(1)) == []


def test_padding_is_that_of_the_batches() -> None:
    lengths = np.random.default_rng(0).integers(1, 1000, 2_000)
    order = Order(2_000, seed=3)
    packed = PackingPlan(lengths, 1_500, 4)
    for plan in (CostPlan(lengths, 20_000), packed, BucketPlan(lengths, 50)):
        batches = plan.over(order)
        padding = padding_of(plan, order, batches)
        assert padding.rows == round(2_000 / len(batches))
        assert 0 <= padding.planned <= padding.plain < 0.6
    batches = plan.over(order)
    space = sum(
        len(ids) * int(lengths[ids].max())
        for ids in (order.at(batches.positions(number)) for number in range(len(batches)))
    )
    assert padding.planned == pytest.approx(1 - lengths.sum() / space)
