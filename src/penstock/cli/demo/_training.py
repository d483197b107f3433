"""The stages of `penstock demo` that need torch: train, kill the training, resume it.

`python -m penstock.cli.demo._training '{"data": …}'` is one training run; its argument is a `Job`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import penstock
from penstock.cli._units import counted
from penstock.cli.demo._stages import DemoRun, Row, child, killed, promise, wait_for_the_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

EPOCHS = 2
_SEED = 7
_TYPES = {"id": "int64", "price": "float32", "items": "list<int64>"}
_RATE = 0.02
_MOMENTUM = 0.9
_WORKERS_KILLED = 1
_WORKERS_RESUMED = 2
_SHOWN = 7
"""Losses that a curve has in the table."""


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of one training run."""

    data: str
    index: str
    """Where the index of the data is, or comes to be."""
    log: str
    """Gets a line of JSON for each step, the fields of Step."""
    checkpoint: str
    batch_size: int
    save_every: int
    """Steps from one checkpoint to the next."""
    num_workers: int
    begins_with: str | None = None
    """A checkpoint to go on from."""
    waits_at: int | None = None
    """After this step it prints a line and waits to be killed."""

    def process(self) -> dict[str, Any]:
        """Return how its process is started."""
        return child("penstock.cli.demo._training", json.dumps(asdict(self)))


class Step(NamedTuple):
    """The log entry of one step."""

    loss: str
    """By `float.hex`, which leaves out no digit."""
    ids: list[int]
    """The field `id` of the records in the batch."""
    seconds: float
    """Since the run's first batch was asked for."""


def torch_is_there() -> bool:
    """Whether torch is installed, without loading it."""
    return importlib.util.find_spec("torch") is not None


class TrainingPlan:
    """How a number of records is trained on.

    >>> plan = TrainingPlan(50_000)
    >>> plan.batch_size, plan.epoch_steps, plan.save_every, plan.saved_at, plan.killed_at
    (512, 98, 19, 133, 142)
    """

    def __init__(self, records: int) -> None:
        self.records = records
        # An epoch has many steps, however few the records are.
        self.batch_size = min(512, max(8, records // 50))
        self.epoch_steps = math.ceil(records / self.batch_size)
        self.save_every = self.epoch_steps // 5
        # The last checkpoint before the kill is half-way in the last epoch.
        middle = (2 * EPOCHS - 1) * self.epoch_steps // 2
        self.saved_at = middle // self.save_every * self.save_every
        self.killed_at = self.saved_at + max(1, self.save_every // 2)

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
    with killed(job.process(), "the same training runs with workers"):
        pass  # It stands at that step.
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
    """Run a training to its end; return its steps."""
    done = subprocess.run(
        **job.process(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
    )
    promise(done.returncode == 0, "a model can be trained on the dataset")
    return _steps(job.log)


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


def train(job: Job) -> None:
    """Learn the sum of a record's items from their number, the first of them, and the price."""
    import torch  # noqa: PLC0415 (optional, and a second or two to load)

    # The sum of floats depends on how it is shared among threads.
    torch.set_num_threads(1)
    # As use_deterministic_algorithms, which loads torch's compiler: over a second each time.
    torch.set_deterministic_debug_mode("error")
    torch.manual_seed(_SEED)
    loader = penstock.DataLoader(
        # Not beside the data, which --keep leaves to the user.
        penstock.open(job.data, index=job.index, progress=False),
        _TYPES,
        batch_size=job.batch_size,
        shuffle=True,
        seed=_SEED,
        epochs=EPOCHS,
        num_workers=job.num_workers,
        # RANK and WORLD_SIZE of the caller do not apply here.
        rank=0,
        world_size=1,
    )
    model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    weights = list(model.parameters())
    speeds = [torch.zeros_like(weight) for weight in weights]
    step = 0
    if job.begins_with is not None:
        saved = torch.load(job.begins_with, weights_only=True)
        model.load_state_dict(saved["model"])
        speeds = saved["optimizer"]
        loader.load_state_dict(saved["loader"])
        step = saved["step"]
    start = time.perf_counter()
    with Path(job.log).open("w", encoding="ascii") as log:
        for batch in loader:
            target = batch["items"].to_padded(fill=0).sum(dim=1) / 4096
            loss = torch.nn.functional.mse_loss(model(_inputs(batch)).squeeze(1), target)
            loss.backward()  # type: ignore[no-untyped-call] # torch has no types for it
            _descend(weights, speeds)
            step += 1
            entry = Step(
                float(loss.item()).hex(), batch["id"].tolist(), time.perf_counter() - start
            )
            log.write(json.dumps(entry._asdict()) + "\n")
            log.flush()
            if step % job.save_every == 0:
                draft = Path(f"{job.checkpoint}.draft")
                state = {
                    "model": model.state_dict(),
                    "optimizer": speeds,
                    "loader": loader.state_dict(),
                    "step": step,
                }
                torch.save(state, draft)
                draft.replace(job.checkpoint)
            if step == job.waits_at:
                wait_for_the_end()
                return


def _inputs(batch: penstock.Batch) -> torch.Tensor:
    """Return the inputs of the model, float32[B, 3], each about 0 to 1.

    To stack copies into memory that torch has aligned; how a matrix lies in memory can change the
    last digit of its product, and a batch of a worker lies elsewhere.
    """
    import torch  # noqa: PLC0415 (as above)

    items = batch["items"]
    first = items.values[items.offsets[:-1]]  # Every record has an item.
    return torch.stack([items.lengths / 5, first / 4096, batch["price"] / 100], dim=1)


def _descend(weights: Sequence[torch.Tensor], speeds: Sequence[torch.Tensor]) -> None:
    """Take a step down the gradients, with momentum.

    By hand because an optimizer of `torch.optim` loads the compiler, too.
    """
    for weight, speed in zip(weights, speeds, strict=True):
        assert weight.grad is not None  # noqa: S101 (after a backward pass)
        speed.mul_(_MOMENTUM).add_(weight.grad)
        weight.detach().sub_(speed, alpha=_RATE)
        weight.grad = None


if __name__ == "__main__":
    # Ctrl-C reaches every process; only the command has something to say about it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    train(Job(**json.loads(sys.argv[1])))
