"""The ceiling of loading: lines of a map in random order, decoded by type, by one process."""

from __future__ import annotations

import mmap
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch
from _access import link_into
from _load_collate import ids_of
from _load_side import BATCH, Loading

if TYPE_CHECKING:
    from collections.abc import Iterator


class Row(msgspec.Struct, gc=False):
    """What is wanted of a record."""

    id: int
    price: float
    label: int
    tags: list[int]


def convert(source: str, target: str) -> None:
    """Find the lines; how long that takes is not what is measured here."""
    text = link_into(source, target).read_bytes()
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    np.save(Path(target) / "ends.npy", ends)


def made(path: str, workers: int) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches by the loop that one would write by hand."""
    if workers:
        raise ValueError("the ceiling is one process")
    decode = msgspec.json.Decoder(Row).decode
    (file,) = Path(path).glob("*.jsonl")
    with file.open("rb") as text:
        mapped = mmap.mmap(text.fileno(), 0, access=mmap.ACCESS_READ)
    ends = np.load(Path(path) / "ends.npy", mmap_mode="r")
    starts = np.concatenate([[0], ends[:-1]])
    order = np.random.default_rng(0).permutation(len(ends))
    for at in range(0, len(order), BATCH):
        some = order[at : at + BATCH]
        places = zip(starts[some].tolist(), ends[some].tolist(), strict=True)
        rows = [decode(mapped[start:end]) for start, end in places]
        tags = [row.tags for row in rows]
        yield {
            "id": torch.from_numpy(np.array([row.id for row in rows], np.int64)),
            "price": torch.from_numpy(np.array([row.price for row in rows], np.float32)),
            "label": torch.from_numpy(np.array([row.label for row in rows], np.int64)),
            "tags": torch.from_numpy(np.fromiter(chain.from_iterable(tags), np.int64)),
            "tags_lengths": torch.from_numpy(np.fromiter(map(len, tags), np.int64, len(tags))),
        }


if __name__ == "__main__":
    Loading(made, ids_of, convert).serve()
