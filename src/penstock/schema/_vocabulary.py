"""Vocabularies that grow: a label has the number that it was first seen with."""

from __future__ import annotations

import warnings
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.schema._values import in_order_of_appearance, key_label, label_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from penstock.schema._values import Labels

    Codes = NDArray[np.int32]


class VocabularyMark(NamedTuple):
    """What a vocabulary held at some time: its labels only grow, until others are loaded."""

    numbers: dict[Any, int]
    size: int
    proposed: dict[Any, None]
    proposals: int
    is_frozen: bool

    def labels(self) -> list[Any]:
        return [*map(key_label, islice(self.numbers, self.size))]

    def proposed_labels(self) -> list[Any]:
        return [*map(key_label, islice(self.proposed, self.proposals))]


class Vocabulary:
    """The labels of one leaf, in the order of their numbers; full at `capacity`.

    Under several ranks, only rank 0 adds labels by itself. The others propose those that they see,
    and count them as unknown until `extend` brings them.

    >>> words = Vocabulary(2)
    >>> words.reserve(["red", "blue", "green"], learn=True)
    >>> words.encode("blue"), words.encode("green"), words.snapshot()
    (1, 2, ['red', 'blue'])
    """

    def __init__(self, capacity: int) -> None:
        self.unavailable_index = capacity
        """The number of all labels that it does not hold."""
        self.is_frozen = False
        """Whether `reserve` adds no more labels."""
        self.left_out: Any = None
        """A label that `reserve` had no room for."""
        self._examples: dict[bool, Any] = {}
        """The first label that is a text, under True, and the first one that is none."""
        self._warned = False
        self._numbers: dict[Any, int] = {}
        self._proposed: dict[Any, None] | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def configure_distributed(self, global_rank: int, world_size: int) -> None:
        """Say which rank this is."""
        proposes = world_size > 1 and global_rank > 0
        self._proposed = (self._proposed or {}) if proposes else None

    def share(self) -> None:
        """Do nothing, as `freeze`: only the user's process learns, so nothing is shared."""

    freeze = share

    def reserve(self, values: Iterable[Any], *, learn: bool) -> None:
        """Add the labels that are new, in their order, as far as there is room."""
        self.numbers([*map(label_key, values)], learn=learn)

    def encode(self, word: Any) -> int | None:
        """Return the number of a label; `unavailable_index` if it has none, None for None."""
        if word is None:
            return None
        return self._numbers.get(label_key(word), self.unavailable_index)

    def numbers(self, keys: Sequence[Any], *, learn: bool = False) -> NDArray[np.int64]:
        """Return the numbers of labels, given by their keys, int64[len(keys)]; see `reserve`."""
        known, proposed, missing = self._numbers, self._proposed, self.unavailable_index
        if learn and not self.is_frozen:
            for key in keys:
                if len(known) + len(proposed or ()) >= missing:
                    if self.left_out is None:
                        held = (known, proposed or {})
                        new = (key for key in keys if all(key not in one for one in held))
                        self.left_out = next(map(key_label, new), None)
                    break
                if key not in known:
                    self._note(key)
                    if proposed is None:
                        known[key] = len(known)
                    else:
                        proposed[key] = None
        return np.fromiter(map(known.get, keys, repeat(missing)), np.int64, len(keys))

    def coded(
        self, labels: Labels, codes: Codes, taught: Codes | None, *, learn: bool
    ) -> NDArray[np.int64]:
        """Return the numbers of codes, which number `labels`; 0 for -1.

        Learns the labels of `taught`, or of all codes, in the order in which they appear.
        """
        numbers = labels.numbers_in(self._numbers)
        for own, learns in ((codes if taught is None else taught, learn), (codes, False)):
            new = own[numbers[own] < 0]
            if new.size:
                seen = in_order_of_appearance(new, len(labels))
                numbers[seen] = self.numbers([labels[code] for code in seen.tolist()], learn=learns)
        found = numbers[codes]
        # A label without a number may have one in the next batch.
        numbers[numbers == self.unavailable_index] = -1
        return found

    def snapshot(self) -> list[Any]:
        """Return the labels in the order of their numbers."""
        return [*map(key_label, self._numbers)]

    @property
    def proposals(self) -> list[Any]:
        """The labels that this rank proposes to rank 0."""
        return [*map(key_label, self._proposed or ())]

    def mark(self) -> VocabularyMark:
        """Return what the present labels are found by later."""
        proposed = self._proposed or {}
        return VocabularyMark(
            self._numbers, len(self._numbers), proposed, len(proposed), self.is_frozen
        )

    def drain_proposals(self) -> list[Any]:
        """Return the labels that this rank proposes, and forget them."""
        proposed = self.proposals
        if self._proposed is not None:
            self._proposed = {}
        return proposed

    def extend(self, labels: Iterable[Any]) -> tuple[int, int]:
        """Add labels of other ranks; return how many were new, and how many found no room."""
        before = len(self)
        new = dict.fromkeys(key for key in map(label_key, labels) if key not in self._numbers)
        for key in [*new][: self.unavailable_index - before]:
            self._note(key)
            self._numbers[key] = len(self)
        return len(self) - before, before + len(new) - len(self)

    def load_snapshot(self, labels: Sequence[Any], proposals: Iterable[Any] = ()) -> None:
        """Hold these labels instead, as many as there is room for."""
        kept = labels[: self.unavailable_index]
        self._numbers = {label_key(label): number for number, label in enumerate(kept)}
        self._examples = {}
        for key in self._numbers:
            self._note(key)
        if len(kept) < self.unavailable_index:
            self.left_out = None
        if self._proposed is not None:
            self._proposed = dict.fromkeys(map(label_key, proposals))

    def _note(self, key: Any) -> None:
        is_text = isinstance(key, str)
        if is_text not in self._examples:
            self._examples[is_text] = key_label(key)

    def warn_of_kinds(self, address: str) -> None:
        """Warn once of texts beside other labels: 1 and "1" are not the same."""
        if len(self._examples) < 2 or self._warned:  # noqa: PLR2004 (texts, and others)
            return
        self._warned = True
        text, other = self._examples[True], self._examples[False]
        warnings.warn(
            f"{address}: the vocabulary holds {text!r}, which is a text, and {other!r}, which is "
            "none; 1 and '1' are two labels. Write labels that mean the same alike: penstock check "
            "--schema names records with both.",
            stacklevel=2,
        )

    def of_size(self, other: Vocabulary) -> Vocabulary:
        """Return this vocabulary if it has the capacity of another one, else that with its labels.

        The old one stays as it is, for loaders that use it.
        """
        if self.unavailable_index == other.unavailable_index:
            return self
        other.load_snapshot(self.snapshot())
        other.is_frozen = self.is_frozen
        return other
