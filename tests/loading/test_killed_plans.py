"""A job with a plan that is killed goes on from its last checkpoint, on other ranks, exactly."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock import order
from penstock.order import Order
from tests.loading import gloo_programs
from tests.loading.processes import left_in_shared_memory, shared_memory, still_there

if TYPE_CHECKING:
    from pathlib import Path

    from tests.loading.ranks import Job, Nursery

COUNT, SEED, EPOCHS, EVERY = 400, 11, 2, 3
LENGTHS = [(n * 7919) % 31 + 1 for n in range(COUNT)]
PLANS = {
    "CostPlan": ["len(text)", 200],
    "PackingPlan": ["len(text)", 50, 5],
    "BucketPlan": ["len(text)", 13, 4],
}


@pytest.mark.parametrize("name", [*PLANS])
def test_a_killed_job_goes_on_with_the_next_batch(
    name: str, nursery: Nursery, tmp_path: Path
) -> None:
    path, checkpoint = tmp_path / "some.jsonl", tmp_path / "checkpoint"
    path.write_text(
        "".join(json.dumps({"n": n, "text": "x" * LENGTHS[n]}) + "\n" for n in range(COUNT))
    )
    penstock.open(path)
    before = shared_memory()
    expected = [batch for epoch in range(EPOCHS) for batch in _planned(name, epoch)]
    seen: list[list[int]] = []
    for number, world_size in enumerate((2, 3, 2)):
        options: dict[str, Any] = {"shuffle": True, "seed": SEED, "epochs": EPOCHS}
        options |= {"batch_size": [name, *PLANS[name]], "num_workers": number}
        run = {"path": str(path), "loader": options, "checkpoint": str(checkpoint), "every": EVERY}
        job = nursery.start(gloo_programs.train, tmp_path / f"job-{number}", world_size, run)
        until = None
        if number < 2:
            _kill(job, 8)
            until = _place(checkpoint)
        else:
            job.wait()
        seen += _batches(job, until)
    assert seen == expected
    assert left_in_shared_memory(before) == set()


def _planned(name: str, epoch: int) -> list[list[int]]:
    records = Order(COUNT, seed=SEED, epoch=epoch)
    batches = getattr(order, name)(LENGTHS, *PLANS[name][1:]).over(records)
    return [records.at(batches.positions(number)).tolist() for number in range(len(batches))]


def _kill(job: Job, steps: int) -> None:
    """Kill a job, with all that it has started, once it has gone so many steps."""
    deadline = time.monotonic() + 60
    while len(job.rows()[0]) < steps and still_there(job.ranks, 0):
        assert time.monotonic() < deadline, (job.folder / "rank-0.log").read_text()
        time.sleep(0.001)
    processes = job.processes()
    job.kill()
    assert still_there(processes) == []


def _place(checkpoint: Path) -> list[int]:
    state = json.loads(checkpoint.read_text())
    return [state["epoch"], state["position"]]


def _batches(job: Job, until: list[int] | None) -> list[list[int]]:
    """Return the batches of all ranks up to a place, in the order of the plan."""
    ranks = job.rows()
    found = []
    for step in range(len([row for row in ranks[0] if until is None or row["at"] <= until])):
        rows = [rows[step] for rows in ranks]
        assert len({tuple(row["at"]) for row in rows}) == 1
        found += [row["ids"] for row in rows if all(row["valid"])]
    return found
