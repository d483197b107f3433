"""One side of the columns job: four columns, gathered at random, or as epochs of tensors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from _columns_memory import private_now
from _load_side import BATCH, Loading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TYPES = {"id": "int64", "price": "float32", "label": "int64", "tags": "list<int64>"}
_SEED = 5
_LOOKED_AT_EACH = 16
"""Batches between two looks at the memory."""
_orders: dict[int, list[np.ndarray]] = {}


class Arrays(NamedTuple):
    """A batch of the four fields; the lists one after the other, and how long each is."""

    id: np.ndarray
    price: np.ndarray
    label: np.ndarray
    tags: np.ndarray
    tags_lengths: np.ndarray


@dataclass
class Columns(Loading):
    """Columns that answer by record number, and a loader of them."""

    opened: Callable[..., Callable[[np.ndarray], object]]
    """From a path and options to what gathers the four fields of records."""
    arrays_of: Callable[[object], Arrays]
    """From what was gathered, or from a batch of the loader, to its arrays."""

    def works(self) -> dict[str, Callable[..., object]]:
        """Return what can be asked for."""
        more = {"gather": self.gather, "digests": self.digests, "memory": self.memory}
        return {**super().works(), **more}

    def gather(self, path: str, records: int, **options: object) -> int:
        """Gather all records, batch by batch, in an order that is known beforehand."""
        get = self.opened(path, **options)
        for ids in shuffled(records):
            get(ids)
        return records

    def digests(self, path: str, records: int, **options: object) -> list[str]:
        """Return a hash of all records as they are gathered, and one as they are loaded."""
        get = self.opened(path, **options)
        gathered = (self.arrays_of(get(ids)) for ids in shuffled(records))
        loaded = map(self.arrays_of, self.made(path, 0, **options))
        return [_digest(gathered), _digest(loaded)]

    def memory(self, path: str, **options: object) -> list[int]:
        """Return the private bytes of this process after a first batch, and the most after it."""
        before = most = 0
        for number, _ in enumerate(self.made(path, 0, **options)):
            if not number:
                before = private_now()
            if not number % _LOOKED_AT_EACH:
                most = max(most, private_now())
        return [before, most]


def shuffled(records: int) -> list[np.ndarray]:
    """Return batches of record numbers that cover all records, the same on every side."""
    if records not in _orders:
        order = np.random.default_rng(_SEED).permutation(records)
        _orders[records] = [order[at : at + BATCH] for at in range(0, records, BATCH)]
    return _orders[records]


def gather_lists(
    values: np.ndarray, offsets: np.ndarray, ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of some lists, one after the other, and the lengths of the lists."""
    starts = offsets.take(ids)
    lengths = offsets.take(ids + 1) - starts
    rows = np.repeat(starts - (lengths.cumsum() - lengths), lengths)
    rows += np.arange(len(rows))
    return values.take(rows), lengths


def _digest(batches: Iterable[Arrays]) -> str:
    """Return a hash of all records, whatever their order: by id; equal ids are equal records."""
    whole = Arrays(*(np.concatenate(parts) for parts in zip(*batches, strict=True)))
    by_id = whole.id.argsort(kind="stable")
    offsets = np.concatenate([[0], whole.tags_lengths.cumsum()])
    tags, lengths = gather_lists(whole.tags, offsets, by_id)
    found = hashlib.blake2b()
    for array in (whole.id[by_id], whole.price[by_id], whole.label[by_id], tags, lengths):
        found.update(array.dtype.str.encode())
        found.update(np.ascontiguousarray(array))
    return found.hexdigest()
