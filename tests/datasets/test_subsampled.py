from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.datasets import SubsampledDataset
from penstock.errors import OptionError, RecordIndexError
from tests.datasets.listed_source import ListedSource

FACTORS = st.floats(0, 1, exclude_min=True)


class Endless:
    """A dataset of a great many records that holds none of them."""

    def __len__(self) -> int:
        return 10**15

    def __getitem__(self, number: int) -> int:
        return number


@given(count=st.integers(0, 200), factor=FACTORS, seed=st.integers(), random_order=st.booleans())
def test_the_share_asked_for_comes_each_record_once(
    *, count: int, factor: float, seed: int, random_order: bool
) -> None:
    part = SubsampledDataset(range(count), factor, seed, random_order)
    records = list(part)
    assert len(records) == len(part) == int(factor * count)
    assert len(set(records)) == len(records)
    assert set(records) <= set(range(count))
    assert [part[number] for number in range(len(part))] == records
    assert part[:] == records


@given(count=st.integers(0, 200), factor=FACTORS, seed=st.integers())
def test_both_orders_choose_the_same_records_and_one_is_sorted(
    count: int, factor: float, seed: int
) -> None:
    plain = list(SubsampledDataset(range(count), factor, seed))
    mixed = list(SubsampledDataset(range(count), factor, seed, random_order=True))
    assert all(a < b for a, b in pairwise(plain))
    assert sorted(mixed) == plain


def test_everything_in_random_order_is_a_shuffle() -> None:
    mixed = list(SubsampledDataset(range(1000), 1, seed=1, random_order=True))
    assert mixed != sorted(mixed)
    assert sorted(mixed) == list(range(1000))


def test_the_choice_is_the_same_in_every_release() -> None:
    assert list(SubsampledDataset(range(20), 0.3, seed=5)) == [2, 7, 10, 13, 16, 19]
    assert list(SubsampledDataset(range(20), 0.3, seed=5, random_order=True)) == [
        19,
        16,
        10,
        7,
        13,
        2,
    ]


@pytest.mark.parametrize("factor", [0, -0.5, 1.001, float("nan")])
def test_a_factor_that_cannot_be_is_refused_with_its_value(factor: float) -> None:
    with pytest.raises(OptionError, match=f"subsample_factor={factor}") as error:
        SubsampledDataset([1, 2], factor)
    assert isinstance(error.value, ValueError)


def test_records_are_had_by_any_kind_of_number() -> None:
    part = SubsampledDataset(list("abcdefghij"), 0.5, seed=3)
    records = list(part)
    assert part[np.int32(1)] == part[-4] == records[1]
    assert part[::-2] == records[::-2]
    assert part[[3, 0, 3]] == [records[3], records[0], records[3]]
    assert part[np.array([-1, 0])] == [records[-1], records[0]]
    assert part[[]] == []
    assert part.__getitems__([1, 2]) == records[1:3]


@pytest.mark.parametrize("random_order", [False, True])
@pytest.mark.parametrize("bad", [5, -6, 10**20])
def test_a_number_that_there_is_not_is_refused_with_the_length(
    *, random_order: bool, bad: int
) -> None:
    part = SubsampledDataset(list("abcdefghij"), 0.5, 3, random_order)
    with pytest.raises(RecordIndexError, match=f"no record {bad}: there are 5"):
        part[bad]
    with pytest.raises(IndexError):
        part[[0, bad]]


@pytest.mark.parametrize("bad", ["1", 1.0, None])
def test_what_is_no_number_is_a_type_error(bad: object) -> None:
    with pytest.raises(TypeError, match="expected an integer"):
        SubsampledDataset([1, 2, 3], 1)[bad]  # type: ignore[call-overload]


def test_a_fresh_seed_is_drawn_and_then_kept_in_copies() -> None:
    parts = [SubsampledDataset(range(1000), 0.5) for _ in range(2)]
    assert parts[0].seed != parts[1].seed
    assert list(parts[0]) != list(parts[1])
    for part in parts:
        assert list(pickle.loads(pickle.dumps(part))) == list(part)
        assert list(SubsampledDataset(range(1000), 0.5, seed=part.seed)) == list(part)


def test_a_pickled_copy_carries_no_numbers() -> None:
    part = SubsampledDataset(range(10**6), 0.9, seed=1)
    assert part[0] < 100
    assert len(pickle.dumps(part)) < 600


def test_a_part_of_very_many_records_in_random_order_holds_none_of_them() -> None:
    part = SubsampledDataset(Endless(), 0.5, seed=1, random_order=True)
    assert len(part) == 5 * 10**14
    records = part[10**14 : 10**14 + 100]
    assert len(set(records)) == 100
    # Uniform over everything, so the mean of 100 is within five of its standard deviations.
    assert abs(np.mean(records) / 10**15 - 0.5) < 5 * 0.029


def test_a_batch_is_one_question_to_a_dataset_that_takes_batches() -> None:
    source = ListedSource([{"n": number} for number in range(100)])
    part = SubsampledDataset(source, 0.5, seed=1)
    batch = part.__getitems__([4, 2, 0])
    assert source.calls == [("records", 3)]
    assert batch == [part[4], part[2], part[0]]
    source.calls.clear()
    assert len(list(part)) == 50
    assert source.calls == [("records", 50)]


def test_a_dataset_that_grows_does_not_change_the_choice() -> None:
    records = list(range(100))
    part = SubsampledDataset(records, 0.5, seed=1)
    before = pickle.loads(pickle.dumps(part))[:]
    records.extend(range(100, 200))
    assert part[:] == before
    assert pickle.loads(pickle.dumps(part))[:] == before


def test_threads_agree() -> None:
    part = SubsampledDataset(range(100_000), 0.5, seed=1)
    with ThreadPoolExecutor(8) as pool:
        firsts = set(pool.map(lambda _: part[25_000], range(32)))
    assert len(firsts) == 1
