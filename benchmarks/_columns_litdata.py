"""The peer LitData: just the four fields, a list as an array, written by two processes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import litdata
import numpy as np
import orjson
from _load_collate import collate, ids_of
from _load_side import BATCH, Loading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PROCESSES = 2


def _records(piece: tuple[str, int, int]) -> Iterator[dict[str, object]]:
    """Yield the records whose lines begin in a piece of a file."""
    path, start, stop = piece
    with Path(path).open("rb") as file:
        if start:
            file.seek(start - 1)
            file.readline()
        while file.tell() < stop:
            record = orjson.loads(file.readline())
            tags = np.array(record["tags"], np.int64)
            yield {
                "id": record["id"],
                "price": record["price"],
                "label": record["label"],
                "tags": tags,
            }


def convert(source: str, target: str) -> None:
    size = Path(source).stat().st_size
    cuts = [size * n // _PROCESSES for n in range(_PROCESSES + 1)]
    pieces = [(source, *pair) for pair in pairwise(cuts)]
    litdata.optimize(
        fn=_records, inputs=pieces, output_dir=target, chunk_bytes="64MB", num_workers=_PROCESSES
    )


def made(path: str, workers: int) -> Iterable[dict]:
    whole = litdata.StreamingDataset(path, shuffle=True)
    return litdata.StreamingDataLoader(
        whole, batch_size=BATCH, num_workers=workers, collate_fn=collate
    )


if __name__ == "__main__":
    Loading(made, ids_of, convert).serve()
