"""Several sources as one, records of one after those of the other."""

# ruff: noqa: SLF001 (a view asks its sources through the methods of the contract)

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.datasets._join_batches import joined, joined_inferred, joined_schema
from penstock.datasets._projection import typed_schema
from penstock.datasets._source import Location, Source
from penstock.datasets.fields._paths import steps_of
from penstock.datasets.views._views import fingerprint_of
from penstock.errors import OptionError

if TYPE_CHECKING:
    from penstock.datasets._source import Fields


def schema_of(source: Source, paths: Collection[str]) -> pa.Schema:
    """Return the schema of a source, with at least the fields that paths lead to.

    Where several sources are one, other fields may have types that no type holds.
    """
    if not isinstance(source, Concatenated):
        return source.schema
    roots = {str(steps_of(path)[0]) for path in paths}.union(paths)
    schemas = (schema_of(one, roots) for one in source.sources)
    kept = [pa.schema([field for field in one if field.name in roots]) for one in schemas]
    return joined_schema(kept, source.labels(), declared=source.has_declared)


class Concatenated(Source):
    """The records of several sources, one source after the other; with names, of a mixture."""

    def __init__(self, sources: Sequence[Source], names: Sequence[str] = ()) -> None:
        if not sources:
            raise OptionError("nothing to concatenate: give at least one source.")
        self.names = list(names)
        nested = (
            one.sources if isinstance(one, Concatenated) and not names else [one] for one in sources
        )
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
        return self._fingerprint_over(_fingerprint_at(self.sources[-1], self.sizes[-1]))

    def _fingerprint_over(self, last: str) -> str:
        """Return the fingerprint when that of the last source is, or was, this one."""
        parts = zip(self.sources[:-1], self.sizes[:-1], strict=True)
        prints = [*(_fingerprint_at(*part) for part in parts), last]
        return fingerprint_of("concatenated", *prints, *map(str, self.sizes[:-1]))

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        # Where another than the last source grew, the records after it have other numbers.
        *_, start, end = self._starts.tolist()
        for length, known in self.sources[-1]._past(least - start, min(most, end) - start):
            yield start + length, self._fingerprint_over(known)

    def _has_finished(self, least: int, most: int) -> bool:
        *_, start, end = self._starts.tolist()
        if self.sources[-1]._has_finished(least - start, min(most, end) - start):
            return True
        parts = zip(self.sources[:-1], self.sizes[:-1], strict=True)
        return any(source._has_finished(size, size) for source, size in parts)

    def cut(self, sizes: Sequence[int]) -> Concatenated:
        """Return the first records of each source, as they were before sources grew."""
        view = copy(self)
        view.sizes = list(sizes)
        return view

    @property
    def schema(self) -> pa.Schema:
        """The narrowest schema that holds the records of every source."""
        schemas = [one.schema for one in self.sources]
        return joined_schema(schemas, self.labels(), declared=self.has_declared)

    def labels(self) -> list[str]:
        """Return what errors call each source."""
        if self.names:
            return [f"source {name!r}" for name in self.names]
        return [_label(one) for one in self.sources]

    @property
    def schema_is_complete(self) -> bool:
        return all(one.schema_is_complete for one in self.sources)

    @property
    def has_declared(self) -> bool:
        """Whether a source knows the types of all its records."""
        return any(one.schema_is_complete for one in self.sources)

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(chain.from_iterable(one.files for one in self.sources)))

    @property
    def blocks(self) -> np.ndarray:
        parts = [np.zeros(1, np.int64)]
        for start, length, one in zip(self._starts, self.sizes, self.sources, strict=False):
            borders = one.blocks[1:]
            borders = np.append(borders[borders < length], length) if length else borders[:0]
            parts.append(start + borders)
        return np.concatenate(parts)

    def by_blocks(self) -> Concatenated:
        return self._over(lambda origin: origin.by_blocks())

    def _over(self, change: Callable[[Source], Source]) -> Concatenated:
        sources = [one._over(change) for one in self.sources]
        if all(new is old for new, old in zip(sources, self.sources, strict=True)):
            return self
        view = copy(self)
        view.sources = sources
        return view

    @property
    def _has_columns(self) -> bool:
        return any(one._has_columns for one in self.sources)

    def _places(self, ids: np.ndarray) -> Location:
        places = {path: place for place, path in enumerate(self.files)}
        parts: list[np.ndarray] = []
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
        ((place, own),), _ = self._shares(np.array([self._number(which)]))
        return self.sources[place].raw(int(own[0]))

    def _shares(self, ids: np.ndarray) -> tuple[list[tuple[int, np.ndarray]], np.ndarray]:
        """Return which numbers each source is asked for, and how the answers become the order.

        Sources that are not asked are left out; `answers[back]` are in the order of `ids`.
        Without numbers the first source is asked: it knows of which types nothing is.
        """
        starts = self._starts
        places = np.searchsorted(starts, ids, "right") - 1
        by_source = np.argsort(places, kind="stable")
        back = np.empty_like(by_source)
        back[by_source] = np.arange(len(ids))
        asked = [(int(place), ids[places == place] - starts[place]) for place in np.unique(places)]
        return asked or [(0, ids)], back

    def _records(self, ids: np.ndarray) -> list[Any]:
        shares, back = self._shares(ids)
        parts = (self.sources[number]._records(own) for number, own in shares)
        records = list(chain.from_iterable(parts))
        return [records[place] for place in back.tolist()]

    def _columns(self, ids: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
        shares, back = self._shares(ids)
        return joined([self.sources[number]._columns(own, schema) for number, own in shares], back)

    def _projected(self, ids: np.ndarray, fields: Fields) -> pa.RecordBatch:
        schema = typed_schema(fields) if self._has_columns else None
        if schema is None or not all(map(self._means_one_thing, schema.names)):
            return super()._projected(ids, fields)
        # Each source gathers its share from its own columns.
        shares, back = self._shares(ids)
        return joined(
            [self.sources[number]._projected(own, schema) for number, own in shares], back
        )

    def _means_one_thing(self, path: str) -> bool:
        """Whether a field is a name in all sources, or a path in all of them."""
        return len(steps_of(path)) == 1 or len({path in s.schema.names for s in self.sources}) == 1

    def _inferred(self, ids: np.ndarray) -> pa.RecordBatch:
        shares, back = self._shares(ids)
        labels = [self.labels()[number] for number, _ in shares]
        parts = [self.sources[number]._inferred(own) for number, own in shares]
        return joined_inferred(parts, back, labels, declared=self.has_declared)


def _label(source: Source) -> str:
    files = source.files
    more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
    return f"{type(source).__name__} of {files[0]}{more}" if files else type(source).__name__


def _fingerprint_at(source: Source, length: int) -> str:
    """Return the fingerprint that a source has, or had with so many records if that is known."""
    if length == len(source):
        return source.fingerprint
    return next((known for _, known in source._past(length, length)), source.fingerprint)
