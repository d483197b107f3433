"""Small token folders, and what a loader should make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from penstock.batch import Batch
from penstock.index import IndexStore

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from penstock import DataLoader
    from penstock.datasets import Source


def stream(tokens: int, dtype: Any = np.uint16) -> NDArray[Any]:
    """Tokens of which no two that stand near each other are the same."""
    most = np.iinfo(dtype).max % 60_000
    return (np.arange(1, tokens + 1) * 7919 % most).astype(dtype)


def write_samples(folder: Path, samples: list[NDArray[Any]], files: int = 2) -> Path:
    """Write samples to some files, and an index as data-forager has it."""
    folder.mkdir(parents=True, exist_ok=True)
    store = IndexStore(folder)
    store.init_store()
    for number, numbers in enumerate(np.array_split(np.arange(len(samples)), files)):
        path = folder / f"{number}.bin"
        offset = 0
        with path.open("wb") as file:
            for sample in numbers.tolist():
                data = samples[sample].tobytes()
                file.write(data)
                store.add_sample(str(path), offset, len(data))
                offset += len(data)
    store.close()
    return folder


def matrix(samples: int, size: int, dtype: Any = np.uint16) -> NDArray[Any]:
    return stream(samples * size, dtype).reshape(samples, size)


def open_tokens(folder: Path, rows: NDArray[Any], files: int = 2) -> Source:
    """Return a source of samples of one size."""
    from penstock.datasets import TokensDataset

    write_samples(folder, list(rows), files)
    return TokensDataset.create_from_index_on_filesystem(folder, token_dtype=rows.dtype)


def shown(batch: Any) -> tuple[Any, ...]:
    """Return everything that a batch of tokens holds."""
    valid = None if batch.valid is None else np.asarray(batch.valid).tolist()
    ids = np.asarray(batch.ids).tolist()
    if isinstance(batch, Batch):
        fields = [(k, v.tolist() if isinstance(v, torch.Tensor) else v) for k, v in batch.items()]
        return ids, valid, fields
    if isinstance(batch, torch.Tensor):
        return ids, valid, str(batch.dtype), batch.tolist()
    return ids, valid, [None if row is None else row.tolist() for row in batch]


def all_shown(loader: DataLoader) -> list[tuple[Any, ...]]:
    return [shown(batch) for batch in loader]
