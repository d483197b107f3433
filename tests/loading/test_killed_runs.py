"""A job that is killed goes on from its last checkpoint, on other ranks and workers, exactly."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import penstock
from penstock.jsonl import JsonlFile
from penstock.order import Order
from penstock.order._blocks import WINDOW_RECORDS
from tests.loading import gloo_programs
from tests.loading.processes import left_in_shared_memory, shared_memory, still_there
from tests.loading.ranks import global_batch
from tests.rounds import LONG, rounds

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source
    from tests.loading.ranks import Job, Nursery

LENGTHS = {"packed.jsonl.zst": WINDOW_RECORDS + 2_003, "plain.jsonl": 1_003}
GLOBAL_BATCHES = {"packed.jsonl.zst": 2_400, "plain.jsonl": 36}
"""1, 2 and 3 ranks share them; they do not divide the lengths, and make 28 steps an epoch."""
STEPS = 28
SEED = 11
EPOCHS = 2
EVERY = 4
ROUNDS = rounds(2, 20)
METHODS = ("fork", "forkserver", "spawn") if LONG else ("fork",)


class Plan(NamedTuple):
    """How one job is run and killed, and how it goes on."""

    name: str
    drop_last: bool
    worlds: list[int]
    workers: list[int]
    methods: list[str]
    steps: list[int]
    """After how many steps of the first rank each job but the last is killed."""
    with_workers: list[bool]
    """Whether a kill reaches the workers themselves, or only the ranks."""
    materialize: list[bool]
    """Whether records are gathered from columns, in turn with decoding."""


def _plan(number: int) -> Plan:
    """Return one of the plans; any two that follow each other differ in what matters most."""
    chance = random.Random(number)
    kills = chance.choice([1, 2])
    worlds = [chance.choice([1, 2, 3])]
    workers = [chance.choice([0, 1, 3])]
    for _ in range(kills):
        worlds.append(chance.choice([w for w in (1, 2, 3) if w != worlds[-1]]))
        workers.append(chance.choice([w for w in (0, 1, 2, 3) if w != workers[-1]]))
    return Plan(
        name=("packed.jsonl.zst", "plain.jsonl")[number % 2],
        drop_last=bool(number // 2 % 2) != bool(number % 2),
        worlds=worlds,
        workers=workers,
        methods=[chance.choice(METHODS) for _ in worlds],
        steps=[chance.randint(1, EPOCHS * STEPS // kills) for _ in range(kills)],
        with_workers=[chance.random() < 0.5 for _ in range(kills)],
        materialize=[bool((number // 2 + job) % 2) for job in range(kills + 1)],
    )


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    folder = tmp_path_factory.mktemp("killed")
    found = {}
    for name, length in LENGTHS.items():
        frames = {"frame_bytes": 4_000} if name.endswith(".zst") else {}
        with JsonlFile(folder / name).writer_sync(**frames) as writer:
            writer.write_many([{"n": number} for number in range(length)])
        found[name] = penstock.open(folder / name)
    return found


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_killed_job_goes_on_exactly(
    number: int, nursery: Nursery, sources: dict[str, Source], tmp_path: Path
) -> None:
    plan = _plan(number)
    source = sources[plan.name]
    checkpoint = tmp_path / "checkpoint"
    before = shared_memory()
    seen: list[int] = []
    for job_number, world_size in enumerate(plan.worlds):
        is_last = job_number == len(plan.worlds) - 1
        began = _place(checkpoint)
        run = _run(plan, job_number, source, checkpoint)
        job = nursery.start(gloo_programs.train, tmp_path / f"job-{job_number}", world_size, run)
        if is_last:
            job.wait()
        else:
            processes = _kill(job, plan.steps[job_number], workers=plan.with_workers[job_number])
            assert still_there(processes) == []
        until = None if is_last else _place(checkpoint)
        seen += _global_records(job, began, until, _order(plan, source, 0).lanes)
    assert seen == _uncut(plan, source)
    assert left_in_shared_memory(before) == set()


def _run(plan: Plan, job: int, source: Source, checkpoint: Path) -> dict[str, Any]:
    loader: dict[str, Any] = {
        "global_batch_size": GLOBAL_BATCHES[plan.name],
        "shuffle": True,
        "seed": SEED,
        "epochs": EPOCHS,
        "drop_last": plan.drop_last,
        "num_workers": plan.workers[job],
        "materialize": plan.materialize[job],
    }
    if plan.workers[job]:
        loader["multiprocessing_context"] = plan.methods[job]
    return {
        "path": source.files[0],
        "loader": loader,
        "checkpoint": str(checkpoint),
        "every": EVERY,
    }


def _kill(job: Job, steps: int, *, workers: bool) -> list[Any]:
    """Kill a job once it has gone so many steps, or is over; return its processes."""
    deadline = time.monotonic() + 60
    while len(job.rows()[0]) < steps and still_there(job.ranks, 0):
        assert time.monotonic() < deadline, (job.folder / "rank-0.log").read_text()
        time.sleep(0.001)
    processes = job.processes()
    job.kill(workers=workers)
    return processes


def _place(checkpoint: Path) -> list[int]:
    """Return epoch and position of a checkpoint."""
    if not checkpoint.exists():
        return [0, 0]
    state = json.loads(checkpoint.read_text())
    return [state["epoch"], state["position"]]


def _global_records(job: Job, began: list[int], until: list[int] | None, lanes: int) -> list[int]:
    """Return what all ranks of a job got up to a place, in the order of the epoch."""
    ranks = job.rows()
    steps = [row["at"] for row in ranks[0] if until is None or row["at"] <= until]
    assert all(place > began for place in steps)
    seen: list[int] = []
    for step, place in enumerate(steps):
        rows = [rows[step] for rows in ranks]
        assert all(row["at"] == place for row in rows)
        seen += global_batch(rows, lanes)
    return seen


def _order(plan: Plan, source: Source, epoch: int) -> Order:
    kind: Any = "block" if plan.name.endswith(".zst") else "full"
    blocks = source.blocks if kind == "block" else None
    return Order(len(source), seed=SEED, epoch=epoch, kind=kind, blocks=blocks)


def _uncut(plan: Plan, source: Source) -> list[int]:
    length = len(source) - plan.drop_last * (len(source) % GLOBAL_BATCHES[plan.name])
    records: list[int] = []
    for epoch in range(EPOCHS):
        records += _order(plan, source, epoch).positions(0, length).tolist()
    return records
