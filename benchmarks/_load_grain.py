"""The peer Grain over ArrayRecord."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grain
import orjson
from _array_record import convert
from _load_collate import collate, ids_of
from _load_side import BATCH, Loading

if TYPE_CHECKING:
    from collections.abc import Iterable


def made(path: str, workers: int) -> Iterable[dict]:
    source = grain.sources.ArrayRecordDataSource(f"{path}/all.array_record")
    records = grain.MapDataset.source(source).seed(0).shuffle().map(orjson.loads)
    batches = records.batch(BATCH, batch_fn=collate).to_iter_dataset()
    if workers:
        batches = batches.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(workers))
    return batches


if __name__ == "__main__":
    Loading(made, ids_of, convert).serve()
