"""The training run that `penstock demo` kills and resumes; its argument is a Job in JSON.

`python -m penstock.cli.demo._trainer '{"data": …}'`
"""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import penstock

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

EPOCHS = 2
_SEED = 7
_TYPES = {"id": "int64", "price": "float32", "items": "list<int64>"}
_RATE = 0.02
_MOMENTUM = 0.9


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

    def to_json(self) -> str:
        """Return it as the trainer's one argument."""
        return json.dumps(asdict(self))


class Step(NamedTuple):
    """The log entry of one step."""

    loss: str
    """By `float.hex`, which leaves out no digit."""
    ids: list[int]
    """The field `id` of the records in the batch."""
    seconds: float
    """Since the run's first batch was asked for."""


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
            inputs, target = _inputs(batch), _target(batch)
            loss = torch.nn.functional.mse_loss(model(inputs).squeeze(1), target)
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
                sys.stdout.write("there\n")
                sys.stdout.flush()
                # Returns if the parent dies first.
                sys.stdin.read()
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


def _target(batch: penstock.Batch) -> torch.Tensor:
    """Return the targets of the model, float32[B]."""
    target: torch.Tensor = batch["items"].to_padded(fill=0).sum(dim=1) / 4096
    return target


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
