"""Records of a source, shared out over ranks and workers: by files, chunks or single records."""

from __future__ import annotations

import heapq
import logging
import math
from hashlib import sha256
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.datasets import Stream, fingerprint_of
from penstock.errors import PenstockError
from penstock.lightning._options import ShardingStrategy
from penstock.order import keys, mixed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.datasets import Source, TorchWorker

    Numbers = NDArray[np.int64]

_log = logging.getLogger("penstock.lightning")

CHUNK = 4096
"""Records of a chunk, where nothing else is said."""
_PIECE = 1 << 16
"""Record numbers that are made together."""
_SPREAD = 4
"""Chunks for each worker, where a frame has fewer than that."""


class SourceUnit(NamedTuple):
    """Records that one worker reads: ranges of record numbers, or draws."""

    key: str
    """Says who owns it where that depends on names."""
    ranges: tuple[tuple[int, int], ...]
    step: int = 1
    """Takes each so-manieth record of a range."""
    draw: tuple[int, int] | None = None
    """The seed and the number of the first of as many draws over the range of all records."""

    @property
    def size(self) -> int:
        return sum(-(-(stop - start) // self.step) for start, stop in self.ranges)


class Named(NamedTuple):
    """A part of a source with a name of its own: a file, or a whole frame."""

    name: str
    ranges: tuple[tuple[int, int], ...]

    def rows(self) -> list[int]:
        """Return the row of the part with which each range begins."""
        return [0, *accumulate(stop - start for start, stop in self.ranges)][:-1]


def files_of(source: Source) -> list[Named]:
    """Return the files of a source with the numbers of their records."""
    blocks = np.asarray(source.blocks)
    if len(blocks) < 2:  # noqa: PLR2004 (no records)
        return []
    files = np.asarray(source.location(blocks[:-1]).file)
    # Lines that were appended to a file lie behind the records of later files.
    edges = np.flatnonzero(np.diff(files, prepend=-1))
    starts = blocks[edges].tolist()
    found: dict[int, list[tuple[int, int]]] = {}
    for at, start, stop in zip(edges, starts, [*starts[1:], len(source)], strict=True):
        found.setdefault(int(files[at]), []).append((start, stop))
    names = source.files
    return [Named(names[number], tuple(ranges)) for number, ranges in sorted(found.items())]


class FileRows:
    """The files of record numbers, and their rows there."""

    def __init__(self, parts: Sequence[Named]) -> None:
        runs = sorted(
            (start, row, part.name)
            for part in parts
            for (start, _), row in zip(part.ranges, part.rows(), strict=True)
        )
        self._starts = np.array([start for start, _, _ in runs], np.int64)
        self._rows = np.array([row for _, row, _ in runs], np.int64)
        self._names = [name for _, _, name in runs]

    def of(self, numbers: Numbers) -> tuple[list[str], list[int]]:
        """Return the file of each record, and its row."""
        runs = np.searchsorted(self._starts, numbers, side="right") - 1
        rows = self._rows[runs] + numbers - self._starts[runs]
        return [self._names[run] for run in runs.tolist()], rows.tolist()


def shared_units(
    parts: Sequence[Named], sharding: ShardingStrategy, chunk: int, count: int, *, by_hash: bool
) -> list[SourceUnit]:
    """Return the units of parts; `count` readers share single records."""
    if sharding is ShardingStrategy.file:
        return [SourceUnit(_key("file", part.name), part.ranges) for part in parts]
    if sharding is ShardingStrategy.chunk:
        return [
            SourceUnit(_key("chunk", part.name, number), ranges)
            for part in parts
            for number, ranges in enumerate(_chunks(part.ranges, chunk))
        ]
    if by_hash:
        return _hashed_shares(parts, count)
    return [
        SourceUnit(f"share:{share}", ((start + share, stop),), count)
        for part in parts
        for start, stop in part.ranges
        for share in range(min(count, stop - start))
    ]


def _hashed_shares(parts: Sequence[Named], count: int) -> list[SourceUnit]:
    """Return a unit for each reader, with the records that it owns by their hashes."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for part in parts:
        numbers = (number for start, stop in part.ranges for number in range(start, stop))
        for row, number in enumerate(numbers):
            owner = hashed_owner(_key("record", part.name, row), count)
            found[owner].append((number, number + 1))
    return [SourceUnit(f"share:{share}", tuple(own)) for share, own in enumerate(found) if own]


def _key(kind: str, name: str, *number: int) -> str:
    """Return the name of an item, as json2vec hashes it; a frame has none."""
    own = ":".join(map(str, number))
    if name:
        return f"{kind}:{name}:{own}" if own else f"{kind}:{name}"
    return f"dataframe:{kind}:{own}" if own else "dataframe:0"


def _chunks(ranges: Sequence[tuple[int, int]], size: int) -> Iterator[tuple[tuple[int, int], ...]]:
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


def balanced_owners(sizes: Sequence[int], count: int) -> list[int]:
    """Return which reader has each item: the largest first, each to the one with least.

    >>> balanced_owners([5, 1, 4, 1, 1], 2)
    [0, 1, 1, 0, 1]
    """
    owners = [0] * len(sizes)
    loads = [(0, reader) for reader in range(count)]
    for item in sorted(range(len(sizes)), key=lambda one: (-sizes[one], one)):
        load, reader = heapq.heappop(loads)
        owners[item] = reader
        heapq.heappush(loads, (load + sizes[item], reader))
    return owners


class SharedRecords(Stream):
    """The records of a source in units, each of which one worker of one rank reads."""

    is_permuted = False
    by_hash = False
    """Whether owners depend on the keys of units alone."""
    skips_bad = False
    """Whether records that cannot be read are left out where a preprocessor needs them."""

    def __init__(self, source: Source, units: Any, *, of_records: bool = False) -> None:
        """Share out units: a list, or a callable with a parameter `epoch`."""
        super().__init__(units, None)
        self.source = source
        self._of_records = of_records

    def fingerprint(self, count: int | None = None) -> str:
        """Return a hash of the units and of the records of the source."""
        own = "" if self.source is None else self.source.fingerprint
        return fingerprint_of("shared", own, super().fingerprint(count))

    def owners(self, world_size: int, lanes: int) -> Numbers:
        count = world_size * lanes
        if self._of_records:
            found = [int(unit.key.partition(":")[2]) % count for unit in self.units]
        elif self.by_hash:
            found = [hashed_owner(unit.key, count) for unit in self.units]
        else:
            found = balanced_owners([unit.size for unit in self.units], count)
        return np.array(found, np.int64)

    def opened(self, number: int, start: int, worker: TorchWorker | None) -> Iterator[Numbers]:
        del worker
        unit = self.units[number]
        for begin, end, step in ((*one, unit.step) for one in unit.ranges):
            size = -(-(end - begin) // step)
            skipped = min(start, size)
            start -= skipped
            for first in range(skipped, size, _PIECE):
                at = np.arange(first, min(first + _PIECE, size))
                yield begin + at * step if unit.draw is None else _drawn(unit.draw, at, len(self))

    def __len__(self) -> int:
        return 0 if self.source is None else len(self.source)

    def records(self, numbers: Numbers) -> list[Any]:
        if not self.skips_bad:
            return super().records(numbers)
        try:
            return super().records(numbers)
        except PenstockError:
            return [self._record(number) for number in numbers.tolist()]

    def _record(self, number: int) -> Any:
        try:
            return super().records(np.array([number]))[0]
        except PenstockError as why:
            _log.warning("record %d is left out: %s", number, why)
            return None

    def unit_name(self, number: int) -> str:
        return str(self.units[number].key)


def _drawn(draw: tuple[int, int], at: Numbers, records: int) -> Numbers:
    """Return records drawn with replacement, the same for the same numbers of draws."""
    seed, first = draw
    (key,) = keys("row draw", seed)
    drawn = mixed((first + at).astype(np.uint64), key)
    # The high bits of a product: each record is as likely as any other to one part in 2³².
    return ((drawn >> np.uint64(32)) * np.uint64(records) >> np.uint64(32)).astype(np.int64)


class EpochUnits:
    """The units of an epoch: shuffled by a buffer, or drawn with replacement."""

    def __init__(
        self, units: Sequence[SourceUnit], seed: int, *, buffer: int = 1, replacement: bool = False
    ) -> None:
        self._units, self._seed, self._buffer = list(units), seed, buffer
        self._replacement = replacement

    def __call__(self, epoch: int) -> list[SourceUnit]:
        if self._replacement:
            return self._draws(epoch)
        return [
            self._units[one] for one in buffered(len(self._units), self._buffer, self._seed, epoch)
        ]

    def _draws(self, epoch: int) -> list[SourceUnit]:
        """Return as many units as there are, each drawn in proportion to its records."""
        sizes = np.cumsum([unit.size for unit in self._units])
        (key,) = keys("unit draw", self._seed, epoch)
        numbers = np.arange(len(self._units), dtype=np.uint64)
        at = (mixed(numbers, key) % np.uint64(sizes[-1])).astype(np.int64)
        chosen = np.searchsorted(sizes, at, side="right").tolist()
        return [self._units[one]._replace(key=f"draw:{n}") for n, one in enumerate(chosen)]


class RowDraws:
    """Units of an epoch that draw single records of a whole frame with replacement."""

    def __init__(self, records: int, chunk: int, seed: int) -> None:
        self._records, self._chunk, self._seed = records, chunk, seed

    def __call__(self, epoch: int) -> list[SourceUnit]:
        (seed,) = keys("row draws", self._seed, epoch)
        return [
            SourceUnit(
                f"draw:{start}",
                ((start, min(start + self._chunk, self._records)),),
                1,
                (seed, start),
            )
            for start in range(0, self._records, self._chunk)
        ]


def buffered(count: int, size: int, seed: int, epoch: int) -> list[int]:
    """Return numbers below `count` in the order of a shuffle buffer of `size`."""
    if size == 1:
        return list(range(count))
    (key,) = keys("file order", seed, epoch)
    drawn = mixed(np.arange(count, dtype=np.uint64), key).tolist()
    held: list[int] = []
    found = []
    for number in range(count):
        held.append(number)
        if len(held) == size:
            found.append(held.pop(drawn[number] % size))
    while held:
        found.append(held.pop(drawn[len(found)] % len(held)))
    return found


def steps_of(stream: SharedRecords, batch_size: int, world_size: int, lanes: int) -> list[int]:
    """Return how many batches each rank has: each of its lanes ends with a short one."""
    sizes = [0] * (world_size * lanes)
    for unit, owner in zip(stream.units, stream.owners(world_size, lanes).tolist(), strict=True):
        sizes[owner] += unit.size
    batches = [math.ceil(size / batch_size) for size in sizes]
    return [sum(batches[rank * lanes : (rank + 1) * lanes]) for rank in range(world_size)]
