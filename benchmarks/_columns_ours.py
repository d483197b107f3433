"""Penstock's side of the columns job."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from _access import link_into
from _columns_memory import most_private
from _columns_side import TYPES, Arrays, Columns
from _load_side import BATCH, worker_pids

import penstock
from penstock.index import create_default_jsonl_indexer

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock import Batch, DataLoader
    from penstock.datasets import Source


def convert(source: str, target: str) -> None:
    link_into(source, target)
    index(target)
    materialize(target)


def index(path: str) -> int:
    """Index a folder anew."""
    drop(path)
    create_default_jsonl_indexer(path, overwrite=True, progress=False)()
    return len(penstock.open(path))


def drop(path: str) -> None:
    """Forget the columns of a folder, if there are any, and who has them open."""
    _opened.cache_clear()
    _materialized.cache_clear()
    shutil.rmtree(_columns(path), ignore_errors=True)


def materialize(path: str) -> int:
    """Materialise the four fields."""
    return len(penstock.open(path).materialize(TYPES, progress=False))


def build_memory(path: str) -> int:
    """Materialise the four fields anew; return the private bytes of the largest process then."""
    drop(path)
    with most_private(lambda: [os.getpid(), *worker_pids()]) as most:
        materialize(path)
    return most[0]


def sizes(path: str) -> list[int]:
    """Return the bytes of the columns, and those of the index without them."""
    columns = _bytes_below(_columns(path))
    return [columns, _bytes_below(Path(path) / "index") - columns]


def _columns(path: str) -> Path:
    return Path(path) / "index" / "columns"


def _bytes_below(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@cache
def _materialized(path: str) -> Source:
    return penstock.open(path).materialize(TYPES, progress=False)


def opened(path: str, **_: object) -> Callable[[np.ndarray], pa.RecordBatch]:
    source = _materialized(path)
    return lambda ids: source.read(ids, TYPES)


def made(path: str, workers: int | str, **_: object) -> DataLoader:
    return penstock.DataLoader(
        _opened(path),
        TYPES,
        batch_size=BATCH,
        shuffle=True,
        num_workers=workers,
        materialize=True,
    )


@cache
def _opened(path: str) -> Source:
    return penstock.open(path)


def ids_of(batch: Batch) -> np.ndarray:
    return batch["id"].numpy()


def arrays_of(batch: pa.RecordBatch | Batch) -> Arrays:
    if isinstance(batch, pa.RecordBatch):
        lists = batch.column("tags")
        scalars = (batch.column(name).to_numpy() for name in ("id", "price", "label"))
        lengths = np.diff(lists.offsets.to_numpy()).astype(np.int64)
        return Arrays(*scalars, lists.flatten().to_numpy(), lengths)
    scalars = (batch[name].numpy() for name in ("id", "price", "label"))
    tags = batch["tags"]
    return Arrays(*scalars, tags.values.numpy(), tags.lengths.numpy().astype(np.int64))


if __name__ == "__main__":
    Columns(made, ids_of, convert, opened, arrays_of).serve(
        {
            "build_memory": build_memory,
            "drop": drop,
            "index": index,
            "materialize": materialize,
            "sizes": sizes,
        }
    )
