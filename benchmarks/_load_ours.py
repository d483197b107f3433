"""Penstock's side of the loading job."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from _access import link_into
from _load_side import BATCH, Loading
from _worker import peak_bytes

import penstock
from penstock.index import create_default_jsonl_indexer
from penstock.index._load import ROWS
from penstock.order import Order

if TYPE_CHECKING:
    from penstock import Batch, DataLoader

TYPES = {"id": "int64", "price": "float32", "label": "int64", "tags": "list<int64>"}
_ROW = struct.Struct("<QQQ")
_AHEAD = 16
"""Batches that a loader may have made when the first one is handed out, and more."""
_WINDOW = 65_536
_opened: dict[str, penstock.datasets.Source] = {}


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


def fill(path: str, records: int, positions: list[int]) -> None:
    """Give a sparse index real rows where the batches from these positions on will read."""
    (data,) = Path(path).glob("*.jsonl")
    lines = data.read_bytes().splitlines(keepends=True)
    offsets = np.cumsum([0, *map(len, lines)])
    order = Order(records)
    with (Path(path) / "index" / ROWS).open("r+b") as rows:
        for position in positions:
            for number in order.positions(position, position + _AHEAD * BATCH).tolist():
                line = number % len(lines)
                row = _ROW.pack(0, int(offsets[line]), len(lines[line]))
                os.pwrite(rows.fileno(), row, number * _ROW.size)


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
        {"fill": fill, "first": first, "permutation": permutation, "stages": stages}
    )
