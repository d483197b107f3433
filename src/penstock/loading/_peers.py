"""The ranks that share the data: what they tell each other, through the process group's store."""

from __future__ import annotations

import itertools
import json
import logging
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

_log = logging.getLogger("penstock.loading")

_STORE = 0
"""The rank whose process holds the store, where no launcher does."""
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
        find = getattr(distributed.group.WORLD, "get_group_store", None)
        # Older releases of torch have no public way.
        self._store = (find or distributed.distributed_c10d._get_default_store)()  # noqa: SLF001
        self._prefix, self._patience = f"penstock/{name}", patience
        self.rank: int = distributed.get_rank()
        self._ranks = ranks

    @property
    def others(self) -> list[int]:
        return [rank for rank in self._ranks if rank != self.rank]

    def leave(self, key: str, value: object) -> None:
        """Leave a value of this rank."""
        self._ask("set", f"{self._prefix}/{key}/{self.rank}", json.dumps(value))

    def look(self, key: str, rank: int) -> Any:  # noqa: ANN401 (what was left)
        """Return what a rank left; None where it left nothing until now."""
        is_there = self._has_left(key, rank)
        return json.loads(self._ask("get", f"{self._prefix}/{key}/{rank}")) if is_there else None

    def _has_left(self, key: str, rank: int) -> bool:
        return bool(self._ask("check", [f"{self._prefix}/{key}/{rank}"]))

    def _forget(self, key: str) -> None:
        self._ask("delete_key", f"{self._prefix}/{key}/{self.rank}")

    def _ask(self, what: str, *arguments: object) -> Any:  # noqa: ANN401 (the store's answer)
        try:
            return getattr(self._store, what)(*arguments)
        except RuntimeError as why:  # As all errors of torch's stores are.
            raise StallError(
                f"rank {self.rank} cannot reach the store of the process group, which lies in rank "
                f"{_STORE} or in the launcher ({why}). Look whether it still runs.",
                rank=_STORE,
            ) from why

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

        found = self._waited(
            look,
            f"to learn whether there is a step {steps:,} of epoch {epoch}, since it has no records",
            lambda: [rank for rank in self.others if rank not in ended],
            "has neither begun nor ended it",
        )
        if not found:
            seen = f"seen/{epoch}"
            self.leave(seen, value=True)
            self._stay(self._without(seen, self.others))
        return found

    # One state of all ranks.

    def gathered(self, moment: str, part: object, before: str) -> list[Any]:
        """Return the parts of all ranks in their order, at a moment that all of them name alike.

        The first rank collects the parts and hands them to the others, in as many requests as there
        are ranks. Those of the moment `before` are forgotten.
        """
        first, key = self._ranks[0], f"part/{moment}"
        self.leave(key, part)
        missing = self._without(key, self._ranks)
        what, why = "for the parts of the state", "did not call state_dict() at the same step"
        if self.rank == first:
            self._waited(lambda: not missing() or None, what, missing, why)
            self.leave(f"whole/{moment}", [self.look(key, rank) for rank in self._ranks])
            if before:
                self._forget(f"whole/{before}")
        found = self._waited(lambda: self.look(f"whole/{moment}", first), what, missing, why)
        self._forget(key)
        self._stay(self._without(key, self.others, is_left=False))
        return list(found)

    def _without(
        self, key: str, ranks: Sequence[int], *, is_left: bool = True
    ) -> Callable[[], list[int]]:
        """Return which ranks have not left a value, or not taken it back; asked again, of those."""
        waiting = list(ranks)

        def missing() -> list[int]:
            waiting[:] = [rank for rank in waiting if self._has_left(key, rank) != is_left]
            return waiting

        return missing

    def _stay(self, missing: Callable[[], list[int]]) -> None:
        """Wait for ranks that still ask the store, if it may live in this process."""
        if self.rank != _STORE:
            return
        what, why = "for the last questions to its store", "did not ask"
        try:
            self._waited(lambda: not missing() or None, what, missing, why)
        except StallError as late:  # All that this rank needs is there.
            _log.warning("%s", late)

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
