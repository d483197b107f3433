"""Programs that tests start, in one process or in several that talk to each other by gloo.

A program is a module of this folder with `def main(place, plan)`; what it returns is what the test
gets, by way of JSON: one result for each process, by rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
SECONDS = 100


def run_program(name: str, place: Path, plan: object = None, *, processes: int = 1) -> list[Any]:
    """Run a program in processes that were started side by side; return what each one found."""
    command = [sys.executable, "-m", f"tests.integration.{name}", place, json.dumps(plan)]
    if processes == 1:
        return _results(place, [(command, {})])
    size = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), **size} for rank in range(processes)]
    return _results(place, [(command, rank) for rank in ranks])


def run_by_torchrun(name: str, place: Path, plan: object = None, *, processes: int) -> list[Any]:
    """Run a program as torchrun does."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    torchrun += ["--nproc-per-node", str(processes), "-m", f"tests.integration.{name}"]
    return _results(place, [([*torchrun, place, json.dumps(plan)], {})])


def run_by_lightning(name: str, place: Path, plan: object = None) -> list[Any]:
    """Run a program that lets Lightning start the other processes."""
    command = [sys.executable, "-m", f"tests.integration.{name}", place, json.dumps(plan)]
    return _results(place, [(command, {})])


def _results(place: Path, commands: list[tuple[list[Any], dict[str, str]]]) -> list[Any]:
    place.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    output = place / "output.txt"
    with output.open("wb") as log:
        running = [
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment | known,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            for command, known in commands
        ]
        try:
            _wait(running)
        finally:
            for process in running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    said = output.read_text(encoding="utf-8", errors="replace")
    assert not any(process.returncode for process in running), said
    return [
        json.loads((place / f"rank-{rank}.json").read_text(encoding="utf-8"))
        for rank in range(len(list(place.glob("rank-*.json"))))
    ]


def _wait(running: list[subprocess.Popen[bytes]]) -> None:
    """Wait until all ended, or one failed, whom the others would wait for."""
    end = time.monotonic() + SECONDS
    while any(process.poll() is None for process in running) and time.monotonic() < end:
        if any(process.returncode for process in running):
            return
        time.sleep(0.05)


def join_group(place: Path) -> tuple[int, int]:
    """Make this process one of its group; return its rank and how many there are."""
    from torch import distributed

    if "TORCHELASTIC_RUN_ID" in os.environ:
        distributed.init_process_group("gloo")
    else:
        # By a file: a port that was free a moment ago may be taken by now.
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{place / 'rendezvous'}",
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
        )
    return distributed.get_rank(), distributed.get_world_size()


def run_main(main: Callable[[Path, Any], object]) -> None:
    """Be a program: run `main`, keep what it returns for the test."""
    place = Path(sys.argv[1])
    found = main(place, json.loads(sys.argv[2]))
    from torch import distributed

    together = distributed.is_available() and distributed.is_initialized()
    rank = distributed.get_rank() if together else 0
    (place / f"rank-{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    if together:
        distributed.barrier()
        distributed.destroy_process_group()
