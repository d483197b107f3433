"""The peer Grain over ArrayRecord."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import grain
import numpy as np
import orjson
import torch
from _array_record import convert
from _load_collate import ids_of
from _load_side import BATCH, Loading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_AHEAD = 4
"""Batches that are made ahead; 500 of them, as it does by itself, would hide the first."""


def _arrays(records: Sequence[dict]) -> dict[str, np.ndarray]:
    tags = [record["tags"] for record in records]
    return {
        "id": np.array([record["id"] for record in records], np.int64),
        "price": np.array([record["price"] for record in records], np.float32),
        "label": np.array([record["label"] for record in records], np.int64),
        "tags": np.fromiter(chain.from_iterable(tags), np.int64),
        "tags_lengths": np.fromiter(map(len, tags), np.int64, len(tags)),
    }


def made(path: str, workers: int) -> Iterator[dict[str, torch.Tensor]]:
    source = grain.sources.ArrayRecordDataSource(f"{path}/all.array_record")
    records = grain.MapDataset.source(source).seed(0).shuffle().map(orjson.loads)
    options = grain.ReadOptions(num_threads=_AHEAD, prefetch_buffer_size=_AHEAD)
    batches = records.batch(BATCH, batch_fn=_arrays).to_iter_dataset(options)
    if workers:
        batches = batches.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(workers, 2))
    for batch in batches:
        yield {name: torch.from_numpy(np.array(array)) for name, array in batch.items()}


if __name__ == "__main__":
    Loading(made, ids_of, convert).serve()
