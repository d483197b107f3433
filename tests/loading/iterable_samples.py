"""Datasets of torch that only iterate; apart, for whoever imports this imports torch."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import torch.utils.data as torch_data

if TYPE_CHECKING:
    from collections.abc import Iterator


class Sharded(torch_data.IterableDataset[Any]):
    """Shards itself as the documentation of torch shows it, over ranks and workers."""

    def __init__(self, length: int, rank: int = 0, world_size: int = 1) -> None:
        super().__init__()
        self.length, self.rank, self.world_size = length, rank, world_size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = torch_data.get_worker_info()
        step = 1 if info is None else info.num_workers
        first = 0 if info is None else info.id
        for number in range(
            self.rank + self.world_size * first, self.length, self.world_size * step
        ):
            yield {"n": number, "workers": step}


class Pairs(torch_data.IterableDataset[Any]):
    """Yields what is no dict."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for number in range(5):
            yield number, number * number


class Drawn(torch_data.IterableDataset[Any]):
    """Draws from Python's own generator, as many datasets do."""

    def __iter__(self) -> Iterator[dict[str, int]]:
        for _ in range(6):
            yield {"n": random.getrandbits(40)}
