"""Queries under `null_semantics="jmespath"`: what json2vec itself finds, for comparisons."""

from __future__ import annotations

from typing import Any

import pytest

import penstock
from penstock.errors import OptionError, SchemaMismatchError
from penstock.schema import Array, Category, Number, Schema, Set

EV = Array(Number("v"), name="ev", max_length=3)


def encoded(records: list[Any], *fields: Any, batch_size: int | None = None) -> dict[str, Any]:
    """Return the parts of a batch, which is the same from a loader and without one."""
    found = []
    for loads in (True, False):
        own = Schema(*fields)
        own.null_semantics = "jmespath"
        batch = own.encode(records, "train")
        if loads:
            loader = penstock.DataLoader(records, own, batch_size=batch_size or len(records))
            (batch, *_) = loader
        found.append({at: (one.state.tolist(), one.content.tolist()) for at, one in batch.items()})
    if batch_size is None:
        assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    ("field", "records", "state", "content"),
    [
        (
            Number("x"),
            [{"x": 2.5}, {"x": 0}, {"x": None}, {}],
            [[0], [0], [2], [2]],
            [[2.5], [0], [0], [0]],
        ),
        (Number("x", query="[*].h[-1].v"), [{"h": [{"v": 7}]}, {"h": []}], [[0], [2]], [[7], [0]]),
        (
            Number("x", query="[*].h[?k=='a'].v | [0]"),
            [{"h": [{"k": "a", "v": 7}]}, {"h": [{"k": "a", "v": 9}]}],
            [[0], [2]],
            [[7], [0]],
        ),
        (Number("x", query="[0].x"), [{"x": 1}, {"x": 2}, {}], [[2]] * 3, [[0]] * 3),
        (Set("x", max_vocab_size=1), [{"x": None}, {"x": []}], [[2], [0]], [[[0, 0]], [[0, 0]]]),
    ],
    ids=["a1", "a7", "a8", "a10", "c11"],
)
def test_values_at_the_root(field: Any, records: Any, state: Any, content: Any) -> None:
    assert encoded(records, field) == {"record/x": (state, content)}


def test_a2_siblings_shift() -> None:
    fields = Array(
        Number("p"), Category("n", max_vocab_size=8, p_unavailable=0), name="t", max_length=4
    )
    records = [{"t": [{"p": 4, "n": "u"}, {"n": "v"}, {"p": None, "n": "w"}, {"p": 6}]}]
    found = encoded(records, fields)
    assert found["record/t/p"] == ([[[0, 0, 2, 2]]], [[[4, 6, 0, 0]]])
    assert found["record/t/n"] == ([[[0, 0, 0, 2]]], [[[0, 1, 2, 0]]])


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ([{"ev": None}, {}, {"ev": []}], [[[2, 2, 2]]] * 3),
        ([{"ev": [{"v": 1}, None, {"v": 3}]}], [[[0, 0, 2]]]),
        ([{"ev": {"v": 1}}], [[[2, 2, 2]]]),
    ],
)
def test_values_in_arrays(records: Any, state: Any) -> None:
    assert encoded(records, EV)["record/ev/v"][0] == state


def test_lists_of_plain_values_keep_their_nulls() -> None:
    field = Array(Number("v", query="[*].vals"), name="ev", max_length=3)
    found = encoded([{"vals": [4, None, 6]}], field)["record/ev/v"]
    assert found == ([[[0, 1, 0]]], [[[4, 0, 6]]])


def test_json2vec_takes_no_tuple_for_an_array() -> None:
    own = Schema(EV)
    own.null_semantics = "jmespath"
    assert own.encode([{"ev": ({"v": 1},)}])["record/ev/v"].state.tolist() == [[[2, 2, 2]]]


def test_a_query_sees_the_batches_of_the_loader() -> None:
    records = [{"x": number} for number in range(64)]
    field = Number("x", query="[*].x | [1:2]")
    found = encoded(records, field, batch_size=4)["record/x"]
    assert found == ([[0], [2], [2], [2]], [[1], [0], [0], [0]])


def test_more_rows_than_records_are_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="'batch' has 4 items, and its slots are 2"):
        encoded([{"x": [1, 2]}, {"x": [3, 4]}], Number("x", query="[].x[]"))


def test_a_query_that_cannot_stand_behind_another_is_refused() -> None:
    own = Schema(Number("x", query="length(@)"))
    own.null_semantics = "jmespath"
    with pytest.raises(OptionError, match="null_semantics='jmespath'"):
        own.encode([{"x": 1}])
