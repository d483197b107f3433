"""Batches of a stream, made where its units are read."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.batch import BatchPosition
from penstock.datasets import RecordsAt, TorchWorker
from penstock.loading._feed import Opened
from penstock.loading._order_choice import lies_remote
from penstock.loading._steps import Task
from penstock.loading.streams._lane import Lane, TakenRecords
from penstock.loading.streams._point import VERSION, StreamPoint
from penstock.loading.streams._rows import NO_ROWS, LaneUnit
from penstock.order import keys

if TYPE_CHECKING:
    from penstock.datasets import Stream
    from penstock.loading._recipes import Recipe
    from penstock.loading._steps import Sharing


class StreamRequest(NamedTuple):
    """The next batch of a lane."""

    step: int
    epoch: int
    lane: int
    sharing: Sharing
    begins: tuple[Any, ...] | None
    """Of the first one of a lane in an epoch: the `values` of the point that it begins at."""
    is_blank: bool = False
    """Whether no row counts: other ranks have records left, and this one has none."""
    steps: int = 1


_NOTHING = TakenRecords(RecordsAt([], NO_ROWS.ids), NO_ROWS.ids, NO_ROWS.ids)


class StreamReader:
    """Reads the lanes of a rank, or of a worker; each keeps its unit open from batch to batch."""

    is_numbered = False

    def __init__(self, stream: Stream, workers: int) -> None:
        """Read a stream, in so many processes; 0: in a thread."""
        self._stream, self._workers = stream, workers
        self._lanes: dict[int, tuple[StreamPoint, Lane]] = {}
        """By number, with the point at which each began."""
        self._known_example: TakenRecords | None = None

    def opened(self, request: StreamRequest) -> Opened:
        point, lane = self._lane(request)
        size = request.sharing.batch_size
        # What a dataset of the user yields is not asked for again.
        wraps = self._stream.wraps and not self._stream.shards_itself
        if not request.is_blank:
            source, ids, positions = lane.take(size)
        elif wraps or not len(lane.last.ids):
            source, ids, positions = self._example(point, request.sharing)
        else:
            source, ids, positions = lane.last
        counts = np.zeros(size, np.bool_) if request.is_blank else None
        unread = None
        if counts is not None and wraps and len(ids):
            ids, positions = np.resize(ids, size), np.resize(positions, size)
        elif counts is not None:
            ids = positions = np.full(size, -1)
            unread = ~counts
        if request.sharing.drop_last and len(ids) < size:
            ids, positions = ids[:0], positions[:0]
        about = (point.seed, request.epoch, positions, ids)
        where = BatchPosition(*about, repeats=self._stream.repeats)
        return Opened(source, Task(request.step, where, counts, unread, lane.point))

    def _lane(self, request: StreamRequest) -> tuple[StreamPoint, Lane]:
        if request.begins is not None:
            if request.lane in self._lanes:
                self._lanes[request.lane][1].close()
            point = StreamPoint(self._stream, *request.begins)
            self._lanes[request.lane] = (point, self._begun(point, request.lane, request.sharing))
            self._known_example = None
        return self._lanes[request.lane]

    def _example(self, point: StreamPoint, sharing: Sharing) -> TakenRecords:
        """Return the first records of this rank, or else of others; the same after a resume.

        A batch without records has their columns as well.
        """
        if self._known_example is None:
            self._known_example = self._first(point, sharing)
        return self._known_example

    def _first(self, point: StreamPoint, sharing: Sharing) -> TakenRecords:
        if point.units is None:
            return _NOTHING
        numbers = point.order(point.units).tolist()
        lanes = point.share(sharing.rank, sharing.world_size, max(1, self._workers))
        own = np.concatenate(lanes)
        places = dict.fromkeys([*np.sort(own).tolist(), *range(len(numbers))])
        units = [LaneUnit(at, numbers[place], ()) for at, place in enumerate(places)]
        salt = (VERSION, point.seed, point.epoch)
        with closing(Lane(point.present, units, salt, 0, None)) as lane:
            return lane.take(sharing.batch_size)

    def _begun(self, point: StreamPoint, number: int, sharing: Sharing) -> Lane:
        """Return a lane at the place where its epoch is continued."""
        lanes, rank, world_size = max(1, self._workers), sharing.rank, sharing.world_size
        done = point.done(world_size * lanes)
        places = point.share(rank, world_size, lanes)[number]
        numbers = point.order(done.units)[places].tolist()
        units = [
            LaneUnit(at, numbers[at], done.parts.get(int(places[at]), ()))
            for at in np.flatnonzero(~done.is_whole()[places]).tolist()
        ]
        (seed,) = keys("torch worker", point.seed, point.epoch, rank, number)
        worker = TorchWorker(number, lanes, seed >> 1) if self._workers else None
        if worker is not None:
            worker.seed_generators()
        buffer = point.buffer if point.buffer > 1 else 0  # One record is drawn in its turn.
        return Lane(point.present, units, (VERSION, point.seed, point.epoch), buffer, worker)

    @property
    def is_remote(self) -> bool:
        source = self._stream.source
        return source is not None and lies_remote(source)

    def name(self, request: StreamRequest) -> str:
        return f"In a batch of {self._stream!r}, step {request.step:,} of epoch {request.epoch}."

    def place(self, request: StreamRequest) -> str:
        _, lane = self._lanes.get(request.lane, (None, None))
        return (lane and lane.reads()) or f"a unit of {self._stream!r}"

    def warm_up(self, recipe: Recipe) -> None:
        """Load nothing: what reading needs is the user's own."""

    def close(self) -> None:
        for _, lane in self._lanes.values():
            lane.close()
