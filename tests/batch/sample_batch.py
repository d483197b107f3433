"""A batch with a field of every kind, and what to ask of copies of it."""

from __future__ import annotations

from typing import Any

import torch

from penstock.batch import Batch, Categories, Jagged, Masked, Padded
from tests.batch.encoder_contract import plain


def sample() -> Batch:
    return Batch(
        {
            "x": torch.tensor([0.5, 1.5]),
            "vector": torch.tensor([[1, 2, 3], [4, 5, 6]]),
            "tags": Jagged(torch.tensor([7, 8]), lengths=torch.tensor([2, 0])),
            "pages": Jagged(
                Jagged(torch.tensor([1, 2]), lengths=torch.tensor([1, 1])),
                lengths=torch.tensor([0, 2]),
            ),
            "age": Masked(torch.tensor([3, 0]), torch.tensor([True, False])),
            "recent": Padded(torch.tensor([[1, 0], [2, 3]]), torch.tensor([1, 2])),
            "country": Categories(torch.tensor([-1, 0]), ["de"]),
            "name": ["a", None],
        },
        ids=torch.tensor([12, 7]),
        valid=torch.tensor([True, False]),
    )


def tensors(value: Any) -> list[torch.Tensor]:
    """Return every tensor in a batch."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Batch):
        return [t for part in (*value.values(), value.ids, value.valid) for t in tensors(part)]
    if isinstance(value, Jagged):
        return [*tensors(value.values), value.offsets]
    if isinstance(value, Masked | Padded | Categories):
        return [t for part in value for t in tensors(part)]
    return []


def same(batch: Batch) -> bool:
    expected = sample()
    return (
        plain(batch) == plain(expected)
        and plain(batch.ids) == [12, 7]
        and plain(batch.valid) == [True, False]
        and repr(batch) == repr(expected)
    )
