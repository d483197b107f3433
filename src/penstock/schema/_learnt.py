"""What the leaves of a schema learn: vocabularies, statistics and counts, over all ranks."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._lazy import imported
from penstock._words import counted, warn_once
from penstock.schema._nodes import VALUED
from penstock.schema._statistics import ClassCounts, RunningStats, agreed, agreed_counts
from penstock.schema._tree import Address
from penstock.schema._values import key_label, label_key
from penstock.schema.leaves._number import Number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.schema._nodes import Leaf
    from penstock.schema._vocabulary import Vocabulary, VocabularyMark

    State = Mapping[str, Any]

_log = logging.getLogger("penstock.schema")

_NEARLY_FULL = 0.95


class LearntMark(NamedTuple):
    """What leaves had learnt at some time."""

    vocabularies: dict[Address, VocabularyMark]
    statistics: dict[Address, Any]
    counts: dict[Address, dict[str, Any]]
    batches: int
    meetings: int
    """How often all ranks were brought together."""


class Learnt:
    """What leaves learn, by address; a schema shares it with its copies for splits."""

    def __init__(self, leaves: Mapping[Address, Leaf], before: Learnt | None = None) -> None:
        """Begin with nothing, or with what the same leaves knew `before`."""
        self.rank, self.world_size, self.batches, self.meetings = 0, 1, 0, 0
        self._unsynchronized = 0
        """Passes that began since ranks were last brought together."""
        self.vocabularies: dict[Address, Vocabulary] = {}
        self.statistics: dict[Address, RunningStats] = {}
        self.counts: dict[Address, dict[str, ClassCounts]] = {}
        for address, leaf in leaves.items():
            words = leaf.vocabulary()
            if words is not None:
                old = None if before is None else before.vocabularies.get(address)
                self.vocabularies[address] = words if old is None else old.of_size(words)
            if isinstance(leaf, Number):
                known = None if before is None else before.statistics.get(address)
                self.statistics[address] = known or RunningStats()
            seen = {} if before is None else before.counts.get(address, {})
            sizes = leaf.classes()
            self.counts[address] = {
                part: seen[part]
                if part in seen and len(seen[part].counts) == sizes[part]
                else ClassCounts(sizes[part])
                for part in sizes
            }
        if before is not None:
            self.batches, self.meetings = before.batches, before.meetings
            self.configure(before.rank, before.world_size)

    def configure(self, rank: int, world_size: int) -> None:
        """Say which rank this is."""
        self.rank, self.world_size = rank, world_size
        for words in self.vocabularies.values():
            words.configure_distributed(rank, world_size)

    def begin_pass(self, rank: int, world_size: int) -> None:
        """Note that a pass over training records begins."""
        self.configure(rank, world_size)
        self._unsynchronized += 1
        waiting = sum(len(words.proposals) for words in self.vocabularies.values())
        if waiting and self._unsynchronized == 2:  # noqa: PLR2004 (a whole pass without it)
            warnings.warn(
                f"rank {rank} took {waiting:,} labels for unknown ones in the last pass, since "
                "only rank 0 adds labels. Call schema.synchronize() on all ranks after each epoch, "
                "set schema.sync_every, or call fit_vocabulary before training.",
                stacklevel=5,
            )

    def count(self, address: Address, state: NDArray[np.uint8], content: NDArray[Any]) -> None:
        """Add the values of a batch of one leaf to its statistics and counts."""
        numbers, counts = self.statistics.get(address), self.counts[address]
        counts["state"].update(state)
        if numbers is not None:
            numbers.update(content[state == VALUED])
        if "content" in counts:
            counts["content"].update(content[state == VALUED])
        words = self.vocabularies.get(address)
        if words is not None and words.left_out is not None:
            most = counted(words.unavailable_index, "label")
            warn_once(
                _log,
                f"{address}: the vocabulary is full, with {most}; "
                f"{words.left_out!r} and others are unknown. Give it a larger max_vocab_size, or "
                "call fit_vocabulary, which keeps the most frequent ones.",
            )
        if words is not None:
            words.warn_of_kinds(address)

    def forget(self, address: Address) -> None:
        """Begin anew with one leaf; all that share this learn it."""
        if address in self.vocabularies:
            self.vocabularies[address].load_snapshot([])
            self.vocabularies[address].is_frozen = False
        if address in self.statistics:
            self.statistics[address].load_state_dict(RunningStats().state_dict())
        for one in self.counts.get(address, {}).values():
            one.load_state_dict(ClassCounts(0).state_dict())

    # As a state.

    def state_dict(self, mark: LearntMark | None = None) -> dict[str, Any]:
        """Return the present state, or that of a mark."""
        words, statistics, counts, batches, _ = mark or self.mark()
        proposals = {str(at): one.proposed_labels() for at, one in words.items() if one.proposals}
        return {
            "vocabularies": {str(at): one.labels() for at, one in words.items()},
            "frozen": [str(at) for at, one in words.items() if one.is_frozen],
            "proposals": proposals,
            "statistics": {
                str(at): self.statistics[at].state_dict(one) for at, one in statistics.items()
            },
            "counts": {
                str(at): {part: self.counts[at][part].state_dict(parts[part]) for part in parts}
                for at, parts in counts.items()
            },
            "rank": self.rank,
            "batches": batches,
        }

    def mark(self) -> LearntMark:
        """Return what `state_dict` makes the present state of later; it costs microseconds."""
        return LearntMark(
            {at: one.mark() for at, one in self.vocabularies.items()},
            {at: one.mark() for at, one in self.statistics.items()},
            {
                at: {part: one.mark() for part, one in parts.items()}
                for at, parts in self.counts.items()
            },
            self.batches,
            self.meetings,
        )

    def load_state_dict(self, state: State) -> None:
        if "ranks" in state:
            states = state["ranks"]
            state = states[self.rank] if len(states) == self.world_size else together(states)
        # What another rank has not shared yet is its own to share.
        is_own = state["rank"] == self.rank
        for address, labels in state["vocabularies"].items():
            words = self.vocabularies[Address(address)]
            words.load_snapshot(labels, state["proposals"].get(address, ()) if is_own else ())
            words.is_frozen = address in state["frozen"]
        for address, own in state["statistics"].items():
            self.statistics[Address(address)].load_state_dict(own, with_own=is_own)
        for address, parts in state["counts"].items():
            for part, own in parts.items():
                self.counts[Address(address)][part].load_state_dict(own, with_own=is_own)
        self.batches, self._unsynchronized = int(state["batches"]), 0

    # Over ranks.

    def synchronize(self, group: Any) -> None:
        """Bring all ranks of a group to the same vocabularies and statistics."""
        if (distributed := _connected(group)) is None:
            return
        before = self.state_dict()
        answer: list[Any] = [self.gathered(group)]
        first = distributed.get_global_rank(group or distributed.group.WORLD, 0)
        distributed.broadcast_object_list(answer, src=first, group=group)
        self.load_state_dict(answer[0])
        self.meetings += 1
        if distributed.get_rank(group) == 0:
            self.report(before)

    def gathered(self, group: Any) -> dict[str, Any] | None:
        """Return the state of all ranks of a group as one, on its rank 0; None on others."""
        own = self.state_dict()
        if (distributed := _connected(group)) is None:
            return own
        rank, size = distributed.get_rank(group), distributed.get_world_size(group)
        first = distributed.get_global_rank(group or distributed.group.WORLD, 0)
        # Rank 0 has its labels at hand, and those of the others are not asked for.
        sent = None if rank == 0 else {**own, "vocabularies": {}}
        states: list[Any] | None = [None] * size if rank == 0 else None
        distributed.gather_object(sent, states, dst=first, group=group)
        return None if states is None else together([own, *states[1:]])

    def report(self, before: State) -> None:
        """Log what other ranks brought since a state; warn of a vocabulary that is nearly full."""
        for address, words in self.vocabularies.items():
            added = len(words) - len(before["vocabularies"][address])
            _log.info("%s: other ranks brought %d new labels", address, added)
            if len(words) >= _NEARLY_FULL * words.unavailable_index:
                warnings.warn(
                    f"{address}: the vocabulary has {len(words):,} of at most "
                    f"{words.unavailable_index:,} labels; further ones are unknown. Give it a "
                    "larger max_vocab_size.",
                    stacklevel=4,
                )


def _connected(group: Any) -> Any:
    """Return torch.distributed where it connects a group of several ranks, else None."""
    distributed: Any = imported("torch.distributed")
    is_joined = distributed is not None and distributed.is_initialized()
    return distributed if is_joined and distributed.get_world_size(group) > 1 else None


def together(states: Sequence[State]) -> dict[str, Any]:
    """Return the state of all ranks as one: labels of rank 0, then what the others propose."""
    first = states[0]
    labels = {}
    for address, known in first["vocabularies"].items():
        keys = dict.fromkeys(map(label_key, known))
        for state in states:
            keys |= dict.fromkeys(map(label_key, state["proposals"].get(address, ())))
        labels[address] = [*map(key_label, keys)]
    statistics = {
        address: agreed(state["statistics"][address] for state in states)
        for address in first["statistics"]
    }
    counts = {
        address: {
            part: agreed_counts([state["counts"][address][part] for state in states])
            for part in parts
        }
        for address, parts in first["counts"].items()
    }
    learnt = {"vocabularies": labels, "statistics": statistics, "counts": counts}
    return {**first, **learnt, "proposals": {}}
