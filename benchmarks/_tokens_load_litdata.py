"""The peer LitData with its loader of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import litdata
import numpy as np
import torch
from _tokens_side import BATCH, LENGTH, Rows, ids_of
from litdata.streaming.item_loader import TokensLoader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_AT_A_TIME = 64 * LENGTH
CHUNK = 512 * _AT_A_TIME
"""Tokens of a chunk: 64 MB, as its own default is for other records."""


def _pieces(path: str) -> Iterator[torch.Tensor]:
    tokens = np.memmap(path, np.uint16, "r")
    for start in range(0, len(tokens), _AT_A_TIME):
        yield torch.from_numpy(np.array(tokens[start : start + _AT_A_TIME]))


def convert(source: str, target: str) -> None:
    files = sorted(map(str, Path(source, "tokenized-samples").glob("*.bin")))
    litdata.optimize(
        fn=_pieces,
        inputs=files,
        output_dir=target,
        chunk_size=CHUNK,
        item_loader=TokensLoader(),
        num_workers=1,
    )


def made(path: str, workers: int, *, length: int = LENGTH) -> Iterable[object]:
    whole = litdata.StreamingDataset(
        path, item_loader=TokensLoader(block_size=length), shuffle=True
    )
    return litdata.StreamingDataLoader(whole, batch_size=BATCH, num_workers=workers)


if __name__ == "__main__":
    Rows(made, ids_of, convert).serve()
