"""The peer Hugging Face datasets under torch's loader, whole batches at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import datasets
import torch
from _hf import convert
from _load_collate import ids_of
from _load_side import BATCH, FIELDS, Loading
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

if TYPE_CHECKING:
    from collections.abc import Iterable


def _joined(batch: dict) -> dict[str, torch.Tensor]:
    # A thousand small tensors would cost more to hand over than to make.
    tags = batch.pop("tags")
    lengths = torch.tensor(list(map(len, tags)))
    return {**batch, "tags": torch.cat(tags), "tags_lengths": lengths}


def made(path: str, workers: int) -> Iterable[dict]:
    files = sorted(Path(path).rglob("*.arrow"))
    whole = datasets.concatenate_datasets([datasets.Dataset.from_file(str(f)) for f in files])
    wanted = whole.select_columns(list(FIELDS)).with_format("torch")
    batches = BatchSampler(RandomSampler(wanted), BATCH, drop_last=False)
    return DataLoader(
        wanted, sampler=batches, batch_size=None, num_workers=workers, collate_fn=_joined
    )


if __name__ == "__main__":
    Loading(made, ids_of, convert).serve()
