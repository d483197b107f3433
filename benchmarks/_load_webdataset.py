"""The peer WebDataset: shards of tar, read in order, shuffled in a buffer."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import webdataset
from _load_collate import collate, ids_of
from _load_side import BATCH, Loading
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARDS = 8
_BUFFER = 10_000


def convert(source: str, target: str) -> None:
    lines = Path(source).read_bytes().splitlines()
    for shard in range(_SHARDS):
        with tarfile.open(Path(target) / f"{shard:05}.tar", "w") as archive:
            for number in range(shard, len(lines), _SHARDS):
                info = tarfile.TarInfo(f"{number:09}.json")
                info.size = len(lines[number])
                archive.addfile(info, io.BytesIO(lines[number]))


def _decoded(samples: list[dict]) -> dict:
    return collate([orjson.loads(sample["json"]) for sample in samples])


def made(path: str, workers: int) -> Iterable[dict]:
    shards = sorted(map(str, Path(path).glob("*.tar")))
    whole = webdataset.WebDataset(shards, shardshuffle=_SHARDS, seed=0).shuffle(_BUFFER)
    return DataLoader(whole, batch_size=BATCH, num_workers=workers, collate_fn=_decoded)


if __name__ == "__main__":
    Loading(made, ids_of, convert).serve()
