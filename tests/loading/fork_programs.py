"""Programs that fork in the middle of an epoch."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

import penstock
from penstock.errors import StorageError
from tests.faults.fork_programs import in_fork

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS = 120
ENGINES: dict[str, dict[str, Any]] = {
    "caller": {"num_workers": 0},
    "threads": {"num_workers": "auto"},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "spawn": {"num_workers": 2, "multiprocessing_context": "spawn"},
    "forkserver": {"num_workers": 2, "multiprocessing_context": "forkserver"},
}


def _loader(engine: str, **more: Any) -> penstock.DataLoader:
    records = [{"n": number} for number in range(RECORDS)]
    return penstock.DataLoader(records, batch_size=4, **ENGINES[engine], **more)


def _numbers(batches: Iterator[Any]) -> list[int]:
    return [record["n"] for batch in batches for record in batch]


def child_that_goes_on(engine: str) -> dict[str, Any]:
    """Go on in a child with an iterator of its parent's, and then in the parent."""
    run = iter(_loader(engine))
    begun = _numbers(iter([next(run)]))
    child = in_fork(lambda: _numbers(run))
    return {"begun": begun, "child": child, "parent": _numbers(run)}


def child_that_begins_anew(engine: str) -> dict[str, Any]:
    """Begin a pass in a child over the loader of its parent's."""
    loader = _loader(engine)
    run = iter(loader)
    next(run)

    def begin() -> list[int]:
        loader.set_epoch(0)
        return _numbers(iter(loader))

    child = in_fork(begin)
    return {"child": child, "parent": _numbers(run)}


def child_beside_kept_workers(engine: str) -> dict[str, Any]:
    """Pass over a loader in a child, end it there, and pass over it in the parent again."""
    loaders = [_loader(engine, persistent_workers=True)]
    _numbers(iter(loaders[0]))
    before = {one.pid for one in multiprocessing.active_children()}
    child = in_fork(lambda: _numbers(iter(loaders[0])))
    if (other := os.fork()) == 0:
        loaders.pop().close()
        sys.exit(5)  # As a program ends, with all that is run then.
    os.waitpid(other, 0)
    numbers = _numbers(iter(loaders[0]))
    after = {one.pid for one in multiprocessing.active_children()}
    return {"child": child, "parent": numbers, "same_workers": before == after}


def loader_without_room(method: str) -> dict[str, Any]:
    """Send workers a table that is larger than a file may be; return the error."""
    before = {*Path("/dev/fd").iterdir()}
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    table = pa.table({"n": np.zeros(50_000)})
    loader = penstock.DataLoader(table, batch_size=4, num_workers=1, multiprocessing_context=method)
    try:
        list(loader)
    except StorageError as failure:
        left = [*{*Path("/dev/fd").iterdir()} - before]
        return {"text": str(failure), "errno": failure.errno, "open": [*map(str, left)]}
    raise AssertionError("there was room")


def children_that_end(engine: str) -> Any:
    """Fork children that end in all ways in the middle of an epoch; return what the parent gets."""
    runs = [iter(_loader(engine))]
    numbers = _numbers(iter([next(runs[0])]))
    statuses = []
    for way in ("_exit", "exit", "close", "drop", "collect"):
        child = os.fork()
        if child == 0:
            _end(way, runs)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        numbers += _numbers(iter([next(runs[0])]))
    return {"statuses": statuses, "numbers": numbers + _numbers(runs[0])}


def _end(way: str, runs: list[Any]) -> NoReturn:
    match way:
        case "_exit":
            os._exit(5)
        case "close":
            runs[0].close()
        case "drop":
            runs.clear()
        case "collect":
            cycle: list[Any] = [*runs]
            cycle.append(cycle)
            runs.clear()
            del cycle
            gc.collect()
    sys.exit(5)


def other_workers(engine: str) -> dict[str, Any]:
    """Have others fork workers, torch and multiprocessing, in the middle of an epoch."""
    import torch.utils.data

    run = iter(_loader(engine))
    numbers = _numbers(iter([next(run)]))
    torch_loader = torch.utils.data.DataLoader(
        list(range(8)),  # type: ignore[arg-type]
        num_workers=2,
        multiprocessing_context="fork",
    )
    by_torch = [int(number) for number in torch_loader]
    numbers += _numbers(iter([next(run)]))
    context = multiprocessing.get_context("fork")
    with context.Pool(2, run.close) as pool:  # type: ignore[attr-defined]
        by_pool = pool.map(abs, [-1, -2])
    process = context.Process(target=_end, args=("drop", [run]))
    process.start()
    process.join()
    return {
        "torch": by_torch,
        "pool": by_pool,
        "status": process.exitcode,
        "numbers": numbers + _numbers(run),
    }
