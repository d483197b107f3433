"""Records as dicts into a batch of tensors, by the code that a user of a peer would write."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


def collate(records: Sequence[dict]) -> dict[str, torch.Tensor]:
    """Return a tensor for each scalar, and for the lists their values and lengths."""
    tags = [record["tags"] for record in records]
    return {
        "id": torch.from_numpy(np.array([record["id"] for record in records], np.int64)),
        "price": torch.from_numpy(np.array([record["price"] for record in records], np.float32)),
        "label": torch.from_numpy(np.array([record["label"] for record in records], np.int64)),
        "tags": torch.from_numpy(np.fromiter(chain.from_iterable(tags), np.int64)),
        "tags_lengths": torch.from_numpy(np.fromiter(map(len, tags), np.int64, len(tags))),
    }


def ids_of(batch: dict[str, torch.Tensor]) -> np.ndarray:
    """Return which records a batch has."""
    return batch["id"].numpy()
