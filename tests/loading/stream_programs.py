"""What the ranks of a job do with a stream, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

import penstock
from penstock.errors import PenstockError
from tests.loading.gloo_programs import summed
from tests.loading.iterable_samples import Sharded
from tests.loading.stream_samples import flow, rows
from tests.loading.toy_encoders import GrowingVocabulary

STEP_SECONDS = 0.002
"""What a step of a model would take."""


class Merging(GrowingVocabulary):
    """Knows how to make one vocabulary of several."""

    def merged(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        return {"words": sorted({word for state in states for word in state["words"]})}


def _loader(run: dict[str, Any]) -> penstock.DataLoader:
    if "records" in run:
        stream: Any = [{"n": n, "word": "a"} for n in range(run["records"])]
    elif "length" in run:
        stream = Sharded(run["length"], dist.get_rank(), dist.get_world_size())
    else:
        stream = flow(**run["stream"])
    encode = {"words": GrowingVocabulary, "merged": Merging}.get(run.get("encode", ""))
    fields = {"n": "int64", "word": "list<int64>"} if run.get("encode") == "list" else None
    return penstock.DataLoader(
        stream, encode() if encode else fields or {"n": "int64"}, **run["loader"]
    )


def through(folder: Path, rank: int, run: dict[str, Any]) -> None:
    """Write what each step brings, and the state; go on from a checkpoint, if there is one."""
    loader = _loader(run)
    checkpoint = Path(run.get("checkpoint", folder / "checkpoint"))
    if checkpoint.exists():
        summed(1)  # A rank that refuses the state ends, while others may still connect to it.
        loader.load_state_dict(json.loads(checkpoint.read_text()))
    log = os.open(folder / f"rank-{rank}.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for step, batch in enumerate(loader, start=1):
        state = loader.state_dict()
        own = rows(batch) if "n" in batch else []
        everywhere, ranks = summed(len(own), 1)
        row = {"rows": own, "size": len(batch), "everywhere": everywhere, "ranks": ranks}
        os.write(log, json.dumps({**row, "step": step, "state": state}).encode() + b"\n")
        time.sleep(STEP_SECONDS)
        summed(1)  # No checkpoint has records that a rank did not write down yet.
        if rank == 0 and "checkpoint" in run:
            draft = checkpoint.with_suffix(".draft")
            draft.write_text(json.dumps(state))
            draft.replace(checkpoint)
    (folder / f"rank-{rank}.state").write_text(json.dumps(loader.state_dict()))


def blanks(folder: Path, rank: int, run: dict[str, Any]) -> None:
    """Write the kinds of batches that a rank without records gets."""
    found = []
    for options in (
        {"encode": {"n": "int64", "tags": "list<int64>", "word": "string", "x": "float32?"}},
        {"encode": None},
        {"output": "arrow"},
        {"encode": lambda columns: {"n": columns["n"].to_numpy()}},
        {"collate": lambda records: {"n": [record["n"] for record in records]}},
    ):
        stream = penstock.stream([(unit, run["least"]) for unit in range(3)], _lopsided)
        own: Any = None
        for batch in penstock.DataLoader(stream, batch_size=2, **options):
            summed(1)
            own = batch
        found.append(_shown(own))
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))


def _lopsided(unit: tuple[int, int], start: int = 0) -> Any:
    """Yield few records of unit 1, or none, and 9 of the others."""
    for number in range(start, unit[1] if unit[0] == 1 else 9):
        yield {"n": number, "tags": [number], "word": "a", "x": None}


def _shown(batch: Any) -> Any:
    """Return the parts of every field, and which rows count."""
    if isinstance(batch, list):
        return [batch, _flags(batch.valid)]  # type: ignore[attr-defined]
    if hasattr(batch, "to_pydict"):
        flags = batch.schema.metadata.get(b"penstock.valid")
        return [batch.to_pydict(), None if flags is None else [bool(flag) for flag in flags]]
    fields = {}
    for name, field in batch.items():
        parts = (field.values, field.lengths) if hasattr(field, "lengths") else (field,)
        parts = (field.values, field.mask) if hasattr(field, "mask") else parts
        fields[name] = [part if isinstance(part, list) else part.tolist() for part in parts]
    return [fields, _flags(batch.valid)]


def _flags(valid: Any) -> list[bool] | None:
    return None if valid is None else valid.tolist()


def leaves(folder: Path, rank: int, run: dict[str, Any]) -> None:
    """Go through all steps at another pace than other ranks, and be gone at once."""
    loader, steps = _loader(run), 0
    time.sleep(run["seconds"][rank])
    for _ in loader:
        time.sleep(run["seconds"][rank])
        steps += 1
    loader.state_dict()  # Of an encoder that learns, all ranks gather it.
    (folder / f"rank-{rank}.json").write_text(json.dumps(steps))
    (folder / f"rank-{rank}.done").touch()
    os._exit(0)


def dies(folder: Path, rank: int, run: dict[str, Any]) -> None:
    """Let one rank be killed in the middle; write what the others say."""
    loader = _loader(run)
    said = ""
    try:
        for step, _ in enumerate(loader):
            if rank == run["dies"] and step == run["at"]:
                os.kill(os.getpid(), signal.SIGKILL)
            if run.get("saves"):
                loader.state_dict()
    except PenstockError as error:
        said = str(error)
    (folder / f"rank-{rank}.json").write_text(json.dumps(said))
    if rank == 0:  # The store may live in it.
        while not all((folder / f"rank-{other}.json").exists() for other in run["left"]):
            time.sleep(0.01)


def asks_alone(folder: Path, rank: int, run: dict[str, Any]) -> None:
    """Ask for the state on some ranks only."""
    loader = _loader(run)
    next(iter(loader))
    said = ""
    if rank in run["asks"]:
        with contextlib.suppress(AssertionError):
            try:
                loader.state_dict()
            except PenstockError as error:
                said = str(error)
    (folder / f"rank-{rank}.json").write_text(json.dumps(said))
    dist.barrier()
