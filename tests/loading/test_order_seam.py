"""A new kind of order is one class and one row: named by `shuffle=`, kept in states, resumed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock import DataLoader
from penstock.errors import OptionError
from penstock.order import ORDERS
from tests.loading.toy_order import BACKWARDS, Backwards
from tests.loading.toy_plan import ThreeFive

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT, SEED = 50, 3


@pytest.fixture(autouse=True)
def row() -> Iterator[None]:
    ORDERS["backwards"] = BACKWARDS
    yield
    ORDERS.pop("backwards", None)


def loader(**options: Any) -> DataLoader:
    records = [{"n": number} for number in range(COUNT)]
    defaults: dict[str, Any] = {"batch_size": 4, "seed": SEED, "epochs": 2, "shuffle": "backwards"}
    return DataLoader(records, {"n": "int64"}, **{**defaults, **options})


def rows(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch["n"].tolist()]


def expected(epoch: int, skip: tuple[int, ...] = ()) -> list[int]:
    kept = [number for number in range(COUNT) if number not in skip]
    return [kept[(SEED + epoch - place) % len(kept)] for place in range(len(kept))]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("skip", [(), (7, 20)])
def test_records_come_in_this_order(workers: int, skip: tuple[int, ...]) -> None:
    found = loader(num_workers=workers, skip=skip)
    assert rows(found) == expected(0, skip) + expected(1, skip)
    assert "backwards" in found.explain()["order"]  # type: ignore[index]


@pytest.mark.parametrize("batch_size", [4, ThreeFive()])
def test_a_run_goes_on_at_any_batch(batch_size: Any) -> None:
    first = loader(batch_size=batch_size)
    whole, states = [], [first.state_dict()]
    for batch in first:
        whole.append(batch["n"].tolist())
        states.append(json.loads(json.dumps(first.state_dict())))
    assert states[1]["order"]["kind"] == "backwards"
    assert states[1]["order"]["version"] == Backwards.VERSION
    for cut in range(len(whole)):
        second = loader(batch_size=batch_size, shuffle=False)  # The state says which order.
        second.load_state_dict(states[cut])
        assert [batch["n"].tolist() for batch in second] == whole[cut:]


def test_two_ranks_go_on_with_the_records_that_one_would_have_had() -> None:
    first = loader(epochs=1)
    run = iter(first)
    before = rows(next(run) for _ in range(3))
    parts = []
    for rank in range(2):
        part = loader(epochs=1, rank=rank, world_size=2)
        part.load_state_dict(first.state_dict())
        parts += [
            number
            for batch in part
            for number, counts in zip(
                batch["n"].tolist(),
                [True] * len(batch["n"]) if batch.valid is None else batch.valid.tolist(),
                strict=True,
            )
            if counts
        ]
    assert sorted(before + parts) == list(range(COUNT))


def test_unknown_kinds_and_versions_are_refused_by_name() -> None:
    state = loader().state_dict()
    newer = {**state, "order": {**state["order"], "version": Backwards.VERSION + 1}}  # type: ignore[dict-item]
    with pytest.raises(OptionError, match=r"order\.version is 3"):
        loader().load_state_dict(newer)
    del ORDERS["backwards"]
    with pytest.raises(OptionError, match=r"order\.kind is 'backwards'"):
        loader(shuffle=True).load_state_dict(state)
    with pytest.raises(OptionError, match="shuffle='backwards'"):
        loader()
