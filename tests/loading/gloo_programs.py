"""What the ranks of a job do, each in a process of its own.

They are forked from one process that has imported torch, so that a job starts at once. Each has a
session of its own, as if a launcher had started it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import penstock
import penstock.order

if TYPE_CHECKING:
    from collections.abc import Iterator


class Run(TypedDict):
    """What all ranks of a job are told."""

    path: str
    loader: dict[str, Any]
    """Options of the loader."""


class Training(Run):
    """What the ranks of a job that trains are told."""

    mixture: NotRequired[dict[str, Any]]
    """Arguments of a mixture, with paths in place of sources, in place of `path`."""
    checkpoint: str
    every: int
    """Steps between two checkpoints."""


def nursery() -> None:
    """Fork ranks as the lines of standard input say, until it ends."""
    import torch.distributed  # noqa: F401

    # Imports what a rank needs, without a thread.
    list(penstock.DataLoader([{"n": 1}], {"n": "int64"}, batch_size=1, num_workers=0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody has to be waited for.
    print("ready", flush=True)
    for line in sys.stdin:
        name, folder, world_size, env, run = json.loads(line)
        pids = []
        for rank in range(world_size):
            pid = os.fork()
            if not pid:
                os.environ.update(env)
                _be_rank(name, Path(folder), rank, world_size, run)
            pids.append(pid)
        print(json.dumps(pids), flush=True)


def _be_rank(name: str, folder: Path, rank: int, world_size: int, run: Run) -> None:
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(folder / f"rank-{rank}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    status = 1
    try:
        with _gloo(folder, rank, world_size, in_rank_0=bool(run.get("store_in_rank_0"))):
            module, function = name.split(":")
            getattr(importlib.import_module(module), function)(folder, rank, run)
        (folder / f"rank-{rank}.done").touch()
        status = 0
    except BaseException:  # noqa: BLE001 (the test shows it)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


@contextlib.contextmanager
def _gloo(folder: Path, rank: int, world_size: int, *, in_rank_0: bool) -> Iterator[None]:
    """Meet through a file; or through rank 0, as ranks of one host do without a launcher."""
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting: dict[str, Any] = {"init_method": f"file://{folder / 'meeting'}"}
    if in_rank_0:
        meeting = {"store": _store_in_rank_0(folder / "port", rank, world_size)}
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", rank=rank, world_size=world_size, timeout=limit, **meeting)
    if in_rank_0:
        dist.barrier()  # Rank 0 may leave now: no rank asks the store to become one.
    yield
    dist.destroy_process_group()


def _store_in_rank_0(port: Path, rank: int, world_size: int) -> Any:
    import torch.distributed as dist

    while rank and not port.exists():
        time.sleep(0.01)
    number = int(port.read_text()) if rank else 0
    store = dist.TCPStore(
        "127.0.0.1", number, world_size, is_master=not rank, wait_for_workers=False
    )
    if not rank:
        draft = port.with_suffix(".draft")
        draft.write_text(str(store.port))
        draft.replace(port)
    return store


def summed(*numbers: float) -> list[float]:
    """Add up numbers over all ranks: a rank that came too early or too late would wait for ever."""
    import torch
    import torch.distributed as dist

    tensor = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(tensor)
    found: list[float] = tensor.tolist()
    return found


def _row(batch: penstock.Batch) -> dict[str, Any]:
    assert batch.ids is not None
    assert batch["n"].tolist() == batch.ids.tolist()
    valid = [True] * len(batch) if batch.valid is None else batch.valid.tolist()
    return {"ids": batch.ids.tolist(), "valid": valid}


def go_through(folder: Path, rank: int, run: Run) -> None:
    """Write what each step brings, and what it brings over all ranks."""
    loader = penstock.DataLoader(penstock.open(run["path"]), {"n": "int64"}, **run["loader"])
    with (folder / f"rank-{rank}.jsonl").open("w") as file:
        for batch in loader:
            row = _row(batch)
            row["everywhere"], row["ranks"] = summed(sum(row["valid"]), 1)
            print(json.dumps({**row, "state": loader.state_dict()}), file=file)
    (folder / f"rank-{rank}.length").write_text(str(len(loader)))


def disagree(folder: Path, rank: int, run: Run) -> None:
    """Go through loaders that differ by rank, without a collective; write down what is raised."""
    import torch.distributed as dist

    if run["loader"].pop("older_torch", False):
        del dist.ProcessGroup.get_group_store
    late = run["loader"].pop("late", None)
    own = run["loader"].pop("own")[rank]
    while rank == late and not (folder / "step").exists():
        time.sleep(0.01)
    source, passes, epoch = own.pop("source"), own.pop("passes", 0), own.pop("epoch", 0)
    loader = penstock.DataLoader(source, {"n": "int64"}, **(run["loader"] | own))
    for _ in range(passes):
        list(loader)
    loader.set_epoch(epoch)
    steps, told = 0, ""
    try:
        for _ in loader:
            steps += 1
            (folder / "step").touch()
            time.sleep(0.01)
    except penstock.errors.RankMismatchError as error:
        told = str(error)
    (folder / f"rank-{rank}.json").write_text(json.dumps([steps, told]))
    dist.barrier()  # The store lives in one of them, or in a file that the last one removes.


def evaluate(folder: Path, rank: int, run: Run) -> None:
    """Write the sum of a field over all ranks, and of how many rows, those that count."""
    loader = penstock.DataLoader(penstock.open(run["path"]), {"n": "int64"}, **run["loader"])
    steps, total, count = 0, 0.0, 0
    for batch in loader:
        values = batch["n"] if batch.valid is None else batch["n"][batch.valid]
        steps, total, count = steps + 1, total + float(values.sum()), count + len(values)
        summed(0)
    told = {"steps": steps, "sum": summed(total)[0], "count": summed(count)[0]}
    (folder / f"rank-{rank}.json").write_text(json.dumps(told))


def train(folder: Path, rank: int, run: Training) -> None:
    """Go on from the last checkpoint, if there is one; write down what each step brings.

    The name of a plan and its arguments may stand in place of a batch size.
    """
    options = run["loader"]
    if isinstance(options.get("batch_size"), list):
        name, *arguments = options["batch_size"]
        options = {**options, "batch_size": getattr(penstock.order, name)(*arguments)}
    source: Any = run["path"]
    if "mixture" in run:
        sources = {name: penstock.open(path) for name, path in run["mixture"]["sources"].items()}
        source = penstock.Mixture(**{**run["mixture"], "sources": sources})
    loader = penstock.DataLoader(source, {"n": "int64"}, **options)
    checkpoint = Path(run["checkpoint"])
    if checkpoint.exists():
        loader.load_state_dict(json.loads(checkpoint.read_text()))
    log = os.open(folder / f"rank-{rank}.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for step, batch in enumerate(loader, start=1):
        state = loader.state_dict()
        row = {**_row(batch), "at": [state["epoch"], state["position"]]}
        os.write(log, json.dumps(row).encode() + b"\n")
        summed(1)
        time.sleep(0.002)  # What a step of a model would take.
        if rank == 0 and step % run["every"] == 0:
            draft = checkpoint.with_suffix(".draft")
            draft.write_text(json.dumps(state))
            draft.replace(checkpoint)


def learn(folder: Path, rank: int, run: Any) -> None:
    """Write how many labels of each batch are unknown, and what all ranks know in the end."""
    from penstock.schema import Category, Number, Schema

    schema = Schema(Category("k", p_unavailable=0), Number("x"))
    schema.sync_every, schema.syncs_early = run["every"], run["early"]
    with (folder / f"rank-{rank}.jsonl").open("w") as file:
        loader = penstock.DataLoader(run["path"], schema, **run["loader"])
        for batch in loader:
            unknown = int((batch["record/k"].content == 10_000).sum())
            file.write(json.dumps({"unknown": unknown}) + "\n")
        state, own = loader.state_dict(), schema.state_dict()
        schema.reset()
        loader.load_state_dict(state)
        assert schema.state_dict() == own
        schema.synchronize()
        numbers = schema.statistics["record/x"]  # type: ignore[index]
        told = {
            "state": state["encoder"],
            "labels": schema.state_dict()["vocabularies"]["record/k"],
            "count": numbers.count,
            "mean": numbers.mean,
            "variance": numbers.variance,
            "counts": schema.counts["record/k"]["content"].counts[:14].tolist(),  # type: ignore[index]
        }
        file.write(json.dumps(told) + "\n")
