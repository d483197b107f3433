"""The values of a leaf's slots, on their way from records to arrays of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class BadSlotError(Exception):
    """A value that a leaf cannot encode; the schema adds address and record."""

    def __init__(self, slot: int, why: str) -> None:
        super().__init__(slot, why)
        self.slot = slot
        self.why = why


class Labels(list[Any]):
    """The keys of labels, and the numbers that a vocabulary gave to them, for all batches of a lot.

    `known` is what the numbers were looked up in, and `numbers` has -1 where they were not:
    int64[len + 1], the last one for no label.
    """

    __slots__ = ("known", "numbers")

    def numbers_in(self, known: dict[Any, int]) -> NDArray[np.int64]:
        if getattr(self, "known", None) is not known:
            self.known, self.numbers = known, np.full(len(self) + 1, -1)
            self.numbers[-1] = 0
        return self.numbers


@dataclass(frozen=True, slots=True)
class SlotValues:
    """The content of the slots that the records of a batch have; K of them."""

    valued: NDArray[np.bool_]
    """Which slots have a value; the others are null. bool[K]"""
    content: dict[str, NDArray[Any]]
    """The parts of the content, [K, …] each, zero where a slot has no value; of sets, [items]."""
    labels: Sequence[Any] = ()
    """The keys of the labels that `content["codes"]` numbers; numbers below 0 are no label."""
    items: NDArray[np.int64] | None = None
    """Of sets, how many items each slot has, int64[K]."""


def scattered(
    values: NDArray[Any], slots: NDArray[np.int64], shape: tuple[int, ...], fill: int = 0
) -> NDArray[Any]:
    """Return an array of `shape` (and the axes of a value) with values in some of its slots."""
    dense = np.full((math.prod(shape), *values.shape[1:]), fill, values.dtype)
    dense[slots] = values
    return dense.reshape(*shape, *values.shape[1:])


def numbered(values: Sequence[Any]) -> tuple[Labels, NDArray[np.int32]]:
    """Return the keys of different labels in the order of their first places, and their numbers.

    >>> numbered([1, 1.0, True, "1", None])
    ([1, (True,), '1'], array([ 0,  0,  1,  2, -1], dtype=int32))
    """
    codes: dict[Any, int] = {}
    found = [-1 if one is None else codes.setdefault(label_key(one), len(codes)) for one in values]
    return Labels(codes), np.array(found, np.int32)


def label_key(label: Any) -> Any:
    """Return what tells labels apart: Python takes True and 1 for the same."""
    return (label,) if isinstance(label, bool) else label


def key_label(key: Any) -> Any:
    """Return the label of a key."""
    return key[0] if isinstance(key, tuple) else key


def in_order_of_appearance(codes: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """Return the different codes from 0 to `count - 1`, each where it appears first.

    >>> in_order_of_appearance(np.array([4, -1, 2, 4], np.int32), 5).tolist()
    [4, 2]
    """
    flat = codes.reshape(-1)
    # Of several values for one place the last stays; the place behind the last is for -1.
    first = np.full(count + 1, -1)
    first[flat[::-1]] = np.arange(flat.size - 1, -1, -1)
    seen = np.flatnonzero(first[:-1] >= 0)
    return seen[np.argsort(first[seen])]
