from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import Jagged
from penstock.errors import OptionError

flat = st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=6)
nested = st.lists(st.lists(st.lists(st.integers(-9, 9), max_size=3), max_size=3), max_size=5)


def jagged(rows: list[list[Any]], *, by: str = "lengths") -> Jagged:
    """Return rows of numbers, or of lists of numbers, as a Jagged."""
    items = [item for row in rows for item in row]
    if any(isinstance(item, list) for item in items):
        values: Any = jagged(items)
    else:
        values = torch.tensor(items, dtype=torch.int64)
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    if by == "lengths":
        return Jagged(values, lengths=lengths)
    return Jagged(values, offsets=torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]))


def padded(rows: list[list[int]], fill: int) -> list[list[int]]:
    longest = max(map(len, rows), default=0)
    return [row + [fill] * (longest - len(row)) for row in rows]


@given(flat, st.sampled_from(["lengths", "offsets"]))
def test_rows_are_those_it_was_made_of(rows: list[list[int]], by: str) -> None:
    made = jagged(rows, by=by)
    assert len(made) == len(rows)
    assert made.tolist() == rows
    assert made.lengths.tolist() == [len(row) for row in rows]
    assert made.offsets.tolist() == [sum(map(len, rows[:n])) for n in range(len(rows) + 1)]
    assert [made[n].tolist() for n in range(len(rows))] == rows
    assert [made[n - len(rows)].tolist() for n in range(len(rows))] == rows
    assert [row.tolist() for row in made] == rows  # type: ignore[attr-defined]


@given(flat, st.integers(-3, 3))
def test_padding_fills_up_to_the_longest_row_and_back(rows: list[list[int]], fill: int) -> None:
    made = jagged(rows)
    dense = made.to_padded(fill)
    assert dense.tolist() == padded(rows, fill)
    assert Jagged.from_padded(dense, made.lengths).tolist() == rows


@given(flat, st.sampled_from(["lengths", "offsets"]))
def test_nested_tensors_have_the_same_rows_pad_to_the_longest_and_come_back(
    rows: list[list[int]], by: str
) -> None:
    made = jagged(rows, by=by)
    inside = made.to_nested()
    assert inside.layout == torch.jagged
    assert [row.tolist() for row in inside.unbind()] == rows
    assert inside.to_padded_tensor(7).tolist() == padded(rows, 7)
    whole: Any = inside.contiguous()
    assert Jagged(whole.values(), offsets=whole.offsets()).tolist() == rows


@given(nested)
def test_lists_of_lists_keep_their_rows(rows: list[list[list[int]]]) -> None:
    made = jagged(rows)
    assert made.tolist() == rows
    assert [made[n].tolist() for n in range(len(rows))] == rows
    if isinstance(made.values, Jagged):
        wide = made.to_padded(-1)
        inner = padded([item for row in rows for item in row], -1)
        assert wide.shape == (len(rows), max(map(len, rows)), max(map(len, inner)))
        for row, lists in enumerate(rows):
            for slot, values in enumerate(lists):
                assert wide[row, slot].tolist()[: len(values)] == values
        assert int((wide != -1).sum()) == sum(v != -1 for row in rows for one in row for v in one)
        with pytest.raises(OptionError, match="to_padded"):
            made.to_nested()


def test_rows_of_vectors_stay_vectors() -> None:
    made = Jagged(torch.arange(6.0).reshape(3, 2), lengths=torch.tensor([1, 0, 2]))
    assert made.to_padded().shape == (3, 2, 2)
    assert made.to_nested().shape[2] == 2
    assert made[2].tolist() == [[2, 3], [4, 5]]


def test_a_bag_of_embeddings_takes_values_and_offsets() -> None:
    made = jagged([[1, 2], [], [3]])
    assert isinstance(made.values, torch.Tensor)
    bag = torch.nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=True)
    assert bag(made.values, made.offsets).shape == (3, 4)


def test_gradients_flow_through_padding() -> None:
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    Jagged(values, lengths=torch.tensor([2, 0])).to_padded().sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1, 1]


@given(flat | nested)
def test_copies_by_pickle_and_deepcopy_have_the_same_rows(rows: list[list[Any]]) -> None:
    made = jagged(rows)
    assert pickle.loads(pickle.dumps(made)).tolist() == rows
    assert copy.deepcopy(made).tolist() == rows
    assert made.to("cpu").tolist() == rows
    assert all(part.device.type == "meta" for part in (made.to("meta").lengths,))


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({}, "needs lengths or offsets"),
        ({"lengths": torch.tensor([1, 1])}, "from 0 to 2, and there are 3 values"),
        ({"lengths": torch.tensor([[3]])}, "integers of one axis"),
        ({"lengths": torch.tensor([3.0])}, "integers of one axis"),
        ({"offsets": torch.tensor([], dtype=torch.int64)}, "0 offsets do not fit"),
        ({"offsets": torch.tensor([0, 2])}, "from 0 to 2, and there are 3 values"),
        ({"offsets": torch.tensor([1, 3])}, "from 1 to 3"),
        ({"offsets": torch.tensor([0, 3]), "lengths": torch.tensor([1, 2])}, "do not fit 2"),
    ],
    ids=["neither", "few", "axes", "floats", "no offsets", "short", "late", "both"],
)
def test_rows_that_do_not_fit_the_values_are_refused(given_: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        Jagged(torch.arange(3), **given_)


def test_there_is_no_row_beyond_the_last() -> None:
    for row in (2, -3):
        with pytest.raises(IndexError, match=f"no row {row}: there are 2"):
            jagged([[1], [2]])[row]
