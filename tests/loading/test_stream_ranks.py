"""Streams over ranks of torch.distributed: equally many steps, one state, never a hang."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.loading import stream_programs
from tests.loading.processes import still_there
from tests.loading.stream_samples import DrawnUnits, all_of
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.loading.ranks import Job, Nursery

SIZES = [31, 4, 0, 18, 55, 7, 12]


def told(job: Job, rank: int) -> Any:
    return json.loads((job.folder / f"rank-{rank}.json").read_text())


@pytest.mark.parametrize(
    ("world_size", "workers", "method", "mapped", "drawn"),
    [
        (2, 0, None, False, None),
        (3, 2, "fork", True, None),
        (2, 2, "forkserver", False, None),
        (2, 2, "fork", False, 9),
    ],
)
def test_ranks_have_equally_many_steps_and_one_state(  # noqa: PLR0913, PLR0917 (what is paired)
    world_size: int,
    workers: int,
    method: str | None,
    mapped: bool,  # noqa: FBT001
    drawn: int | None,
    nursery: Nursery,
    tmp_path: Path,
) -> None:
    options = {"batch_size": 4, "shuffle": True, "epochs": 2, "seed": 3, "num_workers": workers}
    run = {
        "stream": {"sizes": SIZES, "mapped": mapped, "buffer": 10, "drawn": drawn},
        "loader": {**options, "multiprocessing_context": method},
    }
    job = nursery.start(stream_programs.through, tmp_path / "job", world_size, run)
    job.wait()
    ranks = job.rows()
    assert len({len(one) for one in ranks}) == 1
    for step in zip(*ranks, strict=True):
        assert all(row["state"] == step[0]["state"] for row in step)
        assert all(row["everywhere"] == sum(len(row["rows"]) for row in step) for row in step)
        assert step[0]["everywhere"] > 0
    seen = Counter(number for rank in ranks for row in rank for number in row["rows"])
    units = [*range(len(SIZES)), *range(len(SIZES))]
    if drawn is not None:
        units = [unit for epoch in range(2) for unit in DrawnUnits(len(SIZES), drawn)(epoch)]
    assert seen == Counter(all_of(SIZES, mapped=mapped, units=units))
    after = {(job.folder / f"rank-{rank}.state").read_text() for rank in range(world_size)}
    assert [json.loads(one)["epoch"] for one in after] == [2]


@pytest.mark.parametrize("least", [2, 0])
def test_a_rank_without_records_gets_zeros_that_do_not_count(
    least: int, nursery: Nursery, tmp_path: Path
) -> None:
    """Also where it never had a record, with the columns that other ranks have."""
    job = nursery.start(stream_programs.blanks, tmp_path / "job", 3, {"least": least})
    job.wait()
    typed, plain, arrow, called, collated = told(job, 1)
    nothing = {"n": [[0, 0]], "tags": [[], [0, 0]], "word": [["", ""]], "x": [[0, 0], [False] * 2]}
    assert typed == [nothing, [False, False]]
    assert plain == [[None, None], [False, False]]
    columns = {"n": [0, 0], "tags": [[], []], "word": ["", ""], "x": [None, None]}
    assert arrow == [columns, [False, False]]
    assert called == [{"n": [[0, 0]]}, [False, False]]
    assert collated[1] == [False, False]


@pytest.mark.parametrize("number", range(rounds(2, 20)))
def test_a_killed_job_goes_on_without_losing_or_repeating_a_record(
    number: int, nursery: Nursery, tmp_path: Path
) -> None:
    chance = random.Random(number)
    seen: Counter[int] = Counter()
    checkpoint = tmp_path / "checkpoint"
    first = (2 + number % 2, 2 * (number % 2))
    for job_number, (world_size, workers) in enumerate([first, first, (3 - number % 2, 1), (1, 0)]):
        loader = {"batch_size": 3, "shuffle": True, "num_workers": workers}
        run = {
            "stream": {"sizes": SIZES, "mapped": True, "buffer": 10},
            "loader": loader,
            "checkpoint": str(checkpoint),
        }
        before = _steps(checkpoint)
        job = nursery.start(stream_programs.through, tmp_path / f"{job_number}", world_size, run)
        if world_size > 1:
            _kill(job, chance.randint(1, 6))
        else:
            job.wait()
        if not checkpoint.exists():
            continue  # Killed between its first rows and its first checkpoint.
        upto = json.loads(checkpoint.read_text())
        ranks = job.rows()
        done = [row["step"] for row in ranks[0] if row["state"] == upto]
        for row in [row for rank in ranks for row in rank if done and row["step"] <= done[0]]:
            seen.update(row["rows"])
        assert before != _steps(checkpoint) or not done
    assert seen == Counter(all_of(SIZES, mapped=True))


def _steps(checkpoint: Path) -> str:
    return checkpoint.read_text() if checkpoint.exists() else ""


def _kill(job: Job, steps: int) -> None:
    deadline = time.monotonic() + 60
    while len(job.rows()[0]) < steps and still_there(job.ranks, 0):
        assert time.monotonic() < deadline, (job.folder / "rank-0.log").read_text()
        time.sleep(0.001)
    processes = job.processes()
    job.kill()
    assert still_there(processes) == []


def test_a_run_of_the_same_ranks_and_workers_goes_on_exactly(
    nursery: Nursery, tmp_path: Path
) -> None:
    run: dict[str, Any] = {
        "stream": {"sizes": SIZES, "buffer": 10},
        "loader": {"batch_size": 4, "shuffle": True, "num_workers": 2},
    }
    job = nursery.start(stream_programs.through, tmp_path / "whole", 2, run)
    job.wait()
    whole = job.rows()
    for cut in (1, len(whole[0]) // 2, len(whole[0]) - 1):
        checkpoint = tmp_path / f"checkpoint-{cut}"
        checkpoint.write_text(json.dumps(whole[0][cut - 1]["state"]))
        again = {**run, "checkpoint": str(checkpoint)}
        job = nursery.start(stream_programs.through, tmp_path / f"from-{cut}", 2, again)
        job.wait()
        for rank, found in enumerate(job.rows()):
            assert [row["rows"] for row in found] == [row["rows"] for row in whole[rank][cut:]]


def test_a_torch_dataset_shards_itself_over_ranks_and_workers(
    nursery: Nursery, tmp_path: Path
) -> None:
    run: dict[str, Any] = {"length": 23, "loader": {"batch_size": 3, "num_workers": 2}}
    job = nursery.start(stream_programs.through, tmp_path / "whole", 2, run)
    job.wait()
    whole = job.rows()
    assert len({len(rank) for rank in whole}) == 1
    seen = [number for rank in whole for row in rank for number in row["rows"]]
    assert sorted(seen) == [*range(23)]
    checkpoint = tmp_path / "checkpoint"
    state = json.dumps(whole[0][1]["state"])
    checkpoint.write_text(state)
    again = {**run, "checkpoint": str(checkpoint)}
    job = nursery.start(stream_programs.through, tmp_path / "again", 2, again)
    job.wait()
    for rank, found in enumerate(job.rows()):
        assert [row["rows"] for row in found] == [row["rows"] for row in whole[rank][2:]]
    checkpoint.write_text(state)
    job = nursery.start(stream_programs.through, tmp_path / "three", 3, again)
    assert still_there(job.ranks, 60) == []
    assert "of 4 ranks × workers, and there are 6 now" in (job.folder / "rank-0.log").read_text()


@pytest.mark.parametrize(
    ("saves", "said"), [(False, "rank 1 has neither"), (True, "rank 1 did not call state_dict()")]
)
def test_a_dead_rank_is_named(
    saves: bool,  # noqa: FBT001
    said: str,
    nursery: Nursery,
    tmp_path: Path,
) -> None:
    # Ranks 0 and 2 run out while rank 1, which has most records, is dead.
    run = {
        "stream": {"sizes": [5, 60, 3]},
        "loader": {"batch_size": 4, "stall_timeout": 2, "num_workers": 0},
        "dies": 1,
        "at": 2,
        "left": [2],
        "saves": saves,
    }
    job = nursery.start(stream_programs.dies, tmp_path / "job", 3, run)
    assert still_there(job.ranks, 60) == []
    for rank in (0, 2):
        assert said in told(job, rank), told(job, rank)


def test_a_dead_rank_that_held_the_store_is_named(nursery: Nursery, tmp_path: Path) -> None:
    run = {
        "stream": {"sizes": [60, 5]},
        "loader": {"batch_size": 4, "stall_timeout": 20, "num_workers": 0},
        "dies": 0,
        "at": 3,
        "store_in_rank_0": True,
    }
    job = nursery.start(stream_programs.dies, tmp_path / "job", 2, run)
    assert still_there(job.ranks, 60) == []
    assert "the store of the process group, which lies in rank 0" in told(job, 1)


@pytest.mark.parametrize(
    ("source", "seconds"),
    [
        ({"stream": {"sizes": [9, 2]}}, [0.2, 0]),
        ({"stream": {"sizes": [9, 2]}}, [0, 0.2]),
        ({"records": 24}, [0, 0.2]),  # Numbered records need no other rank, nor its store.
        ({"records": 24, "encode": "words"}, [0.2, 0]),
    ],
)
def test_the_rank_that_holds_the_store_ends_no_other_rank_by_leaving(
    source: dict[str, Any], seconds: list[float], nursery: Nursery, tmp_path: Path
) -> None:
    run = {"loader": {"batch_size": 4}, "seconds": seconds, "store_in_rank_0": True, **source}
    job = nursery.start(stream_programs.leaves, tmp_path / "job", 2, run)
    job.wait()
    assert [told(job, rank) for rank in range(2)] == [3, 3]


@pytest.mark.parametrize("asks", [[0], [1]])
def test_a_rank_that_does_not_ask_for_the_state_is_named(
    asks: list[int], nursery: Nursery, tmp_path: Path
) -> None:
    run = {
        "stream": {"sizes": SIZES},
        "loader": {"batch_size": 4, "stall_timeout": 1, "num_workers": 0},
        "asks": asks,
    }
    job = nursery.start(stream_programs.asks_alone, tmp_path / "job", 2, run)
    job.wait()
    assert f"rank {1 - asks[0]} did not call state_dict()" in told(job, asks[0])


def test_what_encoders_learn_on_ranks_is_merged_or_kept_for_each(
    nursery: Nursery, tmp_path: Path
) -> None:
    states = {}
    for encode in ("words", "merged"):
        run = {
            "stream": {"sizes": SIZES},
            "loader": {"batch_size": 4, "num_workers": 0},
            "encode": encode,
        }
        job = nursery.start(stream_programs.through, tmp_path / encode, 2, run)
        job.wait()
        rows = job.rows()
        assert [row["state"] for row in rows[0]] == [row["state"] for row in rows[1]]
        states[encode] = rows[0][1]["state"]
        after = json.loads((job.folder / "rank-1.state").read_text())
        assert (rows[0][-1]["state"]["epoch"], after["epoch"]) == (0, 1)
    each = states["words"]["encoders"]
    assert len(each) == 2
    assert each[0] != each[1]
    words = {word for one in each for word in one["words"]}
    assert set(states["merged"]["encoder"]["words"]) == words
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_text(json.dumps(states["words"]))
    again = {**run, "encode": "words", "checkpoint": str(checkpoint)}
    job = nursery.start(stream_programs.through, tmp_path / "two", 2, again)
    job.wait()
    learnt = job.rows()[1][0]["state"]["encoders"][1]["words"]
    assert learnt[: len(each[1]["words"])] == each[1]["words"]
    checkpoint.write_text(json.dumps(states["words"]))
    job = nursery.start(stream_programs.through, tmp_path / "three", 3, again)
    assert still_there(job.ranks, 60) == []
    assert "learnt on each of 2 ranks" in (job.folder / "rank-0.log").read_text()
