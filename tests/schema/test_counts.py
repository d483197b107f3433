"""Counts of states and labels, from which a loss balances its classes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.schema import Array, Category, Number, Schema, where
from penstock.schema._statistics import ClassCounts, agreed_counts

SEEN = st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=1, max_size=4)


def schema(**options: Any) -> Schema:
    return Schema(
        Category("k", max_vocab_size=2, p_unavailable=0, **options),
        Array(Number("n"), name="t", max_length=2),
    )


RECORDS = [{"k": "a"}, {"k": "b", "t": [{"n": 1}, {}]}, {"k": "a"}, {"k": "c"}, {}]


def counts(own: Schema, address: str, part: str) -> list[int]:
    return own.counts[address][part].counts.tolist()  # type: ignore[index, no-any-return]


@pytest.mark.parametrize("options", [{}, {"p_mask": 0.5}, {"target": True}, {"p_prune": 0.7}])
def test_training_counts_values_as_they_were_before_they_were_hidden(options: Any) -> None:
    own = schema(**options)
    own.encode(RECORDS, "train")
    assert counts(own, "record/k", "state") == [5, 2, 1, 1, 1]
    assert counts(own, "record/k", "content") == [3, 2, 2]
    assert counts(own, "record/t/n", "state") == [2, 2, 9, 1, 1]
    for split in ("validate", "test", "predict"):
        own.encode(RECORDS, split)
    assert counts(own, "record/k", "content") == [3, 2, 2]


def test_rows_that_do_not_count_are_not_counted() -> None:
    own = Schema(Category("k", max_vocab_size=2), Number("x"))
    bad = [{"k": "a", "x": {}}, {"k": "b", "x": 1}]
    list(penstock.DataLoader(bad, own, batch_size=2, on_error="mask"))
    assert counts(own, "record/x", "state") == [2, 1, 1, 1, 1]
    assert sum(counts(own, "record/k", "content")) == 4


@given(SEEN)
def test_the_weight_of_a_class_falls_with_the_root_of_its_count(seen: list[list[int]]) -> None:
    own = ClassCounts(5)
    for part in seen:
        own.update(np.array(part, np.int64))
    found = own.counts
    assert found.sum() == 5 + sum(map(len, seen))
    assert own.weights == pytest.approx(found**-0.5 * found.sum() / (found**0.5).sum())
    assert (own.weights * found).sum() == pytest.approx(found.sum())


@given(SEEN, SEEN)
def test_counts_of_ranks_add_up_exactly(first: list[list[int]], then: list[list[int]]) -> None:
    ranks = [ClassCounts(5) for _ in range(4)]
    for rounds in (first, then):
        for own, seen in zip(ranks, rounds, strict=False):
            own.update(np.array(seen, np.int64))
        shared = agreed_counts([own.state_dict() for own in ranks])
        for own in ranks:
            own.load_state_dict(json.loads(json.dumps(shared)))
    every = [one for seen in (*first, *then) for one in seen]
    expected = 1 + np.bincount(np.array(every, np.int64), minlength=5)
    assert all((own.counts == expected).all() for own in ranks)


def test_counts_travel_in_the_state_and_are_forgotten_by_reset() -> None:
    own, again = schema(), schema()
    own.encode(RECORDS, "train")
    again.load_state_dict(json.loads(json.dumps(own.state_dict())))
    assert again.state_dict() == own.state_dict()
    assert counts(again, "record/k", "content") == [3, 2, 2]
    own.reset(where("name") == "k")
    assert counts(own, "record/k", "content") == [1, 1, 1]
    assert counts(own, "record/t/n", "state") == [2, 2, 9, 1, 1]


def test_a_vocabulary_of_another_size_has_other_classes() -> None:
    own = schema()
    own.encode(RECORDS, "train")
    state = own.state_dict()
    own.update(where("name") == "k", max_vocab_size=3)
    assert counts(own, "record/k", "content") == [1, 1, 1, 1]
    assert counts(own, "record/k", "state") == [5, 2, 1, 1, 1]
    own.load_state_dict(state)
    assert counts(own, "record/k", "content") == [1, 1, 1, 1]
