"""Data modules under two ranks of Lightning: every record once, equal steps, exact resumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration import last_step_program, module_program
from tests.integration.launching import run_by_lightning
from tests.lightning.small_models import RECORDS, Seen

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",
    "ignore:.*callbacks used to create the checkpoint",
    "ignore:.*use of fork:DeprecationWarning",
)

Found = dict[str, Any]
KINDS: dict[str, list[str]] = {
    "shuffled": ["step1", "step2", "end0"],
    "generated": ["step2", "step4", "end0"],
    "dropped": ["step1"],
    "a dataset": ["end0"],
    "a source": ["step1"],
}
"""Some checkpoints of each: in the middle of an epoch, at its last batch, at its end."""
LAST = ["module", "loader", "beside"]
"""By whom labels are brought together: data modules, or a model with a schema."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(place: Path) -> list[Found]:
    plan = {"kinds": KINDS, "trainer": {"devices": 2, "strategy": "ddp"}}
    return run_by_lightning("module_program", place, plan)


@pytest.fixture(scope="module")
def last(place: Path) -> list[Found]:
    return run_by_lightning("last_step_program", place / "last", LAST)


def steps(run: Found, what: str = "trained") -> list[Seen]:
    return [Seen(*one) for one in run[what]]


def counted(runs: list[Found], epoch: int, what: str = "trained") -> list[int]:
    return sorted(
        number
        for run in runs
        for one in steps(run, what)
        if one.epoch == epoch
        for number, counts in zip(one.ids, one.valid or [True] * len(one.ids), strict=True)
        if counts
    )


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_take_as_many_steps_and_share_every_record(kind: str, ranks: list[Found]) -> None:
    assert len(ranks) == 2
    runs = [rank[kind]["whole"] for rank in ranks]
    one, other = map(steps, runs)
    assert [step.epoch for step in one] == [step.epoch for step in other]
    numbers = list(range(RECORDS))
    if kind == "a dataset":  # Which has a unit for each rank.
        numbers = [*range(6), *range(1 << 32, (1 << 32) + 5)]
    for epoch in range(module_program.EPOCHS):
        found = counted(runs, epoch)
        if kind == "generated":
            assert len(set(found)) == len(found) == 24
        elif kind == "dropped":
            assert set(found) <= set(numbers)
            assert len(found) == len(set(found)) >= RECORDS - 3
        else:
            assert found == numbers
            assert counted(runs, epoch, "validated") == numbers
    if kind == "dropped":
        assert all(step.valid is None for step in (*one, *other))


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_end_with_the_same_weights_and_labels(kind: str, ranks: list[Found]) -> None:
    one, other = (rank[kind]["whole"] for rank in ranks)
    assert one["weight"] == other["weight"]
    for part in ("vocabularies", "statistics", "counts"):
        assert one["learnt"][part] == other["learnt"][part]
    if kind != "dropped":
        labels = "abcdf" if kind == "generated" else "abcdef"
        assert sorted(one["learnt"]["vocabularies"]["record/c"]) == list(labels)


@pytest.mark.parametrize("kind", KINDS)
def test_every_rank_goes_on_as_if_it_had_never_stopped(kind: str, ranks: list[Found]) -> None:
    for rank in ranks:
        whole = rank[kind]["whole"]
        first = sum(step.epoch == 0 for step in steps(whole))
        for checkpoint in KINDS[kind]:
            before = first if checkpoint == "end0" else int(checkpoint.removeprefix("step"))
            again = rank[kind][checkpoint]
            assert steps(again) == steps(whole)[before:], checkpoint
            assert again["learnt"] == whole["learnt"], checkpoint
            assert again["weight"] == whole["weight"], checkpoint


def test_prediction_has_every_record_once_without_rows_that_do_not_count(
    ranks: list[Found],
) -> None:
    found = [[number for ids, _ in rank["predicted"] for number in ids] for rank in ranks]
    assert sorted(found[0] + found[1]) == list(range(RECORDS))
    assert [len(one) for one in found] == [6, 5]


@pytest.mark.parametrize("kind", ["shuffled", "generated", "a source"])
def test_one_process_goes_on_with_the_records_that_two_left(
    kind: str, ranks: list[Found], place: Path
) -> None:
    again = module_program.fit(kind, place / kind, "step1", {"limit_val_batches": 0})
    begun = [{"trained": rank[kind]["whole"]["trained"][:1]} for rank in ranks]
    whole = counted([rank[kind]["whole"] for rank in ranks], 0)
    assert counted([*begun, again], 0) == whole
    assert counted([again], 1) == whole


@pytest.mark.parametrize("kind", LAST)
def test_a_checkpoint_of_the_last_step_brings_all_labels_to_all_ranks(
    kind: str, last: list[Found]
) -> None:
    one, other = (rank[kind] for rank in last)
    assert sorted(one["whole"]["vocabularies"]["record/c"]) == sorted(last_step_program.LABELS)
    for rank in (one, other):
        assert rank["resumed"] == rank["whole"] == one["whole"]
        if kind == "beside":
            assert rank["validated"]["vocabularies"] == one["whole"]["vocabularies"]
        else:
            assert rank["saved"] == one["whole"]["vocabularies"]


def test_two_ranks_count_once_what_one_process_had_learnt(last: list[Found]) -> None:
    for rank in last:
        found = rank["loader"]["of one"]
        count, mean, _ = found["statistics"]["record/x"]["known"]
        assert (count, mean) == (last_step_program.RECORDS, 5.5)
        assert found["vocabularies"]["record/c"] == last_step_program.LABELS
