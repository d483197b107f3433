"""Jobs of several ranks, started, killed and asked for what they got."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tests.faults.child import Child
from tests.loading import gloo_programs
from tests.loading.processes import Process, descendants, process, still_there

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

TIMEOUT = 100.0


class Nursery:
    """A process that starts jobs; it lasts until the `with` block ends."""

    def __init__(self) -> None:
        self._child = Child(gloo_programs.nursery)

    def start(
        self, program: Callable[..., object], folder: Path, world_size: int, run: Mapping[str, Any]
    ) -> Job:
        """Start a job whose ranks write to a folder of its own."""
        folder.mkdir()
        env = {"PENSTOCK_CACHE": os.environ["PENSTOCK_CACHE"]}
        name = f"{program.__module__}:{program.__name__}"
        call = [name, str(folder), world_size, env, run]
        self._child.tell(json.dumps(call))
        return Job(folder, json.loads(self._child.hear()))

    def __enter__(self) -> Self:
        self._child.__enter__()
        assert self._child.hear() == "ready"
        return self

    def __exit__(self, *error: object) -> None:
        self._child.__exit__(*error)


class Job:
    """Some ranks that run."""

    def __init__(self, folder: Path, pids: list[int]) -> None:
        self.folder = folder
        self.pids = pids
        self.ranks = [found for found in map(process, pids) if found is not None]

    def processes(self) -> list[Process]:
        """Return the ranks and everything that they have started."""
        return [*self.ranks, *(each for pid in self.pids for each in descendants(pid))]

    def wait(self) -> None:
        """Wait until every rank is done; show what a rank said that is not."""
        if still_there(self.ranks, TIMEOUT):
            self.kill()
        for rank in range(len(self.pids)):
            if not (self.folder / f"rank-{rank}.done").exists():
                said = (self.folder / f"rank-{rank}.log").read_text()
                raise AssertionError(f"rank {rank} of {len(self.pids)} is not done:\n{said}")

    def kill(self, *, workers: bool = True) -> None:
        """End all ranks at once, with or without what they have started."""
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if workers else os.kill)(pid, signal.SIGKILL)

    def rows(self) -> list[list[dict[str, Any]]]:
        """Return what each rank wrote down, as far as it came."""
        result = []
        for rank in range(len(self.pids)):
            path = self.folder / f"rank-{rank}.jsonl"
            text = path.read_text() if path.exists() else ""
            whole = text[: text.rfind("\n") + 1]
            result.append([json.loads(line) for line in whole.splitlines()])
        return result


def global_batch(rows: list[dict[str, Any]], lanes: int) -> list[int]:
    """Return the records that count of one step, in their order, from what each rank got of it."""
    ids = np.array([row["ids"] for row in rows])
    valid = np.array([row["valid"] for row in rows])
    if lanes > 1 and lanes % len(rows) == 0:  # Each rank takes every so manyth.
        ids, valid = ids.T, valid.T
    found: list[int] = ids[valid].tolist()
    return found
