"""Records of a source, shared out over ranks and workers: by files, chunks or single records."""

from __future__ import annotations

import heapq
import logging
import math
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock._words import warn_once
from penstock.datasets import Stream, fingerprint_of, origins_of, own_numbers, record_place
from penstock.decode import JSON_NAMES, OF_A_RECORD, read_around_bad
from penstock.errors import CorruptFileError, MalformedLineError
from penstock.lightning._units import hashed_owner
from penstock.order import mixed
from penstock.storage import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.datasets import Source, TorchWorker
    from penstock.lightning._units import Ranges, UnitPlan

    Numbers = NDArray[np.int64]

_log = logging.getLogger("penstock.lightning")

_TRIED = 1 << 10
"""Records that are read together to find one that is not bad."""


class SourcePart(NamedTuple):
    """A part of a source with a name of its own: a file, or a whole frame."""

    name: str
    ranges: Ranges
    is_forward: bool = False
    """Whether it is a file that can only be read from its beginning."""

    def rows(self) -> list[int]:
        """Return the row of the part with which each range begins."""
        return [0, *accumulate(stop - start for start, stop in self.ranges)][:-1]


def files_of(source: Source) -> list[SourcePart]:
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
    forward = {one.files[at] for one in origins_of(source) for at in one.stream_files}
    return [
        SourcePart(names[number], tuple(ranges), names[number] in forward)
        for number, ranges in sorted(found.items())
    ]


class FileRows:
    """The files of records, and their rows there."""

    def __init__(self, parts: Sequence[SourcePart]) -> None:
        runs = sorted(
            (start, row, part.name)
            for part in parts
            for (start, _), row in zip(part.ranges, part.rows(), strict=True)
        )
        self._starts = np.array([start for start, _, _ in runs], np.int64)
        self._rows = np.array([row for _, row, _ in runs], np.int64)
        self._names = [name or None for _, _, name in runs]

    def __call__(self, ids: Numbers) -> tuple[list[str | None], list[int]]:
        """Return the file of each record, by its id in batches, and its row; a frame is no file."""
        numbers = own_numbers(ids)
        runs = np.searchsorted(self._starts, numbers, side="right") - 1
        rows = self._rows[runs] + numbers - self._starts[runs]
        return [self._names[run] for run in runs.tolist()], rows.tolist()


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
    is_held = False
    """Whether records are read as soon as their numbers come, and kept: in rising order."""
    skips_bad = False
    """Whether records that cannot be read are left out where they are needed as a whole."""

    def __init__(self, source: Source, plan: UnitPlan) -> None:
        super().__init__(plan if plan.changes else plan(0), None)
        # A block of a remote file is fetched once, for all records of a shuffle.
        self.source = source.by_blocks() if any(map(is_remote, source.files)) else source
        self.repeats = plan.replacement
        self._by_hash = plan.by_hash

    def fingerprint(self, count: int | None = None) -> str:
        """Return a hash of the units and of the records of the source."""
        own = "" if self.source is None else self.source.fingerprint
        return fingerprint_of("shared", own, super().fingerprint(count))

    @property
    def is_mapped(self) -> bool:
        return self.is_held or super().is_mapped

    @property
    def has_known_length(self) -> bool:
        """Whether every epoch has as many records, and it is known before they are read."""
        is_kept = all(getattr(one, "keeps_count", False) for one in self._maps)
        return self.rate == 1 and is_kept and not (self.is_mapped and self.skips_bad)

    def owners(self, world_size: int, lanes: int) -> Numbers:
        units, count = self.units, world_size * lanes
        if units and units[0].share is not None:
            return np.array([unit.share % count for unit in units], np.int64)
        if self._by_hash:
            return np.array([hashed_owner(unit.key, count) for unit in units], np.int64)
        # First over ranks: few units must not all go to the workers of one.
        sizes = np.array([unit.size for unit in units], np.int64)
        ranks = np.array(balanced_owners(sizes.tolist(), world_size), np.int64)
        found = ranks * lanes
        for rank in range(world_size):
            own = balanced_owners(sizes[ranks == rank].tolist(), lanes)
            found[ranks == rank] += np.array(own, np.int64)
        return found

    def opened(self, number: int, start: int, worker: TorchWorker | None) -> Iterator[Numbers]:
        del worker
        unit = self.units[number]
        for at in unit.pieces(start):
            yield at if unit.draw is None else self._drawn(at, unit.draw)

    def _drawn(self, at: Numbers, key: int) -> Numbers:
        """Return records drawn with replacement, the same for the same numbers of draws."""
        records = np.uint64(0 if self.source is None else len(self.source))
        # The high bits of a product: each record is as likely as any other to one part in 2³².
        half = np.uint64(32)
        return ((mixed(at.astype(np.uint64), key) >> half) * records >> half).astype(np.int64)

    def records(self, numbers: Numbers) -> list[Any]:
        read = self._objects
        try:
            return read(numbers)
        except (*OF_A_RECORD, CorruptFileError) as why:
            if not self.skips_bad:
                raise
            if isinstance(why, CorruptFileError):
                warn_once(_log, f"record {numbers[0]} and others are left out: {why}", str(why))
                return [None] * len(numbers)
        found: list[Any] = []
        parts = read_around_bad(len(numbers), lambda a, b: read(numbers[a:b]), OF_A_RECORD)
        for start, _, value, bad in parts:
            if bad is not None:
                _log.warning("record %d is left out: %s", numbers[start], bad)
            found += value or [None]
        return found

    def _objects(self, numbers: Numbers) -> list[Any]:
        """Return records; raise at one that is JSON, but no object."""
        found = super().records(numbers)
        bad = next((row for row, one in enumerate(found) if not isinstance(one, dict)), None)
        if bad is None or self.source is None:
            return found
        number, kind = int(numbers[bad]), JSON_NAMES[type(found[bad])]
        place = record_place(self.source, number)
        assert place is not None  # noqa: S101 (only files are shared)
        raise MalformedLineError(
            f"record {number:,} ({place}) cannot be read: a record is a JSON object, and this is "
            f"{kind}.",
            path=place.path,
            offset=place.offset,
            line_number=place.line,
            record=number,
        )

    def unread(self) -> int:
        """Return how many records the source has, if all are left out as bad ones; else 0."""
        count = 0 if self.source is None or not self.skips_bad else len(self.source)
        parts = (np.arange(at, min(at + _TRIED, count)) for at in range(0, count, _TRIED))
        return count if all(one is None for part in parts for one in self.records(part)) else 0

    def unit_name(self, number: int) -> str:
        return str(self.units[number].key)


def steps_of(stream: SharedRecords, batch_size: int, world_size: int, lanes: int) -> list[int]:
    """Return how many batches each rank has: each of its lanes ends with a short one."""
    sizes = [0] * (world_size * lanes)
    for unit, owner in zip(stream.units, stream.owners(world_size, lanes).tolist(), strict=True):
        sizes[owner] += unit.size
    batches = [math.ceil(size / batch_size) for size in sizes]
    return [sum(batches[rank * lanes : (rank + 1) * lanes]) for rank in range(world_size)]
