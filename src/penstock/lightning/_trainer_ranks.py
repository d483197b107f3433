"""Where a process stands among those that share the data, as its trainer knows it."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from penstock.datasets import running_worker
from penstock.storage import local_world_size


class TrainerRanks(NamedTuple):
    """Where this process stands among those that share the data."""

    rank: int
    world_size: int
    local_world_size: int = 1

    def enter(self) -> None:
        """Let `shard_info` count from these: a worker process does not know its rank by itself."""
        _entered.append(self)


_entered: deque[TrainerRanks] = deque(maxlen=1)
"""The ranks for which this process reads."""


def shard_info() -> tuple[int, int]:
    """Return which of all workers of all ranks this is, and how many there are.

    For datasets of a `CustomDataModule`, and for preprocessors.

    >>> shard_info()
    (0, 1)
    """
    worker, ranks = running_worker(), _entered[0] if _entered else ranks_of(None)
    lanes = 1 if worker is None else worker.num_workers
    return ranks.rank * lanes + (0 if worker is None else worker.id), ranks.world_size * lanes


def ranks_of(trainer: Any) -> TrainerRanks:
    """Return the ranks that a trainer knows, or torch.distributed, or that this is alone."""
    from torch import distributed  # noqa: PLC0415 (it takes a second)

    if trainer is not None:
        local = max(1, trainer.world_size // max(1, trainer.num_nodes))
        return TrainerRanks(trainer.global_rank, trainer.world_size, local)
    if distributed.is_available() and distributed.is_initialized():
        own = distributed.get_rank(), distributed.get_world_size()
        return TrainerRanks(*own, local_world_size())
    return TrainerRanks(0, 1)


def loader_ranks(ranks: TrainerRanks) -> dict[str, Any]:
    """Return ranks for a loader; none where they are those of torch.distributed, its default.

    Only those are able to wait for each other, and to make one state of all.
    """
    from torch import distributed  # noqa: PLC0415 (it takes a second)

    is_joined = distributed.is_available() and distributed.is_initialized()
    if is_joined and ranks[:2] == (distributed.get_rank(), distributed.get_world_size()):
        return {}
    return {"rank": ranks.rank, "world_size": ranks.world_size}
