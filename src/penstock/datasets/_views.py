"""Views: sources that are numbers into other sources, without a copy of any record."""

# ruff: noqa: SLF001 (a view asks its sources through the methods of the contract)

from __future__ import annotations

import hashlib
from abc import abstractmethod
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets._joining import joined, joined_inferred, joined_schema
from penstock.datasets._source import Location, Source
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from penstock.datasets._source import Fields

_STRETCH = 1 << 20
"""Numbers of an unsorted view that are looked at together."""


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


class Chosen(Source):
    """Some records of one source, by their numbers there; the base of `Taken`, split and where."""

    _is_sorted = False
    """Whether `ids` ascend, so that borders are found without going through all of them."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    @abstractmethod
    def ids(self) -> np.ndarray:
        """The numbers in `source`, int64[len(self)]."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the source: every record may have any of its fields."""
        return self.source.schema

    @property
    def schema_is_complete(self) -> bool:
        """Whether the schema is known to hold for every record."""
        return getattr(self.source, "schema_is_complete", False)

    @property
    def files(self) -> list[str]:
        """The files of the source, also those that no chosen record lies in."""
        return self.source.files

    @property
    def blocks(self) -> np.ndarray:
        """Where the chosen records go over from one block of the source to another."""
        return block_borders(self.ids, self.source.blocks, is_sorted=self._is_sorted)

    def location(self, which: int | np.ndarray) -> Location:
        """Return where a record lies, or each of an array of them."""
        if isinstance(which, int) or not np.ndim(which):
            return self.source.location(int(self.ids[self._number(which)]))
        return self.source.location(self.ids[self._numbers(which)])

    def raw(self, which: int) -> bytes:
        """Return a record's own bytes, where it has some."""
        return self.source.raw(int(self.ids[self._number(which)]))

    def _records(self, ids: np.ndarray) -> list[Any]:
        return self.source._records(self.ids[ids])

    def _columns(self, ids: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
        return self.source._columns(self.ids[ids], schema)

    def _inferred(self, ids: np.ndarray) -> pa.RecordBatch:
        return self.source._inferred(self.ids[ids])

    def _projected(self, ids: np.ndarray, fields: Fields) -> pa.RecordBatch:
        # The source knows its types best; a view must not make it find them out again.
        return self.source._projected(self.ids[ids], fields)


class Taken(Chosen):
    """The records of given numbers, in the given order; a number may come more than once."""

    def __init__(self, source: Source, ids: np.ndarray) -> None:
        super().__init__(source)
        # A copy, because a view that changed under its fingerprint would be a lie.
        self._ids = np.array(source._numbers(ids), np.int64)
        self._ids.flags.writeable = False

    @property
    def ids(self) -> np.ndarray:
        """The numbers in `source`, int64[len(self)]."""
        return self._ids

    @property
    def fingerprint(self) -> str:
        """A hash of the source's own and of the numbers."""
        return fingerprint_of("taken", self.source.fingerprint, self._digest)

    @cached_property
    def _digest(self) -> bytes:
        return hashlib.blake2b(self._ids.astype("<i8", copy=False).data, digest_size=16).digest()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._ids.flags.writeable = False


class Concatenated(Source):
    """The records of several sources, one source after the other."""

    def __init__(self, sources: Sequence[Source]) -> None:
        if not sources:
            raise OptionError("nothing to concatenate: give at least one source.")
        nested = (one.sources if isinstance(one, Concatenated) else [one] for one in sources)
        self.sources: list[Source] = list(chain.from_iterable(nested))
        # Fixed here: a source that grows later must not move the records of those after it.
        self.lengths = [len(one) for one in self.sources]

    @property
    def _starts(self) -> np.ndarray:
        """The number of each source's first record, and at last the length of all."""
        return np.cumsum([0, *self.lengths], dtype=np.int64)

    def __len__(self) -> int:
        return sum(self.lengths)

    @property
    def fingerprint(self) -> str:
        """A hash of the sources' own, and of all lengths that later numbers rest on."""
        prints = [one.fingerprint for one in self.sources]
        return fingerprint_of("concatenated", *prints, *map(str, self.lengths[:-1]))

    @property
    def schema(self) -> pa.Schema:
        """The narrowest schema that holds the records of every source."""
        return joined_schema([one.schema for one in self.sources], self.sources)

    @property
    def schema_is_complete(self) -> bool:
        """Whether the schema is known to hold for every record."""
        return all(getattr(one, "schema_is_complete", False) for one in self.sources)

    @property
    def files(self) -> list[str]:
        """The files of all sources, each once."""
        return list(dict.fromkeys(chain.from_iterable(one.files for one in self.sources)))

    @property
    def blocks(self) -> np.ndarray:
        """The blocks of all sources."""
        parts = [np.zeros(1, np.int64)]
        for start, length, one in zip(self._starts, self.lengths, self.sources, strict=False):
            borders = one.blocks[1:]
            borders = np.append(borders[borders < length], length) if length else borders[:0]
            parts.append(start + borders)
        return np.concatenate(parts)

    def location(self, which: int | np.ndarray) -> Location:
        """Return where a record lies, or each of an array of them."""
        if isinstance(which, int) or not np.ndim(which):
            one, number = self._of(int(which))
            return one.location(number)
        places = {path: place for place, path in enumerate(self.files)}
        parts: list[np.ndarray] = []
        ids = self._numbers(which)
        if not len(ids):
            return self.sources[0].location(ids)
        shares, back = self._shares(ids)
        for number, own in shares:
            one = self.sources[number]
            at = one.location(own)
            moved = np.array([places[path] for path in one.files], np.int64)
            numbers = (moved[at.file], at.offset, at.bytes)
            # Signed and unsigned together would make floats.
            parts.append(np.stack([np.asarray(part, np.int64) for part in numbers]))
        files, offsets, sizes = np.concatenate(parts, axis=1)[:, back]
        return Location(files, offsets, sizes)

    def raw(self, which: int) -> bytes:
        """Return a record's own bytes, where it has some."""
        one, number = self._of(which)
        return one.raw(number)

    def _of(self, which: int) -> tuple[Source, int]:
        """Return the source that a record comes from, and its number there."""
        number = self._number(which)
        place = int(np.searchsorted(self._starts, number, "right")) - 1
        return self.sources[place], number - int(self._starts[place])

    def _shares(self, ids: np.ndarray) -> tuple[list[tuple[int, np.ndarray]], np.ndarray]:
        """Return which numbers each source is asked for, and how the answers become the order.

        Sources that are not asked are left out; `answers[back]` are in the order of `ids`.
        """
        starts = self._starts
        places = np.searchsorted(starts, ids, "right") - 1
        by_source = np.argsort(places, kind="stable")
        back = np.empty_like(by_source)
        back[by_source] = np.arange(len(ids))
        asked = [(int(place), ids[places == place] - starts[place]) for place in np.unique(places)]
        return asked, back

    def _records(self, ids: np.ndarray) -> list[Any]:
        shares, back = self._shares(ids)
        parts = [self.sources[number]._records(own) for number, own in shares]
        if len(parts) <= 1:
            return parts[0] if parts else []
        records = list(chain.from_iterable(parts))
        return [records[place] for place in back.tolist()]

    def _columns(self, ids: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
        if not len(ids):
            return self.sources[0]._columns(ids, schema)
        shares, back = self._shares(ids)
        return joined([self.sources[number]._columns(own, schema) for number, own in shares], back)

    def _inferred(self, ids: np.ndarray) -> pa.RecordBatch:
        if not len(ids):
            return self.sources[0]._inferred(ids)
        shares, back = self._shares(ids)
        asked = [self.sources[number] for number, _ in shares]
        parts = [self.sources[number]._inferred(own) for number, own in shares]
        return joined_inferred(parts, back, asked)


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
