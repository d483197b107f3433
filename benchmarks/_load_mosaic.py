"""The peer MosaicML Streaming under torch's loader."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson
from _load_collate import collate, ids_of
from _load_side import BATCH, Loading
from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Iterable

_COLUMNS = {"id": "int", "price": "float64", "label": "int", "tags": "ndarray:int64"}


def convert(source: str, target: str) -> None:
    with Path(source).open("rb") as lines, MDSWriter(out=target, columns=_COLUMNS) as writer:
        for line in lines:
            record = orjson.loads(line)
            tags = np.array(record["tags"], np.int64)
            writer.write({**{name: record[name] for name in _COLUMNS}, "tags": tags})


def made(path: str, workers: int) -> Iterable[dict]:
    clean_stale_shared_memory()
    whole = StreamingDataset(local=path, shuffle=True, batch_size=BATCH)
    return DataLoader(whole, batch_size=BATCH, num_workers=workers, collate_fn=collate)


if __name__ == "__main__":
    Loading(made, ids_of, convert).serve()
