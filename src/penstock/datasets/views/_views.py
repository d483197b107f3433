"""Views: sources that are numbers into other sources, without a copy of any record."""

# ruff: noqa: SLF001 (a view asks its sources through the methods of the contract)

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator
from copy import copy
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from penstock.datasets._source import Location, Source
from penstock.errors import CorruptIndexError
from penstock.storage import cache_directory

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.datasets._source import Fields


_STRETCH = 1 << 20
"""Numbers of an unsorted view whose blocks are compared together."""


def fingerprint_of(kind: str, *parts: str | bytes) -> str:
    """Return a hash of what a view is and of what it is made from.

    >>> fingerprint_of("taken", "a", b"b") == fingerprint_of("taken", "ab")
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in (kind, *parts):
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def origins_of(source: Source) -> list[Source]:
    """Return the sources that the records of a view lie in."""
    found: list[Source] = []

    def look(origin: Source) -> Source:
        found.append(origin)
        return origin

    source._over(look)
    return found


def bare_origins(source: Source) -> list[Source]:
    """Return the sources that the records of a view lie in, without their columns."""
    return [*map(attrgetter("_bare"), origins_of(source))]


class OverSource(Source):
    """The records of one other source that `_chosen` names: here all, under their own numbers."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def _chosen(self, ids: np.ndarray) -> np.ndarray:
        """Return the numbers in `source` of some records: int64."""
        return ids

    def __len__(self) -> int:
        return len(self.source)

    @property
    def fingerprint(self) -> str:
        return self.source.fingerprint

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        return self.source._past(least, most)

    def _has_finished(self, least: int, most: int) -> bool:
        return self.source._has_finished(least, most)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the source: every record may have any of its fields."""
        return self.source.schema

    @property
    def schema_is_complete(self) -> bool:
        return self.source.schema_is_complete

    @property
    def files(self) -> list[str]:
        """The files of the source, also those that no chosen record lies in."""
        return self.source.files

    @property
    def blocks(self) -> np.ndarray:
        return self.source.blocks

    def _places(self, ids: np.ndarray) -> Location:
        return self.source.location(self._chosen(ids))

    def raw(self, which: int) -> bytes:
        return self.source.raw(int(self._chosen(np.array([self._number(which)]))[0]))

    def _records(self, ids: np.ndarray) -> list[Any]:
        return self.source._records(self._chosen(ids))

    def _columns(self, ids: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
        return self.source._columns(self._chosen(ids), schema)

    def _inferred(self, ids: np.ndarray) -> pa.RecordBatch:
        return self.source._inferred(self._chosen(ids))

    def _projected(self, ids: np.ndarray, fields: Fields) -> pa.RecordBatch:
        # The source knows its types best; a view must not make it find them out again.
        return self.source._projected(self._chosen(ids), fields)


class Chosen(OverSource):
    """Some records of one source, by their numbers there; the base of `Taken`, split and where."""

    _is_sorted = False
    """Whether `ids` ascend, so that borders are found without going through all of them."""

    @property
    @abstractmethod
    def ids(self) -> np.ndarray:
        """The numbers in `source`, int64[len(self)]."""

    def _chosen(self, ids: np.ndarray) -> np.ndarray:
        # Numbers mapped from the cache are checked here, only those that are used.
        found: np.ndarray = self.ids[ids]
        if len(found):
            unsigned = found.view(np.uint64)  # A number below 0 is a large one here.
            if int(unsigned[unsigned.argmax()]) >= len(self.source):
                raise CorruptIndexError(
                    f"the numbers of this view are damaged: its source has {len(self.source):,} "
                    f"records. Remove {cache_directory() / 'views'}, and they are found again."
                )
        return found

    @abstractmethod
    def _fingerprint_over(self, fingerprint: str) -> str:
        """Return the fingerprint of this view when that of its source is, or was, another."""

    @property
    def fingerprint(self) -> str:
        return self._fingerprint_over(self.source.fingerprint)

    def __len__(self) -> int:
        return len(self.ids)

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        ids = self.ids
        if least > len(ids) or most < 0:
            return
        if not self._is_sorted:
            # Its numbers are given: it has them all or is not possible yet.
            first = int(ids.max()) + 1 if len(ids) else 0
            if most >= len(ids):
                for _, known in self.source._past(first, len(self.source)):
                    yield len(ids), self._fingerprint_over(known)
            return
        first = int(ids[least - 1]) + 1 if least > 0 else 0
        last = int(ids[most]) if most < len(ids) else len(self.source)
        for length, known in self.source._past(first, last):
            yield int(np.searchsorted(ids, length)), self._fingerprint_over(known)

    def _has_finished(self, least: int, most: int) -> bool:
        ids = self.ids if self._is_sorted else np.sort(self.ids)
        first = int(ids[least - 1]) + 1 if least > 0 else 0
        return self.source._has_finished(
            first, int(ids[most]) if most < len(ids) else len(self.source)
        )

    @property
    def blocks(self) -> np.ndarray:
        """Where the chosen records go over from one block of the source to another."""
        return block_borders(self.ids, self.source.blocks, is_sorted=self._is_sorted)

    def by_blocks(self) -> Self:
        return self._over(lambda origin: origin.by_blocks())

    def _over(self, change: Callable[[Source], Source]) -> Self:
        source = self.source._over(change)
        if source is self.source:
            return self
        view = copy(self)
        view.source = source
        return view

    @property
    def _has_columns(self) -> bool:
        return self.source._has_columns


class Taken(Chosen):
    """The records of given numbers, in the given order; a number may come more than once."""

    def __init__(self, source: Source, ids: np.ndarray) -> None:
        super().__init__(source)
        # A copy, because a view that changed under its fingerprint would be a lie.
        self._ids = np.array(source._numbers(ids), np.int64)
        self._ids.flags.writeable = False

    @property
    def ids(self) -> np.ndarray:
        return self._ids

    def _fingerprint_over(self, fingerprint: str) -> str:
        return fingerprint_of("taken", fingerprint, self._digest)

    @cached_property
    def _digest(self) -> bytes:
        return hashlib.blake2b(self._ids.astype("<i8", copy=False).data, digest_size=16).digest()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._ids.flags.writeable = False


def block_borders(ids: np.ndarray, blocks: np.ndarray, *, is_sorted: bool) -> np.ndarray:
    """Return the offsets in `ids` at which another of `blocks` begins, first 0, last the length.

    >>> import numpy as np
    >>> block_borders(np.array([0, 1, 5, 6, 9]), np.array([0, 5, 8, 10]), is_sorted=True).tolist()
    [0, 2, 4, 5]
    >>> block_borders(np.array([9, 8, 1]), np.array([0, 5, 8, 10]), is_sorted=False).tolist()
    [0, 2, 3]
    """
    if not len(ids):
        return np.zeros(1, np.int64)
    if is_sorted:
        return np.unique(np.searchsorted(ids, blocks)).astype(np.int64)
    parts = [np.zeros(1, np.int64)]
    last = None
    for start in range(0, len(ids), _STRETCH):
        inside = np.searchsorted(blocks, ids[start : start + _STRETCH], "right")
        if last is not None and inside[0] != last:
            parts.append(np.array([start]))
        parts.append(start + 1 + np.flatnonzero(np.diff(inside)))
        last = inside[-1]
    return np.concatenate([*parts, np.array([len(ids)])])
