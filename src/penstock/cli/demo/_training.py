"""The stages of `penstock demo` that need torch: train, kill the training, resume it."""

from __future__ import annotations

import importlib.util
import json
import math
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
from penstock.cli._units import counted
from penstock.cli.demo._stages import DemoRun, Row, promise
from penstock.cli.demo._trainer import EPOCHS, Job, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SECONDS_TO_DIE = 30.0
_WORKERS_KILLED = 1
_WORKERS_RESUMED = 2
_SHOWN = 7
"""Losses that a curve has in the table."""


def torch_is_there() -> bool:
    """Whether torch is installed, without loading it."""
    return importlib.util.find_spec("torch") is not None


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How a number of records is trained on.

    >>> plan = TrainingPlan(50_000)
    >>> plan.batch_size, plan.epoch_steps, plan.save_every, plan.saved_at, plan.killed_at
    (512, 98, 19, 133, 142)
    """

    records: int

    @property
    def batch_size(self) -> int:
        """Records of a step; an epoch has many steps, however few the records are."""
        return min(512, max(8, self.records // 50))

    @property
    def epoch_steps(self) -> int:
        """Batches of an epoch; the last one may be short."""
        return math.ceil(self.records / self.batch_size)

    @property
    def save_every(self) -> int:
        """Steps from one checkpoint to the next."""
        return self.epoch_steps // 5

    @property
    def saved_at(self) -> int:
        """Steps before the last checkpoint before the kill: half-way in the last epoch."""
        middle = (2 * EPOCHS - 1) * self.epoch_steps // 2
        return middle // self.save_every * self.save_every

    @property
    def killed_at(self) -> int:
        """Steps taken when the run is killed; some of them after the checkpoint."""
        return self.saved_at + max(1, self.save_every // 2)

    def job(self, run: DemoRun, name: str, num_workers: int) -> Job:
        """Return the job of one training run, uncut and from the beginning."""
        folder = Path(run.scratch)
        return Job(
            data=run.directory,
            index=str(folder / "index"),
            log=str(folder / f"{name}.jsonl"),
            checkpoint=str(folder / f"{name}.pt"),
            batch_size=self.batch_size,
            save_every=self.save_every,
            num_workers=num_workers,
        )

    def epochs_of(self, steps: Sequence[Step]) -> list[list[int]]:
        """Return the records of each epoch, in the order in which they came."""
        size = self.epoch_steps
        return [
            [number for step in steps[first : first + size] for number in step.ids]
            for first in range(0, len(steps), size)
        ]

    def sees_all_once(self, steps: Sequence[Step]) -> bool:
        """Return whether each epoch has every record once."""
        epochs = [sorted(epoch) for epoch in self.epochs_of(steps)]
        return epochs == [list(range(self.records))] * EPOCHS


def train_uncut(run: DemoRun) -> None:
    """Train a small model, shuffled anew in each epoch, without interruption."""
    plan = TrainingPlan(run.records)
    steps = _trained(plan.job(run, "uncut", num_workers=0))
    promise(plan.sees_all_once(steps), f"each epoch has all {run.records:,} records, each once")
    orders = [list(range(run.records)), *plan.epochs_of(steps)]
    promise(
        all(order not in orders[:at] for at, order in enumerate(orders)),
        "each epoch is shuffled, and in another way",
    )
    quarter = len(steps) // 4
    falls = _sum(steps[-quarter:]) < _sum(steps[:quarter])
    promise(falls, "a model learns from the records")
    seen = f"{EPOCHS} epochs of {counted(run.records, 'record')} in {len(steps)} steps, shuffled"
    run.rows += [
        Row("train", seen, steps[-1].seconds, EPOCHS * run.records),
        Row("  loss", _curve(steps)),
    ]


def kill_training(run: DemoRun) -> None:
    """Train the same model with workers, and end it with SIGKILL in the middle of an epoch."""
    plan = TrainingPlan(run.records)
    job = replace(plan.job(run, "killed", _WORKERS_KILLED), waits_at=plan.killed_at)
    process = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
        _command(job), cwd=_home(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        promise(line == "there\n", "the same training runs with workers")
    finally:
        process.send_signal(signal.SIGKILL)
        # Returns when its workers have closed stdout, too: none outlives the run.
        process.communicate(timeout=_SECONDS_TO_DIE)
    promise(process.returncode == -signal.SIGKILL, "the training was killed")
    steps, uncut = _log("killed", run), _log("uncut", run)
    promise(
        _are_same(steps, uncut[: plan.killed_at]),
        "with workers come the same batches, and the same losses to the last digit",
    )
    workers = counted(_WORKERS_KILLED, "worker")
    seen = f"at step {plan.killed_at}, with {workers}; last checkpoint: step {plan.saved_at}"
    run.rows.append(Row("kill training", seen))


def resume_training(run: DemoRun) -> None:
    """Go on from the last checkpoint with another number of workers; compare every loss."""
    plan = TrainingPlan(run.records)
    checkpoint = plan.job(run, "killed", _WORKERS_KILLED).checkpoint
    job = replace(plan.job(run, "resumed", _WORKERS_RESUMED), begins_with=checkpoint)
    steps = _trained(job)
    killed, uncut = _log("killed", run), _log("uncut", run)
    joined = killed[: plan.saved_at] + steps
    promise(
        plan.sees_all_once(joined),
        "after the resume each epoch has every record once, in spite of the kill",
    )
    promise(
        _are_same(joined, uncut),
        "after the resume every loss is that of the uncut run, to the last digit",
    )
    workers = counted(_WORKERS_RESUMED, "worker")
    seen = f"the other {len(steps)} steps with {workers}, each loss the same to the last digit"
    run.rows += [
        Row("resume", seen, steps[-1].seconds, sum(len(step.ids) for step in steps)),
        Row("  same loss", _curve(joined)),
    ]


TRAINING_STAGES: list[Callable[[DemoRun], None]] = [train_uncut, kill_training, resume_training]
"""In order, after the others; each reads the logs of those before it."""


def _trained(job: Job) -> list[Step]:
    """DemoRun a training to its end; return its steps."""
    done = subprocess.run(  # noqa: S603 (as above)
        _command(job), cwd=_home(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    promise(done.returncode == 0, "a model can be trained on the dataset")
    return _steps(job.log)


def _command(job: Job) -> list[str]:
    return [sys.executable, "-m", "penstock.cli.demo._trainer", job.to_json()]


def _home() -> Path:
    """Return the folder from which a child imports the same Penstock."""
    return Path(penstock.__file__).parents[1]


def _log(name: str, run: DemoRun) -> list[Step]:
    return _steps(TrainingPlan(run.records).job(run, name, 0).log)


def _steps(log: str) -> list[Step]:
    return [Step(**json.loads(line)) for line in Path(log).read_text("ascii").splitlines()]


def _are_same(some: Sequence[Step], others: Sequence[Step]) -> bool:
    """Return whether two runs had the same records and losses, step by step."""
    return [(step.ids, step.loss) for step in some] == [(step.ids, step.loss) for step in others]


def _sum(steps: Sequence[Step]) -> float:
    return sum(float.fromhex(step.loss) for step in steps)


def _curve(steps: Sequence[Step]) -> str:
    """Return some losses from the first to the last, the last one with every digit."""
    last = len(steps) - 1
    losses = [float.fromhex(steps[last * at // (_SHOWN - 1)].loss) for at in range(_SHOWN)]
    return " ".join([*(f"{loss:.4f}" for loss in losses[:-1]), repr(losses[-1])])
