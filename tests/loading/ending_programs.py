"""Programs with workers that are ended in all the ways in which programs end."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.errors import StallError
from tests.faults.interrupting import IMPORT, interrupt, interrupting
from tests.loading.processes import Process, process, still_there

WORKERS = 2


class LoopError(Exception):
    """Something that goes wrong in a user's own loop."""


def _loader(path: str, method: str | None = None, **options: Any) -> penstock.DataLoader:
    return penstock.DataLoader(
        penstock.open(path),
        **{
            "batch_size": 10,
            "shuffle": True,
            "epochs": None,
            "num_workers": WORKERS,
            "multiprocessing_context": method,
            **options,
        },
    )


def _workers() -> list[Process]:
    found = [process(each.pid) for each in multiprocessing.active_children() if each.pid]
    return [each for each in found if each is not None]


def go_on(path: str, method: str) -> None:
    """Go on until somebody ends it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    loaders = [_loader(path, method)]
    if method == "fork":  # The workers of a second one have copies of what the first one has.
        loaders.append(_loader(path, method))
    for step, _ in enumerate(zip(*loaders, strict=True)):
        if step == 3:
            print("going", flush=True)
        time.sleep(0.005)


def endings(path: str, method: str, ways: list[str]) -> dict[str, list[Any]]:
    """Return, for each way to leave a loop, how many workers there were and which are left."""
    found = {}
    for way in ways:
        workers: list[Process] = []
        with contextlib.suppress(LoopError):
            globals()[f"_{way}"](_loader(path, method), workers)
        found[way] = [len(workers), still_there(workers)]
    return found


def _breaks_off(loader: penstock.DataLoader, workers: list[Process]) -> None:
    for _ in loader:
        workers += _workers()
        break


def _raises(loader: penstock.DataLoader, workers: list[Process]) -> None:
    for _ in loader:
        workers += _workers()
        raise LoopError


def _drops(loader: penstock.DataLoader, workers: list[Process]) -> None:
    run = iter(loader)
    next(run)
    workers += _workers()
    del run


def _drops_a_cycle(loader: penstock.DataLoader, workers: list[Process]) -> None:
    run: dict[str, Any] = {"run": iter(loader)}
    run["itself"] = run
    next(run["run"])
    workers += _workers()
    del run
    gc.collect()


def _leaves_the_first_of_two(loader: penstock.DataLoader, workers: list[Process]) -> None:
    first, second = iter(loader), iter(loader)
    next(first)
    of_first = _workers()
    next(second)
    del first
    workers += of_first
    assert still_there(of_first) == []
    assert len(_workers()) == WORKERS
    next(second)


def kept(path: str, workers: list[Any], epochs: list[int]) -> list[list[dict[str, int]]]:
    """Return the bytes of memory and the files that are open after so many epochs."""
    found = []
    gathers = {"encode": {"n": "int64"}, "materialize": True}
    ways: list[tuple[Any, dict[str, Any]]] = [(count, {}) for count in workers]
    for count, way in [*ways, (0, gathers)]:
        loader = _loader(path, epochs=1, num_workers=count, output="arrow", batch_size=50, **way)
        found.append([_after(loader, epoch) for epoch in np.diff([0, *epochs])])
    return found


def _after(loader: penstock.DataLoader, epochs: int) -> dict[str, int]:
    for _ in range(epochs):
        for _ in loader:
            pass
    gc.collect()
    return {"bytes": _resident(), "files": len(list(Path("/proc/self/fd").iterdir()))}


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


def wait_for_storage(url: str, options: dict[str, str], workers: Any, folder: str) -> list[Any]:
    """Return what is said about storage that ceases to answer, and by which rank."""

    def loader(name: str, timeout: float) -> penstock.DataLoader:
        # A cache each: nothing that was read before may help.
        cached = {**options, "cache_dir": f"{folder}/{workers}-{name}"}
        source = penstock.open(url, storage_options=cached)
        return penstock.DataLoader(
            source,
            batch_size=10,
            num_workers=workers,
            rank=1,
            world_size=3,
            stall_timeout=timeout,
        )

    before, after = loader("before", 60), loader("after", 1)
    print(f"read {sum(len(batch) for batch in before)}", flush=True)
    sys.stdin.readline()
    try:
        for _ in after:
            pass
    except StallError as stalled:
        return [str(stalled), stalled.rank, len(multiprocessing.active_children())]  # type: ignore[attr-defined]
    return []


def is_interrupted(path: str, method: str) -> str:
    """Return what becomes of a program that is interrupted while its first worker begins."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if method == "fork":
        os.register_at_fork(after_in_child=lambda: interrupt(f"{path}.interrupted"))
    else:
        moment = "spawn_main" if method == "spawn" else IMPORT
        os.environ |= interrupting(moment, Path(f"{path}.interrupted"))
    try:
        for _ in _loader(path, method):
            pass
    except KeyboardInterrupt:
        return "interrupted"
    return "ended"
