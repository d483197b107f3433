"""A plan in place of a batch size: batches of any size, over ranks, resumed anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import DataLoader
from penstock.errors import OptionError
from penstock.order import Order, Plan
from tests.loading.toy_plan import ThreeFive


class OtherPlan(ThreeFive):
    name = "other"


def loader(count: int = 50, **options: Any) -> DataLoader:
    records = [{"n": number} for number in range(count)]
    defaults: dict[str, Any] = {"batch_size": ThreeFive(), "shuffle": True, "seed": 3, "epochs": 2}
    return DataLoader(records, {"n": "int64"}, **{**defaults, **options})


def rows(batch: Any) -> list[int]:
    """Return the records of a batch that count."""
    numbers = batch["n"].tolist()
    assert numbers == batch.ids.tolist()
    flags = [True] * len(numbers) if batch.valid is None else batch.valid.tolist()
    return [number for number, counts in zip(numbers, flags, strict=True) if counts]


def planned(count: int, epoch: int = 0) -> list[list[int]]:
    order = Order(count, seed=3, epoch=epoch)
    batches = ThreeFive().over(order)
    return [order.at(batches.positions(number)).tolist() for number in range(len(batches))]


def test_the_toy_fulfils_the_protocol() -> None:
    assert isinstance(ThreeFive(), Plan)


@pytest.mark.parametrize("workers", [0, "auto", 2])
def test_batches_are_those_of_the_plan(workers: Any) -> None:
    found = loader(num_workers=workers)
    assert [rows(batch) for batch in found] == planned(50) + planned(50, epoch=1)
    assert len(found) == 2 * len(planned(50)) == 26


@given(st.integers(0, 40), st.integers(1, 4), st.integers(1, 4), st.integers(0, 12))
def test_another_number_of_ranks_goes_on_with_the_next_batch(
    count: int, before: int, after: int, cut: int
) -> None:
    expected = planned(count)
    # Behind the last batch a pass has ended, and the run stands in the next epoch.
    cut = min(cut, -(-len(expected) // before))
    handed_out = []
    for rank in range(before):
        first = loader(count, epochs=1, rank=rank, world_size=before)
        run = iter(first)
        mine = [batch for _, batch in zip(range(cut), run, strict=False)]
        handed_out.append([rows(batch) for batch in mine])
        state = json.loads(json.dumps(first.state_dict()))
    assert _dealt(handed_out) == expected[: before * cut]
    rest = []
    for rank in range(after):
        second = loader(count, epochs=1, rank=rank, world_size=after)
        second.load_state_dict(state)
        rest.append([rows(batch) for batch in second])
    assert len({len(one) for one in rest}) == 1
    assert _dealt(rest) == expected[before * cut :]


def _dealt(ranks: list[list[list[int]]]) -> list[list[int]]:
    """Return the batches of all ranks in the order of the plan, without those that do not count."""
    return [batch for step in zip(*ranks, strict=True) for batch in step if batch]


def test_with_drop_last_every_rank_has_only_whole_steps() -> None:
    found = [
        [rows(batch) for batch in loader(epochs=1, rank=rank, world_size=2, drop_last=True)]
        for rank in range(2)
    ]
    assert _dealt(found) == planned(50)[:12]


def test_explain_says_what_a_step_has() -> None:
    found = loader(rank=1, world_size=2)
    assert found.explain(3).ids.tolist() == planned(50)[7]  # type: ignore[union-attr]
    assert "three-five" in found.explain()["sharing"]  # type: ignore[index]


def test_a_state_of_another_plan_is_refused_by_name() -> None:
    state = loader().state_dict()
    with pytest.raises(OptionError, match=r"plan 'three-five', version 1.*plan 'other'"):
        loader(batch_size=OtherPlan()).load_state_dict(state)
    with pytest.raises(OptionError, match=r"plan 'three-five'.*equal batches"):
        loader(batch_size=4).load_state_dict(state)
    with pytest.raises(OptionError, match=r"equal batches.*plan 'three-five'"):
        loader().load_state_dict(loader(batch_size=4).state_dict())


def test_an_unknown_kind_of_order_is_refused_by_name() -> None:
    state = loader().state_dict()
    state["order"] = {**state["order"], "kind": "spiral"}  # type: ignore[dict-item]
    with pytest.raises(OptionError, match="'spiral'"):
        loader().load_state_dict(state)


def test_a_plan_without_a_name_is_refused_with_what_it_lacks() -> None:
    class Nameless:
        over = ThreeFive.over

    with pytest.raises(OptionError, match=r"a plan has name, version and over\(order\)"):
        loader(batch_size=Nameless())


def test_a_plan_and_a_global_batch_size_are_refused() -> None:
    with pytest.raises(OptionError, match="leave global_batch_size out"):
        loader(global_batch_size=8)
