"""Whether all ranks see the same data, compared through the process group's store.

A rank never waits for another one here: it compares with those that have begun the same pass.
"""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING

from penstock.errors import RankMismatchError, StallError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.loading._peers import Peers

_COMPARED = (
    "fingerprint", "length", "seed", "order", "epoch", "position", "done", "skip", "batch",
    "drop_last",
)  # fmt: skip
"""What every rank must have in common at the start of a pass, as the state document names it."""
_RANKS_A_LOOK = 64
"""How many ranks one look asks about: each is a request to the store."""
_LONGEST_SHOWN = 80


class Agreement:
    """What this rank sees in one pass, compared with each other rank as soon as that has begun."""

    def __init__(self, peers: Peers, facts: Mapping[str, object]) -> None:
        """Announce the facts of this rank: the state document at the start of the pass, and more.

        `peers` are those of one pass.
        """
        self._peers = peers
        self._facts = {key: _short(facts[key]) for key in _COMPARED if key in facts}
        self._missing = peers.others
        with suppress(StallError):
            peers.leave("agreement", self._facts)

    def is_complete(self) -> bool:
        """Compare with the ranks that have begun; return whether all were seen."""
        for rank in self._missing[:_RANKS_A_LOOK]:
            self._missing.remove(rank)
            try:
                others = self._peers.look("agreement", rank)
            except StallError:  # The store is gone, with a rank that was done before this one.
                return True
            if others is None:
                self._missing.append(rank)
            else:
                self._compare(rank, others)
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
            f"ranks see different data: rank {self._peers.rank} has {mine}; rank {rank} has "
            f"{theirs}.",
            remedy="Let all ranks open the same files with the same index, arguments and state: "
            "build the index before the run (penstock index), or give refresh='never'.",
        )


def _short(value: object) -> object:
    """Return a value of a state document, or a hash in place of a long one."""
    text = json.dumps(value, sort_keys=True)
    if len(text) <= _LONGEST_SHOWN:
        return value
    return f"#{blake2b(text.encode(), digest_size=8).hexdigest()}"
