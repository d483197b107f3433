"""The units of an epoch: files, chunks, single records, or draws with replacement."""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.lightning._options import ShardingStrategy
from penstock.order import keys, mixed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.lightning._shares import SourcePart

    Ranges = tuple[tuple[int, int], ...]
    """Record numbers from start to stop."""

CHUNK = 4096
"""Records of a chunk, where nothing else is said."""
_PIECE = 1 << 16
"""Record numbers that are made together."""
_SPREAD = 4
"""Chunks for each worker, where a frame has fewer than that."""
_PLACES = 8
"""Where a reader may begin in a file that can only be read from its beginning."""


class SourceUnit(NamedTuple):
    """Records that one worker reads: ranges of record numbers, or draws."""

    key: str
    """Says who owns it where that depends on names."""
    ranges: Ranges
    step: int = 1
    """Takes every `step`-th record of a range."""
    share: int | None = None
    """The number of the reader that it was made for; None where any reader may own it."""
    draw: int | None = None
    """The key of as many draws over all records; their numbers are the ranges."""
    numbers: NDArray[np.int64] | None = None
    """Record numbers in place of ranges."""

    @property
    def size(self) -> int:
        if self.numbers is not None:
            return len(self.numbers)
        return sum(-(-(stop - start) // self.step) for start, stop in self.ranges)

    def pieces(self, start: int) -> Iterator[NDArray[np.int64]]:
        """Yield the numbers of its records, or draws, from the one at `start` on."""
        if self.numbers is not None:
            yield self.numbers[start:]
        for begin, end in self.ranges:
            size = -(-(end - begin) // self.step)
            skipped = min(start, size)
            start -= skipped
            for first in range(skipped, size, _PIECE):
                yield begin + np.arange(first, min(first + _PIECE, size)) * self.step


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """The units of each epoch: records that one worker reads, in the order in which it does."""

    parts: tuple[SourcePart, ...]
    sharding: ShardingStrategy
    chunk: int
    """Records of a chunk."""
    readers: int
    """Workers of all ranks, between which single records and draws are divided."""
    seed: int
    by_hash: bool = False
    """Whether owners depend on names alone."""
    names_chunks: bool = False
    """Whether a record is named by its chunk and its row there, as in json2vec's Arrow files."""
    buffer: int = 1
    """Parts that a shuffle of their order draws from."""
    replacement: bool = False
    begun: tuple[int, int] | None = None
    """An epoch that began before a resume, with another number of readers, and that number."""

    @property
    def changes(self) -> bool:
        """Whether epochs differ."""
        return self.replacement or self.buffer > 1 or self.begun is not None

    def readers_at(self, epoch: int) -> int:
        return self.begun[1] if self.begun and self.begun[0] == epoch else self.readers

    def kept(self, epoch: int, **more: Any) -> dict[str, Any]:
        """Return what a position in an epoch keeps, so that it goes on with the same units."""
        return {"chunk": self.chunk, "readers": self.readers_at(epoch), **more}

    def __call__(self, epoch: int) -> list[SourceUnit]:
        readers = self.readers_at(epoch)
        if self.replacement:
            return self._draws(epoch, readers)
        parts = [
            self.parts[one] for one in buffered(len(self.parts), self.buffer, self.seed, epoch)
        ]
        if self.sharding is ShardingStrategy.file:
            return [SourceUnit(_key("file", part.name), part.ranges) for part in parts]
        if self.sharding is ShardingStrategy.chunk:
            return _chunk_units(parts, self.chunk)
        if self.by_hash:
            return self._hashed_shares(parts, readers)
        # Records go round by their numbers: none of the readers gets the first one of each file.
        return [
            SourceUnit(f"share:{share}", ((first, stop),), readers, share)
            for part in parts
            for start, stop in part.ranges
            for share in range(readers)
            if (first := start + (share - start) % readers) < stop
        ]

    def _draws(self, epoch: int, readers: int) -> list[SourceUnit]:
        """Return for each reader draws of as many records as there are, divided by the readers."""
        total = sum(stop - start for part in self.parts for start, stop in part.ranges)
        edges = [total * reader // readers for reader in range(readers + 1)]
        if is_frame(self.parts):
            (key,) = keys("row draws", self.seed, epoch)
            return [
                SourceUnit(f"draw:{share}", (edge,), 1, share, key)
                for share, edge in enumerate(pairwise(edges))
                if edge[0] < edge[1]
            ]
        pool = _Pool.of(self.parts, self.chunk)
        return [
            unit
            for share, (start, stop) in enumerate(pairwise(edges))
            for unit in pool.drawn(stop - start, (self.seed, epoch), share, readers)
        ]

    def _hashed_shares(self, parts: Sequence[SourcePart], count: int) -> list[SourceUnit]:
        """Return a unit for each reader, with the records that it owns by their hashes."""
        numbers, owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for part in parts:
            own = np.concatenate([np.arange(start, stop) for start, stop in part.ranges])
            rows = range(len(own))
            names = (divmod(row, self.chunk) if self.names_chunks else (row,) for row in rows)
            hashed = (hashed_owner(_key("record", part.name, *name), count) for name in names)
            numbers.append(own)
            owners.append(np.fromiter(hashed, np.int64, len(own)))
        records, owner = np.concatenate(numbers), np.concatenate(owners)
        shares = (records[owner == share] for share in range(count))
        return [
            SourceUnit(f"share:{share}", (), share=share, numbers=own)
            for share, own in enumerate(shares)
            if len(own)
        ]


class _Pool(NamedTuple):
    """Units to draw from."""

    units: list[SourceUnit]
    ends: NDArray[np.int64]
    """How many records they have up to each."""
    forward: int
    """The first units are so many files that can only be read from their beginning."""

    @classmethod
    def of(cls, parts: Sequence[SourcePart], chunk: int) -> _Pool:
        whole = [SourceUnit(part.name, part.ranges) for part in parts if part.is_forward]
        units = [*whole, *_chunk_units([part for part in parts if not part.is_forward], chunk)]
        ends = np.cumsum([unit.size for unit in units], dtype=np.int64)
        return cls(units, ends, len(whole))

    def drawn(
        self, count: int, salt: tuple[int, int], share: int, readers: int
    ) -> Iterator[SourceUnit]:
        """Yield units drawn with replacement for a reader, of `count` records in all.

        Every record is equally likely at every place: the first unit is drawn by its size and
        begins at any of its records, each further one is drawn as often as any other, and the last
        is cut off. A file that can only be read from its beginning refuses ever new places to begin
        at: each reader has a few of its own there.
        """
        (key,) = keys("unit draw", *salt, share)
        number = 0
        while count > 0:
            draw = int(mixed(np.array([number], np.uint64), key)[0])
            one, skipped = draw % len(self.units), 0
            if not number:
                place = draw % int(self.ends[-1])
                one = int(np.searchsorted(self.ends, place, side="right"))
                skipped = place - int(self.ends[one]) + self.units[one].size
                if one < self.forward:
                    size = self.units[one].size
                    which = skipped * _PLACES // size * readers + share
                    skipped = size * which // (_PLACES * readers)
            unit = self.units[one]
            yield unit._replace(ranges=_cut(unit.ranges, skipped, count), share=share)
            count -= unit.size - skipped
            number += 1


def _cut(ranges: Ranges, skipped: int, count: int) -> Ranges:
    """Return the next `count` records of ranges, behind those that are skipped."""
    found = []
    for start, stop in ranges:
        first = min(start + skipped, stop)
        skipped -= first - start
        last = min(first + count, stop)
        count -= last - first
        if first < last:
            found.append((first, last))
    return tuple(found)


def _chunk_units(parts: Sequence[SourcePart], size: int) -> list[SourceUnit]:
    return [
        SourceUnit(_key("chunk", part.name, number), ranges)
        for part in parts
        for number, ranges in enumerate(_chunks(part.ranges, size))
    ]


def is_frame(parts: Sequence[SourcePart]) -> bool:
    """Whether the parts of a source are one frame, which has no name."""
    return [part.name for part in parts] == [""]


def _key(kind: str, name: str, *number: int) -> str:
    """Return the name of an item, as json2vec hashes it; a frame has none."""
    own = ":".join(map(str, number))
    if name:
        return f"{kind}:{name}:{own}" if own else f"{kind}:{name}"
    return f"dataframe:{kind}:{own}" if own else "dataframe:0"


def _chunks(ranges: Ranges, size: int) -> Iterator[Ranges]:
    """Yield chunks of a part: of so many records each, counted over all of its ranges."""
    found: list[tuple[int, int]] = []
    room = size
    for begin, stop in ranges:
        start = begin
        while start < stop:
            taken = min(room, stop - start)
            found.append((start, start + taken))
            start, room = start + taken, room - taken
            if not room:
                yield tuple(found)
                found, room = [], size
    if found:
        yield tuple(found)


def spread_chunk(records: int, readers: int) -> int:
    """Return a size of chunks that gives every reader some of a frame."""
    return max(1, min(CHUNK, math.ceil(records / (_SPREAD * readers))))


def hashed_owner(key: str, count: int) -> int:
    """Return which of so many readers has an item, as json2vec decides it.

    >>> hashed_owner("file:a.jsonl", 4)
    2
    """
    return int.from_bytes(sha256(key.encode()).digest()[:8], "big") % count if count > 1 else 0


def buffered(count: int, size: int, seed: int, epoch: int) -> list[int]:
    """Return numbers below `count` in the order of a shuffle buffer of `size`."""
    (key,) = keys("file order", seed, epoch)
    drawn = mixed(np.arange(count, dtype=np.uint64), key).tolist()
    held = list(range(min(size, count)))
    found: list[int] = []
    for number in range(len(held), count + len(held)):
        found.append(held.pop(drawn[len(found)] % len(held)))
        if number < count:
            held.append(number)
    return found
