"""The peer LitData, tokenising."""

from __future__ import annotations

import shutil
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import litdata
import numpy as np
import orjson
import torch
from _tokens_library import let_use_threads, loaded
from _tokens_side import LENGTH
from _worker import serve
from litdata.streaming.item_loader import TokensLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 32_768 * LENGTH
"""Tokens of a chunk: 64 MB."""

loaded_once = cache(loaded)


def _documents(path: str, tokenizer: str, library: str) -> Iterator[torch.Tensor]:
    let_use_threads(several=False)
    known = loaded_once(tokenizer, library)
    with Path(path).open("rb") as lines:
        for line in lines:
            ids = known.ids_of(orjson.loads(line)["text"])
            yield torch.from_numpy(np.array([*ids, known.eos], np.uint16))


def make(source: str, target: str, tokenizer: str, library: str, workers: int) -> int:
    """Make a folder of chunks; return its tokens."""
    litdata.optimize(
        fn=partial(_documents, tokenizer=tokenizer, library=library),
        inputs=sorted(map(str, Path(source).glob("*.jsonl"))),
        output_dir=target,
        chunk_size=_CHUNK,
        item_loader=TokensLoader(),
        num_workers=workers,
    )
    index = orjson.loads(Path(target, "index.json").read_bytes())
    return sum(chunk["dim"] for chunk in index["chunks"])


def clear(target: str, **_: object) -> None:
    """Forget what was made."""
    shutil.rmtree(target, ignore_errors=True)


if __name__ == "__main__":
    serve({"make": make, "clear": clear})
