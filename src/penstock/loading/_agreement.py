"""Whether all ranks see the same data, compared through the process group's store.

A rank never waits for another one here: it compares with those that have begun the same pass.
"""

from __future__ import annotations

import itertools
import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from penstock._lazy import imported
from penstock.errors import RankMismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_COMPARED = (
    "fingerprint", "length", "seed", "order", "epoch", "position", "skip", "batch", "drop_last",
)  # fmt: skip
"""What every rank must have in common at the start of a pass, as the state document names it."""
_RANKS_A_LOOK = 64
"""How many ranks one look asks about: each is a request to the store."""
_LONGEST_SHOWN = 80

_loaders: dict[str, itertools.count[int]] = {}
"""For each set of ranks, the number of the next loader that begins its first pass."""


def loader_number(peers: Sequence[int]) -> str:
    """Return the name under which all of these ranks know the next loader that is used."""
    group = blake2b(json.dumps(list(peers)).encode(), digest_size=8).hexdigest()
    return f"{group}/{next(_loaders.setdefault(group, itertools.count()))}"


class Agreement:
    """What this rank sees in one pass, compared with each other rank as soon as that has begun."""

    def __init__(self, name: str, peers: Sequence[int], facts: Mapping[str, object]) -> None:
        """Announce the facts of this rank.

        Args:
            name: The pass: the same on all ranks, and new for every pass.
            peers: The global ranks of all processes that share the data.
            facts: The state document at the start of the pass, `batch` and `drop_last`.
        """
        distributed: Any = imported("torch.distributed")
        self._store = distributed.group.WORLD.get_group_store()
        self._prefix = f"penstock/agreement/{name}"
        self._rank = distributed.get_rank()
        self._facts = {key: _short(facts[key]) for key in _COMPARED if key in facts}
        self._missing = [rank for rank in peers if rank != self._rank]
        self._store.set(f"{self._prefix}/{self._rank}", json.dumps(self._facts))

    def is_complete(self) -> bool:
        """Compare with the ranks that have begun; return whether all were seen."""
        for rank in self._missing[:_RANKS_A_LOOK]:
            self._missing.remove(rank)
            key = f"{self._prefix}/{rank}"
            if self._store.check([key]):
                self._compare(rank, json.loads(self._store.get(key)))
            else:
                self._missing.append(rank)
        return not self._missing

    def _compare(self, rank: int, others: Mapping[str, object]) -> None:
        differ = [key for key in _COMPARED if self._facts.get(key) != others.get(key)]
        if not differ:
            return
        mine, theirs = (
            ", ".join(f"{key} {facts.get(key)}" for key in differ)
            for facts in (self._facts, others)
        )
        raise RankMismatchError(
            f"ranks see different data: rank {self._rank} has {mine}; rank {rank} has {theirs}.",
            remedy="Let all ranks open the same files with the same index, arguments and state: "
            "build the index before the run (penstock index), or give refresh='never'.",
        )


def _short(value: object) -> object:
    """Return a value of a state document, or a hash in place of a long one."""
    text = json.dumps(value, sort_keys=True)
    if len(text) <= _LONGEST_SHOWN:
        return value
    return f"#{blake2b(text.encode(), digest_size=8).hexdigest()}"
