"""The stages of `penstock demo` that need torch: train, kill the training, resume it.

`python -m penstock.cli.demo._training '["uncut", …]'` is one training run; its argument is a `Job`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import penstock
from penstock.cli._units import counted
from penstock.cli.demo._stages import DemoRun, Row, child, killed, promise, wait_for_the_end

if TYPE_CHECKING:
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


class Job(NamedTuple):
    """One training run, in a process of its own."""

    name: str
    """Of its log, a line of JSON for each `Step`, and of its checkpoint."""
    data: str
    records: int
    scratch: str
    """Folder of index, logs and checkpoints."""
    num_workers: int = 0
    resumes: str | None = None
    """Name of the run whose checkpoint it goes on from."""
    waits_at: int | None = None
    """After this step it prints a line and waits to be killed."""

    def process(self) -> dict[str, Any]:
        """Return how its process is started."""
        return child("penstock.cli.demo._training", json.dumps(self))

    @property
    def log(self) -> Path:
        """The file of its log."""
        return Path(self.scratch, f"{self.name}.jsonl")

    def steps(self) -> list[Step]:
        """Return what it logged."""
        return [Step(**json.loads(line)) for line in self.log.read_text("ascii").splitlines()]

    def trained(self) -> list[Step]:
        """Run it to its end; return its steps."""
        done = subprocess.run(
            **self.process(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
        )
        promise(done.returncode == 0, "a model can be trained on the dataset")
        return self.steps()


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
    plan, steps = TrainingPlan(run.records), _job(run, "uncut").trained()
    promise(plan.sees_all_once(steps), f"each epoch has all {run.records:,} records, each once")
    orders = [list(range(run.records)), *plan.epochs_of(steps)]
    promise(
        all(order not in orders[:at] for at, order in enumerate(orders)),
        "each epoch is shuffled, and in another way",
    )
    losses, quarter = _losses(steps), len(steps) // 4
    promise(sum(losses[-quarter:]) < sum(losses[:quarter]), "a model learns from the records")
    seen = f"{EPOCHS} epochs of {counted(run.records, 'record')} in {len(steps)} steps, shuffled"
    run.rows += [
        Row("train", seen, steps[-1].seconds, EPOCHS * run.records),
        Row("  loss", _curve(steps)),
    ]


def kill_training(run: DemoRun) -> None:
    """Train the same model with workers, and end it with SIGKILL in the middle of an epoch."""
    plan = TrainingPlan(run.records)
    job = _job(run, "killed", _WORKERS_KILLED)._replace(waits_at=plan.killed_at)
    with killed(job.process(), "the same training runs with workers"):
        pass  # It stands at that step.
    promise(
        _are_same(job.steps(), _job(run, "uncut").steps()[: plan.killed_at]),
        "with workers come the same batches, and the same losses to the last digit",
    )
    workers = counted(_WORKERS_KILLED, "worker")
    seen = f"at step {plan.killed_at}, with {workers}; last checkpoint: step {plan.saved_at}"
    run.rows.append(Row("kill training", seen))


def resume_training(run: DemoRun) -> None:
    """Go on from the last checkpoint with another number of workers; compare every loss."""
    plan = TrainingPlan(run.records)
    steps = _job(run, "resumed", _WORKERS_RESUMED)._replace(resumes="killed").trained()
    joined = _job(run, "killed").steps()[: plan.saved_at] + steps
    promise(
        plan.sees_all_once(joined),
        "after the resume each epoch has every record once, in spite of the kill",
    )
    promise(
        _are_same(joined, _job(run, "uncut").steps()),
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


def _job(run: DemoRun, name: str, num_workers: int = 0) -> Job:
    return Job(name, run.directory, run.records, run.scratch, num_workers)


def _are_same(some: Sequence[Step], others: Sequence[Step]) -> bool:
    """Return whether two runs had the same records and losses, step by step."""
    return [(step.ids, step.loss) for step in some] == [(step.ids, step.loss) for step in others]


def _losses(steps: Sequence[Step]) -> list[float]:
    return [float.fromhex(step.loss) for step in steps]


def _curve(steps: Sequence[Step]) -> str:
    """Return some losses from the first to the last, the last one with every digit."""
    losses, last = _losses(steps), len(steps) - 1
    shown = (f"{losses[last * at // (_SHOWN - 1)]:.4f}" for at in range(_SHOWN - 1))
    return " ".join([*shown, repr(losses[last])])


def train(job: Job) -> None:
    """Learn the sum of a record's items from their number, the first of them, and the price."""
    import torch  # noqa: PLC0415 (optional, and a second or two to load)

    # The sum of floats depends on how it is shared among threads.
    torch.set_num_threads(1)
    # As use_deterministic_algorithms, which loads torch's compiler: over a second each time.
    torch.set_deterministic_debug_mode("error")
    torch.manual_seed(_SEED)
    plan = TrainingPlan(job.records)
    loader = penstock.DataLoader(
        # Not beside the data, which --keep leaves to the user.
        penstock.open(job.data, index=f"{job.scratch}/index", progress=False),
        _TYPES,
        batch_size=plan.batch_size,
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
    if job.resumes is not None:
        saved = torch.load(Path(job.scratch, f"{job.resumes}.pt"), weights_only=True)
        model.load_state_dict(saved["model"])
        speeds = saved["optimizer"]
        loader.load_state_dict(saved["loader"])
        step = saved["step"]
    start = time.perf_counter()
    with job.log.open("w", encoding="ascii") as log:
        for batch in loader:
            target = batch["items"].to_padded(fill=0).sum(dim=1) / 4096
            loss = torch.nn.functional.mse_loss(model(_inputs(batch)).squeeze(1), target)
            gradients = torch.autograd.grad(loss, weights)
            # By hand because an optimizer of `torch.optim` loads the compiler, too.
            for weight, speed, gradient in zip(weights, speeds, gradients, strict=True):
                speed.mul_(_MOMENTUM).add_(gradient)
                weight.detach().sub_(speed, alpha=_RATE)
            step += 1
            seconds = time.perf_counter() - start
            entry = Step(float(loss.item()).hex(), batch["id"].tolist(), seconds)
            log.write(json.dumps(entry._asdict()) + "\n")
            log.flush()
            if step % plan.save_every == 0:
                draft = job.log.with_suffix(".draft")
                saved = {"model": model.state_dict(), "optimizer": speeds, "step": step}
                torch.save(saved | {"loader": loader.state_dict()}, draft)
                draft.replace(job.log.with_suffix(".pt"))
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


if __name__ == "__main__":
    # Ctrl-C reaches every process; only the command has something to say about it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    train(Job(*json.loads(sys.argv[1])))
