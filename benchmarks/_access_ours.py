"""Penstock's side of the comparison of random access."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from _access import BATCH, Access, link_into
from _worker import count

from penstock.datasets import JsonlDataset
from penstock.index import create_default_jsonl_indexer
from penstock.jsonl import JsonlFile

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEED = 11
_WINDOW = 16
"""Blocks whose records are shuffled together."""
_frames: list[int] = []
_shuffled: list[np.ndarray] = []
_state: dict[str, JsonlDataset] = {}


def convert(source: str, target: str) -> None:
    link_into(source, target)
    create_default_jsonl_indexer(target, progress=False)()


def _dataset(path: str, fields: Sequence[str] | None = None) -> JsonlDataset:
    return JsonlDataset.create_from_index_on_filesystem(path, fields=fields)


def opened(path: str, fields: Sequence[str] | None = None) -> tuple:
    dataset = _dataset(path, fields)
    return dataset.__getitem__, dataset.__getitems__


def one_a_frame(path: str) -> int:
    """Prepare to read one record of each block, blocks in random order."""
    chance = random.Random(_SEED)
    _state["zst"] = dataset = _dataset(path)
    borders = dataset.blocks.tolist()
    _frames[:] = [chance.randrange(*pair) for pair in pairwise(borders)]
    chance.shuffle(_frames)
    return len(_frames)


def read_frames() -> int:
    """Read those records one by one."""
    dataset = _state["zst"]
    for number in _frames:
        dataset[number]
    return len(_frames)


def shuffle_blocks(path: str) -> int:
    """Prepare to read all records, blocks permuted and records shuffled inside windows of them."""
    chance = np.random.default_rng(_SEED)
    _state["zst"] = dataset = _dataset(path)
    borders = dataset.blocks
    blocks = chance.permutation(len(borders) - 1)
    order = [
        chance.permutation(
            np.concatenate(
                [np.arange(borders[b], borders[b + 1]) for b in blocks[at : at + _WINDOW]]
            )
        )
        for at in range(0, len(blocks), _WINDOW)
    ]
    numbers = np.concatenate(order)
    _shuffled[:] = np.split(numbers, range(BATCH, len(numbers), BATCH))
    return len(numbers)


def read_shuffled() -> int:
    """Read them all, in batches."""
    dataset = _state["zst"]
    return sum(len(dataset.read(batch)) for batch in _shuffled)


def check_shuffled(ids: int) -> int:
    """Return how many records are not the ones asked for, or are read more than once.

    Records have the ids from 0 to `ids`, again and again.
    """
    dataset, seen = _state["zst"], np.concatenate(_shuffled)
    wrong = sum(
        record["id"] != number % ids
        for batch in _shuffled
        for record, number in zip(dataset.read(batch), batch.tolist(), strict=True)
    )
    return wrong + len(seen) - len(np.unique(seen))


def read_in_order(path: str) -> int:
    """Stream the one file of a folder from its beginning to its end."""
    (file,) = Path(path).glob("*.zst")
    return count(JsonlFile(file).iter_records_sync())


if __name__ == "__main__":
    Access(opened, convert).serve(
        {
            "check_shuffled": check_shuffled,
            "one_a_frame": one_a_frame,
            "read_frames": read_frames,
            "read_in_order": read_in_order,
            "read_shuffled": read_shuffled,
            "shuffle_blocks": shuffle_blocks,
        }
    )
