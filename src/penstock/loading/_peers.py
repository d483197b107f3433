"""The ranks that share the data: what they tell each other, through the process group's store."""

from __future__ import annotations

import itertools
import json
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._lazy import imported
from penstock._words import few
from penstock.errors import StallError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.loading._ranks import Ranks

T = TypeVar("T")

_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
"""Seconds between two looks at the store."""

_loaders: dict[str, itertools.count[int]] = {}
"""For each set of ranks, the number of the next loader that begins its first pass."""


class Meeting:
    """Where the ranks of one loader meet; its name is the same for all of them."""

    def __init__(self) -> None:
        self._name = ""
        self._known: tuple[str, list[Any]] = ("", [])

    def peers(self, ranks: Ranks, patience: float, number: int = 0) -> Peers | None:
        """Return the ranks in one pass, or in none of them; None where there are no others."""
        if len(ranks.peers) < 2:  # noqa: PLR2004 (this one alone)
            return None
        if not self._name:
            group = blake2b(json.dumps(list(ranks.peers)).encode(), digest_size=8).hexdigest()
            self._name = f"{group}/{next(_loaders.setdefault(group, itertools.count()))}"
        return Peers(f"{self._name}/{number}", ranks.peers, patience)

    def parts(self, peers: Peers, moment: str, rank: int, part: object) -> list[Any]:
        """Return the parts of all ranks at a moment, which all of them name alike."""
        before, parts = self._known
        if moment != before:
            parts = peers.gathered(moment, [rank, part], before)
            self._known = moment, parts
        each = dict(parts)  # Some ranks may have the same data.
        return [each[rank] for rank in sorted(each)]


class Peers:
    """Values that ranks leave for each other; where one waits, it waits so long and no longer."""

    def __init__(self, name: str, ranks: Sequence[int], patience: float) -> None:
        """Speak with global ranks under a name that is the same for all of them, and new."""
        distributed: Any = imported("torch.distributed")
        self._store = distributed.group.WORLD.get_group_store()
        self._prefix, self._patience = f"penstock/{name}", patience
        self.rank: int = distributed.get_rank()
        self._ranks = ranks

    @property
    def others(self) -> list[int]:
        return [rank for rank in self._ranks if rank != self.rank]

    def leave(self, key: str, value: object) -> None:
        """Leave a value of this rank."""
        self._store.set(f"{self._prefix}/{key}/{self.rank}", json.dumps(value))

    def look(self, key: str, rank: int) -> Any:  # noqa: ANN401 (what was left)
        """Return what a rank left; None where it left nothing until now."""
        is_there = self._has_left(key, rank)
        return json.loads(self._store.get(f"{self._prefix}/{key}/{rank}")) if is_there else None

    def _has_left(self, key: str, rank: int) -> bool:
        return bool(self._store.check([f"{self._prefix}/{key}/{rank}"]))

    def _forget(self, key: str) -> None:
        self._store.delete_key(f"{self._prefix}/{key}/{self.rank}")

    # Equally many steps, where no rank knows how many the others have.

    def reach(self, epoch: int, steps: int) -> None:
        """Say that this rank has records for so many steps."""
        self.leave(f"steps/{epoch}", [steps, False])

    def end(self, epoch: int, steps: int) -> None:
        """Say that it has none for more steps."""
        self.leave(f"steps/{epoch}", [steps, True])

    def reached(self, epoch: int, steps: int) -> bool:
        """Wait until another rank has records for so many steps, or none of them has."""
        ended: set[int] = set()

        def look() -> bool | None:
            for rank in self.others:
                if rank not in ended:
                    count, is_end = self.look(f"steps/{epoch}", rank) or (0, False)
                    if count >= steps:
                        return True
                    if is_end:
                        ended.add(rank)
            return False if len(ended) == len(self.others) else None

        return self._waited(
            look,
            f"to learn whether there is a step {steps:,} of epoch {epoch}, since it has no records",
            lambda: [rank for rank in self.others if rank not in ended],
            "has neither begun nor ended it",
        )

    # One state of all ranks.

    def gathered(self, moment: str, part: object, before: str) -> list[Any]:
        """Return the parts of all ranks in their order, at a moment that all of them name alike.

        The first rank collects the parts and hands them to the others, in as many requests as there
        are ranks. Those of the moment `before` are forgotten.
        """
        first = self._ranks[0]
        self.leave(f"part/{moment}", part)

        waiting = list(self._ranks)

        def missing() -> list[int]:
            waiting[:] = [rank for rank in waiting if not self._has_left(f"part/{moment}", rank)]
            return waiting

        what, why = "for the parts of the state", "did not call state_dict() at the same step"
        if self.rank == first:
            self._waited(lambda: not missing() or None, what, missing, why)
            self.leave(
                f"whole/{moment}", [self.look(f"part/{moment}", rank) for rank in self._ranks]
            )
            if before:
                self._forget(f"whole/{before}")
        found = self._waited(lambda: self.look(f"whole/{moment}", first), what, missing, why)
        self._forget(f"part/{moment}")
        return list(found)

    def _waited(
        self,
        look: Callable[[], T | None],
        what: str,
        missing: Callable[[], list[int]],
        why: str,
    ) -> T:
        """Return what `look` finds as soon as it is there; else name the ranks that are missing."""
        deadline, pause = time.monotonic() + self._patience, _PAUSE
        while (found := look()) is None:
            if time.monotonic() > deadline:
                ranks = missing()
                names = few([f"rank {rank}" for rank in ranks], 5) or "no rank"
                raise StallError(
                    f"rank {self.rank} waited {self._patience:g} s {what}: {names} {why}. Look "
                    "whether it still runs; stall_timeout= sets how long to wait.",
                    rank=ranks[0] if ranks else self.rank,
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return found
