"""Best-fit packing: nothing lost, nothing torn, as few samples as the rule of best fit gives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import OptionError
from penstock.order import Packing, best_fit
from tests.rounds import rounds

lengths_and_size = st.integers(1, 40).flatmap(
    lambda size: st.tuples(
        st.lists(st.one_of(st.integers(0, size), st.integers(0, 4 * size)), max_size=60),
        st.just(size),
    )
)


def samples(plan: Packing) -> list[list[tuple[int, int, int]]]:
    """Return (document, start, length) of the pieces of each sample."""
    pieces = list(
        zip(
            plan.piece_document.tolist(),
            plan.piece_start.tolist(),
            plan.piece_length.tolist(),
            strict=True,
        )
    )
    offsets = plan.sample_offsets.tolist()
    return [pieces[a:b] for a, b in pairwise(offsets)]


def one_by_one(lengths: list[int], size: int) -> list[list[int]]:
    """Pack numbers of items, longest first, each into the fullest bin that has room for it."""
    room: list[int] = []
    bins: list[list[int]] = []
    for item in sorted(range(len(lengths)), key=lambda item: -lengths[item]):
        fitting = [number for number in range(len(bins)) if room[number] >= lengths[item]]
        if fitting:
            number = min(fitting, key=lambda number: room[number])
        else:
            number = len(bins)
            bins.append([])
            room.append(size)
        bins[number].append(item)
        room[number] -= lengths[item]
    return bins


def first_fit(lengths: list[int], size: int) -> int:
    """Return how many bins the items fill, in their order, each in the first that has room."""
    room: list[int] = []
    for length in lengths:
        number = next((i for i, left in enumerate(room) if left >= length), len(room))
        if number == len(room):
            room.append(size)
        room[number] -= length
    return len(room)


@settings(max_examples=rounds(50, 5000))
@given(lengths_and_size)
def test_every_token_is_in_exactly_one_sample(case: tuple[list[int], int]) -> None:
    lengths, size = case
    plan = best_fit(np.array(lengths, np.int64), size)
    tokens = [
        (document, start + token)
        for document, start, length in zip(*plan[:3], strict=True)
        for token in range(length)
    ]
    wanted = [
        (document, token) for document, length in enumerate(lengths) for token in range(length)
    ]
    assert sorted(tokens) == wanted
    assert all(array.dtype == np.int64 for array in plan)


@settings(max_examples=rounds(50, 5000))
@given(lengths_and_size)
def test_samples_hold_whole_documents_or_full_chunks(case: tuple[list[int], int]) -> None:
    lengths, size = case
    packed = samples(best_fit(np.array(lengths, np.int64), size))
    for pieces in packed:
        assert pieces
        assert sum(length for _, _, length in pieces) <= size
        for document, start, length in pieces:
            assert length >= 1
            if lengths[document] <= size:
                assert (start, length) == (0, lengths[document])
            else:
                assert start % size == 0
                assert length == min(size, lengths[document] - start)


@settings(max_examples=rounds(50, 5000))
@given(lengths_and_size)
def test_samples_come_in_the_order_of_their_first_documents(case: tuple[list[int], int]) -> None:
    lengths, size = case
    packed = samples(best_fit(np.array(lengths, np.int64), size))
    firsts = [pieces[0][:2] for pieces in packed]
    assert firsts == sorted(set(firsts))
    for pieces in packed:
        documents = [document for document, _, _ in pieces]
        assert documents == sorted(set(documents))


@settings(max_examples=rounds(50, 5000))
@given(lengths_and_size)
def test_samples_are_as_full_as_those_of_best_fit_item_by_item(
    case: tuple[list[int], int],
) -> None:
    lengths, size = case
    packed = samples(best_fit(np.array(lengths, np.int64), size))
    rests = [length % size for length in lengths if length % size]
    # Which of two samples with the same room gets an item is all the same, so only sums are.
    wanted = [sum(rests[item] for item in items) for items in one_by_one(rests, size)]
    wanted += [size] * sum(length // size for length in lengths)
    assert sorted(sum(piece[2] for piece in pieces) for pieces in packed) == sorted(wanted)


@settings(max_examples=rounds(50, 5000))
@given(lengths_and_size)
def test_no_two_samples_would_fit_into_one(case: tuple[list[int], int]) -> None:
    lengths, size = case
    plan = best_fit(np.array(lengths, np.int64), size)
    filled = sorted(sum(length for _, _, length in pieces) for pieces in samples(plan))
    assert len(filled) < 2 or filled[0] + filled[1] > size
    # Which bounds their number by that of the tokens.
    assert len(filled) <= 2 * sum(lengths) / size + 1


@settings(max_examples=rounds(100, 2000))
@given(lengths_and_size)
def test_best_fit_needs_hardly_more_samples_than_any_way_to_pack(
    case: tuple[list[int], int],
) -> None:
    # Johnson's bound: 11/9 of the least possible, and 4. What first fit needs is possible.
    lengths, size = case
    rests = [length % size for length in lengths if length % size]
    chunks = sum(length // size for length in lengths)
    plan = best_fit(np.array(lengths, np.int64), size)
    assert len(plan.sample_offsets) - 1 - chunks <= 11 / 9 * first_fit(rests, size) + 4


@pytest.mark.parametrize("size", [100, 2048, 70_000])
def test_many_documents_fill_nearly_everything(size: int) -> None:
    lengths = np.random.default_rng(5).lognormal(5, 1.3, 20_000).astype(np.int64) + 1
    plan = best_fit(lengths, size)
    assert int(plan.piece_length.sum()) == int(lengths.sum())
    assert np.add.reduceat(plan.piece_length, plan.sample_offsets[:-1]).max() <= size
    count = len(plan.sample_offsets) - 1
    assert count == -(-int(lengths.sum()) // size) or count <= int(lengths.sum()) / size * 1.001


def test_equal_lengths_stay_with_their_neighbours() -> None:
    plan = best_fit(np.full(12, 4, np.int64), 12)
    assert plan.piece_document.tolist() == list(range(12))
    assert plan.sample_offsets.tolist() == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("dtype", [np.int16, np.uint32, np.int64])
def test_the_plan_depends_on_the_numbers_alone(dtype: type[np.integer]) -> None:
    lengths = np.random.default_rng(1).integers(0, 300, 500)
    plan = best_fit(lengths, 128)
    for again in (
        best_fit(lengths.astype(dtype), np.int32(128)),
        best_fit(np.repeat(lengths, 2)[::2], 128),
    ):
        assert all(np.array_equal(a, b) for a, b in zip(plan, again, strict=True))


def test_the_plan_of_one_version_is_that_of_the_next() -> None:
    lengths = np.array([5, 9, 1, 0, 4, 21, 3, 3, 7, 10, 2, 6], np.int64)
    assert samples(best_fit(lengths, 10)) == [
        [(0, 0, 5), (7, 0, 3), (10, 0, 2)],
        [(1, 0, 9), (2, 0, 1)],
        [(4, 0, 4), (11, 0, 6)],
        [(5, 0, 10)],
        [(5, 10, 10)],
        [(5, 20, 1)],
        [(6, 0, 3), (8, 0, 7)],
        [(9, 0, 10)],
    ]


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]], ids=["none", "empty", "only empty"])
def test_without_tokens_there_are_no_samples(lengths: list[int]) -> None:
    plan = best_fit(np.array(lengths, np.int64), 8)
    assert samples(plan) == []
    assert plan.sample_offsets.tolist() == [0]


def test_what_cannot_be_packed_is_refused() -> None:
    with pytest.raises(OptionError, match=r"size=0: expected a whole number, 1 or more"):
        best_fit(np.array([1]), 0)
    with pytest.raises(OptionError, match=r"Document 1 has -3 tokens: expected 0 or more"):
        best_fit(np.array([1, -3]), 4)
