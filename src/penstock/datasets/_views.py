"""Views: sources that are numbers into other sources, without a copy of any record."""

# ruff: noqa: SLF001 (a view asks its sources through the methods of the contract)

from __future__ import annotations

import hashlib
from abc import abstractmethod
from copy import copy
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets._borders import block_borders
from penstock.datasets._joining import joined, joined_inferred, joined_schema
from penstock.datasets._source import Location, Source
from penstock.errors import CorruptIndexError, OptionError
from penstock.storage import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    import pyarrow as pa

    from penstock.datasets._source import Fields


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

    def _chosen(self, ids: np.ndarray) -> np.ndarray:
        """Return the numbers in `source` of some records of the view: int64.

        They may come from a file in the cache, of which only these are read and checked.
        """
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
        """A hash of the source's own and of what is chosen."""
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

    @property
    def schema(self) -> pa.Schema:
        """The schema of the source: every record may have any of its fields."""
        return self.source.schema

    @property
    def schema_is_complete(self) -> bool:
        """Whether the schema is known to hold for every record."""
        return self.source.schema_is_complete

    @property
    def files(self) -> list[str]:
        """The files of the source, also those that no chosen record lies in."""
        return self.source.files

    @property
    def blocks(self) -> np.ndarray:
        """Where the chosen records go over from one block of the source to another."""
        return block_borders(self.ids, self.source.blocks, is_sorted=self._is_sorted)

    def by_blocks(self) -> Self:
        """Return the same records, of a source that is read by blocks."""
        return self._over(lambda origin: origin.by_blocks())

    def _over(self, change: Callable[[Source], Source]) -> Self:
        source = self.source._over(change)
        if source is self.source:
            return self
        view = copy(self)
        view.source = source
        return view

    def location(self, which: int | np.ndarray) -> Location:
        """Return where a record lies, or each of an array of them."""
        if isinstance(which, int) or not np.ndim(which):
            return self.source.location(int(self._chosen(np.array([self._number(which)]))[0]))
        return self.source.location(self._chosen(self._numbers(which)))

    def raw(self, which: int) -> bytes:
        """Return a record's own bytes, where it has some."""
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

    def _fingerprint_over(self, fingerprint: str) -> str:
        return fingerprint_of("taken", fingerprint, self._digest)

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
        self.sizes = [len(one) for one in self.sources]

    @property
    def _starts(self) -> np.ndarray:
        """The number of each source's first record, and at last the length of all."""
        return np.cumsum([0, *self.sizes], dtype=np.int64)

    def __len__(self) -> int:
        return sum(self.sizes)

    @property
    def fingerprint(self) -> str:
        """A hash of the sources' own, and of all lengths that later numbers rest on."""
        return self._fingerprint_over(self.sources[-1].fingerprint)

    def _fingerprint_over(self, last: str) -> str:
        """Return the fingerprint when that of the last source is, or was, this one."""
        prints = [*(one.fingerprint for one in self.sources[:-1]), last]
        return fingerprint_of("concatenated", *prints, *map(str, self.sizes[:-1]))

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        # Where another than the last source grew, the records after it have other numbers.
        *_, start, end = self._starts.tolist()
        for length, known in self.sources[-1]._past(least - start, min(most, end) - start):
            yield start + length, self._fingerprint_over(known)

    @property
    def schema(self) -> pa.Schema:
        """The narrowest schema that holds the records of every source."""
        return joined_schema([one.schema for one in self.sources], self.sources)

    @property
    def schema_is_complete(self) -> bool:
        """Whether the schema is known to hold for every record."""
        return all(one.schema_is_complete for one in self.sources)

    @property
    def files(self) -> list[str]:
        """The files of all sources, each once."""
        return list(dict.fromkeys(chain.from_iterable(one.files for one in self.sources)))

    @property
    def blocks(self) -> np.ndarray:
        """The blocks of all sources."""
        parts = [np.zeros(1, np.int64)]
        for start, length, one in zip(self._starts, self.sizes, self.sources, strict=False):
            borders = one.blocks[1:]
            borders = np.append(borders[borders < length], length) if length else borders[:0]
            parts.append(start + borders)
        return np.concatenate(parts)

    def by_blocks(self) -> Concatenated:
        """Return the same records, of sources that are read by blocks."""
        return self._over(lambda origin: origin.by_blocks())

    def _over(self, change: Callable[[Source], Source]) -> Concatenated:
        sources = [one._over(change) for one in self.sources]
        if all(new is old for new, old in zip(sources, self.sources, strict=True)):
            return self
        view = copy(self)
        view.sources = sources
        return view

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

    def _projected(self, ids: np.ndarray, fields: Fields) -> pa.RecordBatch:
        from penstock.datasets.columns._materialized import gathered_apart  # noqa: PLC0415 (built on views)

        batch = gathered_apart(self, ids, fields)
        return super()._projected(ids, fields) if batch is None else batch

    def _inferred(self, ids: np.ndarray) -> pa.RecordBatch:
        if not len(ids):
            return self.sources[0]._inferred(ids)
        shares, back = self._shares(ids)
        asked = [self.sources[number] for number, _ in shares]
        parts = [self.sources[number]._inferred(own) for number, own in shares]
        return joined_inferred(parts, back, asked)
