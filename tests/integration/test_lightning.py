"""Lightning trains, stops and goes on with our loader: every record once an epoch, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.launching import run_by_lightning, run_by_torchrun, run_program
from tests.rounds import LONG

if TYPE_CHECKING:
    from pathlib import Path

EPOCHS, RECORDS, VALIDATED = 3, 19, 11
BATCHES = 5
"""Of 4 records over all ranks, the last of 3."""

Found = dict[str, dict[str, Any]]

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "module with workers": {"by": "module", "workers": 2},
    "without validation": {"validates": False},
    "limited": {"trainer": {"limit_train_batches": 3}},
    "validated twice": {"trainer": {"val_check_interval": 0.5}},
    "by steps": {"trainer": {"max_epochs": -1, "max_steps": 12}},
    "accumulated": {"trainer": {"accumulate_grad_batches": 2}},
    "new loaders": {"by": "module", "trainer": {"reload_dataloaders_every_n_epochs": 1}},
}
"""How a run may differ; each is run whole and then resumed from all of its checkpoints."""
TWO: dict[str, Any] = {"devices": 2, "strategy": "ddp"}
AT = None if LONG else ["step2", "step3", "step5", "end0", "validated0"]
"""Checkpoints in the middle of an epoch, at its last batch, at its end, after a validation."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lightning")


@pytest.fixture(scope="module")
def two(place: Path) -> list[Found]:
    """What two processes found, which Lightning itself started."""
    plan = [
        {"name": "whole", "saves": "two", "trainer": TWO},
        {"name": "from", "resume": "two", "at": AT, "trainer": TWO, "workers": 1},
    ]
    return run_by_lightning("lightning_program", place / "ranks", plan)


@pytest.fixture(scope="module")
def one(place: Path, two: list[Found]) -> Found:
    """What one process found; it goes on with checkpoints of two as well."""
    assert two
    plan: list[dict[str, Any]] = []
    for name, variant in VARIANTS.items():
        plan += [
            {"name": name, "saves": name, **variant},
            {"name": f"{name} from", "resume": name, "at": AT, **variant},
        ]
    plan.append({"name": "of two", "resume": "../ranks/two", "at": AT})
    (found,) = run_program("lightning_program", place / "one", plan)
    return found


def counted(trained: list[list[Any]], epoch: int) -> list[int]:
    """Return the records of an epoch that count, in the order they came."""
    return [
        number
        for when, _, ids, valid in trained
        if when == epoch
        for number, counts in zip(ids, valid, strict=True)
        if counts
    ]


def resumed(found: Found, name: str) -> Found:
    runs = {key: run for key, run in found.items() if key.startswith(f"{name} ")}
    assert runs
    return runs


def test_each_epoch_has_every_record_once_in_an_order_of_its_own(one: Found) -> None:
    run = one["plain"]
    assert run["batches_of_an_epoch"] == BATCHES
    assert [place[:2] for place in run["trained"]] == [
        [epoch, batch] for epoch in range(EPOCHS) for batch in range(BATCHES)
    ]
    orders = [counted(run["trained"], epoch) for epoch in range(EPOCHS)]
    assert all(sorted(order) == list(range(RECORDS)) for order in orders)
    assert len({tuple(order) for order in orders}) == EPOCHS


def test_each_validation_has_every_record_once(one: Found) -> None:
    for name, times in (("plain", 1), ("validated twice", 2)):
        for epoch in range(EPOCHS):
            assert counted(one[name]["validated"], epoch) == list(range(VALIDATED)) * times


@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_goes_on_from_any_checkpoint_as_if_it_had_never_stopped(
    name: str, one: Found
) -> None:
    whole = one[name]["trained"]
    runs = resumed(one, f"{name} from")
    assert len(runs) >= 4
    for key, run in runs.items():
        if name == "by steps" and " end" in key:
            # Lightning 2.6 itself counts the epoch of such a checkpoint twice when there are
            # max_steps (its issue 19617), and calls a loader just as for one at the last batch.
            continue
        assert run["trained"] == whole[run["batches_before"] :], key
        assert run["weight"] == one[name]["weight"], key


def test_a_limit_takes_the_first_batches_of_each_epochs_own_order(one: Found) -> None:
    plain, limited = (one[name]["trained"] for name in ("plain", "limited"))
    assert limited == [place for place in plain if place[1] < 3]


def test_a_loader_in_a_data_module_with_workers_gives_the_same_batches(one: Found) -> None:
    assert one["module with workers"]["trained"] == one["plain"]["trained"]
    assert one["new loaders"]["trained"] == one["plain"]["trained"]


def together(ranks: list[list[list[Any]]]) -> list[list[Any]]:
    """Return the steps of all ranks as one process sees them."""
    steps = []
    for parts in zip(*ranks, strict=True):
        assert len({tuple(part[:2]) for part in parts}) == 1
        ids = [
            number
            for part in parts
            for number, counts in zip(part[2], part[3], strict=True)
            if counts
        ]
        steps.append([*parts[0][:2], ids, [True] * len(ids)])
    return steps


def test_two_processes_share_the_batches_of_one(one: Found, two: list[Found]) -> None:
    assert len(two) == 2
    whole = [rank["whole"] for rank in two]
    assert together([run["trained"] for run in whole]) == one["plain"]["trained"]
    assert together([run["validated"] for run in whole]) == one["plain"]["validated"]


def test_every_rank_goes_on_by_itself(two: list[Found]) -> None:
    for rank in two:
        for key, run in resumed(rank, "from").items():
            assert run["trained"] == rank["whole"]["trained"][run["batches_before"] :], key


def test_one_process_goes_on_with_what_two_began(one: Found) -> None:
    for key, run in resumed(one, "of two").items():
        assert run["trained"] == one["plain"]["trained"][run["batches_before"] :], key


@pytest.mark.skipif(not LONG, reason="starts three more processes")
def test_two_processes_go_on_with_what_one_began(one: Found, place: Path) -> None:
    plan = [{"name": "of one", "resume": "../one/plain", "at": None, "trainer": TWO}]
    ranks = run_by_torchrun("lightning_program", place / "torchrun", plan, processes=2)
    for key in resumed(ranks[0], "of one"):
        run = together([rank[key]["trained"] for rank in ranks])
        assert run == one["plain"]["trained"][ranks[0][key]["batches_before"] :], key
