"""Penstock's side of the loading job."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from _access import link_into
from _load_huge import make_huge
from _load_side import BATCH, Loading, private_bytes
from _worker import peak_bytes

import penstock
from penstock.index import create_default_jsonl_indexer
from penstock.order import Order

if TYPE_CHECKING:
    import numpy as np

    from penstock import Batch, DataLoader
    from penstock.datasets import Source

TYPES = {"id": "int64", "price": "float32", "label": "int64", "tags": "list<int64>"}
_WINDOW = 65_536
_opened: dict[str, Source] = {}


def convert(source: str, target: str) -> None:
    link_into(source, target)
    create_default_jsonl_indexer(target, progress=False)()


def made(path: str, workers: int | str, method: str | None = None) -> DataLoader:
    source = _opened.get(path)
    if source is None:
        source = _opened[path] = penstock.open(path)
    return penstock.DataLoader(
        source,
        TYPES,
        batch_size=BATCH,
        shuffle=True,
        num_workers=workers,
        multiprocessing_context=method,
        materialize=False,  # Every epoch decodes, as those of peers do.
    )


def ids_of(batch: Batch) -> np.ndarray:
    return batch["id"].numpy()


def stages(path: str, workers: int | str) -> dict[str, float]:
    """Return what the loader itself tells of an epoch."""
    loader = made(path, workers)
    for _ in loader:
        pass
    return loader.stats()


def first(path: str, workers: int | str, position: int) -> float:
    """Return the seconds from nothing to the first batch of a loader, fresh or resumed."""
    made(path, workers)  # The source is open, as in a run that has begun.
    state = {**made(path, workers).state_dict(), "position": position}
    text = json.dumps(state)
    began = time.perf_counter()
    loader = made(path, workers)
    if position:
        loader.load_state_dict(json.loads(text))
    batches = iter(loader)
    next(batches)
    seconds = time.perf_counter() - began
    batches.close()
    return seconds


def idle_memory(method: str) -> int:
    """Return the private bytes of a process that has torch and does nothing."""
    if method == "fork":
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        process.start()
        pid, end = process.pid, process.kill
    else:
        program = "import torch, time; print(flush=True); time.sleep(60)"
        fresh = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        fresh.stdout.readline()
        pid, end = fresh.pid, fresh.kill
    time.sleep(0.2)
    try:
        return private_bytes(pid)
    finally:
        end()


def permutation(length: int, windows: int) -> dict[str, float]:
    """Return positions a second of the best window, and how memory grew over all of them."""
    order = Order(length)
    order.positions(0, _WINDOW)
    before, best = peak_bytes(), float("inf")
    for number in range(windows):
        start = number * (length // windows)
        began = time.perf_counter()
        order.positions(start, start + _WINDOW)
        best = min(best, time.perf_counter() - began)
    return {"per_second": _WINDOW / best, "bytes": peak_bytes() - before}


if __name__ == "__main__":
    Loading(made, ids_of, convert).serve(
        {
            "first": first,
            "huge": make_huge,
            "idle_memory": idle_memory,
            "permutation": permutation,
            "stages": stages,
        }
    )
