"""The feed of streams: units are shared over ranks and workers, and read forward."""

from __future__ import annotations

import operator
import warnings
from dataclasses import replace
from functools import partial
from itertools import cycle, takewhile
from typing import TYPE_CHECKING, Any

from penstock._words import counted
from penstock.datasets import changes_since, remember_files
from penstock.errors import ChangedSourceError, OptionError
from penstock.loading._feed import Placed, Reads
from penstock.loading._options import check_choice
from penstock.loading._order_choice import first_stream, lies_remote
from penstock.loading._source_reader import SourceReader
from penstock.loading._steps import Task
from penstock.loading.streams._done import StreamDocument
from penstock.loading.streams._point import KIND, VERSION, StreamPoint, StreamPosition
from penstock.loading.streams._reader import StreamReader, StreamRequest
from penstock.order import steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.datasets import Source, Stream
    from penstock.loading._feed import FeedOptions, Reader
    from penstock.loading._peers import Peers
    from penstock.loading._steps import Sharing, StepRecords
    from penstock.loading.streams._done import Done, LanePoint
    from penstock.loading.streams._point import Share


class LaneTurns:
    """The lanes of a rank in an epoch: which is next, and how far each came."""

    def __init__(self, point: StreamPoint, base: Done, share: Share, peers: Peers | None) -> None:
        self._epoch, self._base, self._share, self._peers = point.epoch, base, share, peers
        self._points: list[LanePoint | None] = [None] * len(share)
        self.next = base.lanes(share)
        """The lanes in the order of their next batches."""
        self.left = {*self.next}
        """Those that have records left, as far as is known."""
        self.handed_out = 0

    def note(self, request: StreamRequest, task: Task) -> Task:
        """Note the next batch; return it with the position of all until then."""
        lane = request.lane
        if not len(task.where.ids):
            self.left.discard(lane)
            return task
        self.handed_out += 1
        if not request.is_blank:
            self._points[lane] = task.position
            self.next.remove(lane)
            self.next.append(lane)
            if self._peers is not None:
                self._peers.reach(self._epoch, self.handed_out)
        about = (self._base, self._share, tuple(self._points), tuple(self.next))
        return task._replace(position=StreamPosition(*about))


class StreamFeed:
    """Units in order or permuted, in turn for each rank and each of its lanes; a `Feed`.

    A lane is read by one worker process, or by the only thread that reads. A batch has records of
    one lane, and the batches of the lanes come in turn.
    """

    def __init__(self, stream: Stream, options: FeedOptions) -> None:
        self._stream, self._options = stream, options
        self._workers = options.processes
        self._reader: StreamReader | None = None
        """The same for all passes, so that worker processes can be kept; threads, and datasets that
        may keep a state of their own, begin with a new one."""
        check_choice("shuffle", options.shuffle, (True, False))
        for name, is_given, instead in (
            ("skip", options.skip is not None, "let Stream.map(f) return [] for a record"),
            ("materialize=True", options.materialize is True, "leave it out"),
            ("a plan as batch_size", options.plan is not None, "give a number"),
        ):
            if is_given:
                raise OptionError(
                    f"{name} needs records that have numbers, and those of a stream have none: "
                    f"{instead}."
                )
        self.begin = StreamPoint(
            stream,
            operator.index(options.seed),
            stream.buffer if options.shuffle else 0,
            None if stream.shards_itself or stream.changes else len(stream.units),
        )

    def name(self, point: StreamPoint) -> tuple[str, str]:
        return repr(self._stream).strip("<>"), "shuffled" if point.buffer else "in order"

    def describe(self, point: StreamPoint) -> dict[str, str]:
        done = point.done()
        order = "units and their records in order"
        if point.buffer:
            order = (
                f"units in random order, records drawn from a buffer of {point.buffer:,}, seed "
                f"{point.seed}"
            )
        reading = "one unit at a time, in one place: a batch begins where the one before ends"
        if self._workers > 1:
            reading = (
                f"each of {self._workers} worker processes reads units of its own, and their "
                "batches come in turn; another number of them gives another order"
            )
        return {
            "source": f"{self.name(point)[0]}, fingerprint {point.fingerprint}",
            "order": order,
            "reading": reading,
            "columns": "none: a stream is read anew in every epoch",
            "state": f"epoch {point.epoch}, {counted(int(done.is_whole().sum()), 'unit')} done and "
            f"{len(done.parts):,} begun",
        }

    # How records are read.

    def prepare(self, point: StreamPoint) -> None:
        """Make nothing: a stream is read as it comes."""

    def reads(self, point: StreamPoint) -> Reads:
        source, numbered = self._stream.source, self._numbered
        return Reads(
            is_remote=source is not None and lies_remote(source),
            is_sequential=numbered is None,
            from_columns=numbered is not None
            and not numbered.files
            and numbered.schema_is_complete,
        )

    def reader(self, point: StreamPoint) -> tuple[Reader, bool]:
        if self._numbered is not None:
            return SourceReader(self._numbered, lies_remote(self._numbered)), False
        if not self._workers or self._stream.shards_itself:
            return StreamReader(self._stream, self._workers), False
        self._reader = self._reader or StreamReader(self._stream, self._workers)
        return self._reader, False

    @property
    def _numbered(self) -> Source | None:
        """The source whose record numbers this process hands out, several batches at once.

        Worker processes read units of their own: what a unit has in common is read once.
        """
        stream = self._stream
        if self._workers or stream.source is None or stream.is_mapped:
            return None
        return None if first_stream(stream.source) else stream.source

    # Which records a step has.

    def requests(
        self,
        point: StreamPoint,
        sharing: Sharing,
        together: Callable[[], int],
        peers: Peers | None,
    ) -> Iterator[Placed | None]:
        lanes, rank, world_size = max(1, self._workers), sharing.rank, sharing.world_size
        base = self._base(point, sharing, lanes)
        is_part = peers is None and world_size > 1
        point = replace(point, part=(rank, world_size) if is_part else None)
        peers = peers if self._stream.ends_together else None
        turns = LaneTurns(point, base, point.share(rank, world_size, lanes), peers)
        reader = None if self._numbered is None else StreamReader(self._stream, 0)
        begins = dict.fromkeys(range(lanes), point.values)

        def placed(step: int, lane: int, *, is_blank: bool = False) -> Placed:
            request = StreamRequest(
                step, point.epoch, lane, sharing, begins.pop(lane, None), is_blank
            )
            if reader is None:
                return Placed(point, request, partial(turns.note, request))
            return Placed(point, turns.note(request, reader.opened(request).task))

        step = 0
        if reader is None:
            for lane in takewhile(lambda _: turns.left, cycle(tuple(turns.next))):
                if lane in turns.left:
                    yield placed(step, lane)
                    step += 1
        while reader is not None and turns.left:
            tasks = [placed(step + ahead, 0).request for ahead in range(together())]
            tasks = [task for task in tasks if len(task.where.ids)]
            if tasks:
                yield Placed(point, Task.joined(tasks))
                step += len(tasks)
        if peers is not None:
            yield None
            peers.end(point.epoch, turns.handed_out)
            while peers.reached(point.epoch, turns.handed_out + 1):
                yield placed(turns.handed_out, 0, is_blank=True)
                yield None

    def _base(self, point: StreamPoint, sharing: Sharing, lanes: int) -> Done:
        if self._stream.is_one_function and sharing.world_size > 1:
            raise OptionError(
                f"{self._stream!r} is a generator function, which is one unit, and there are "
                f"{sharing.world_size} ranks: give penstock.stream(units, read)."
            )
        return point.done(sharing.world_size * lanes)

    def steps(self, point: StreamPoint, sharing: Sharing) -> int:
        length, lanes, begin = self._stream.length, max(1, self._workers), point.at()
        if length is None:
            raise TypeError("the length of a stream is not known: give penstock.stream(length=…)")
        units = begin.done(sharing.world_size * lanes).units
        if not units:
            return 0
        is_waited_for = sharing.are_joined and self._stream.ends_together
        ranks = range(sharing.world_size) if is_waited_for else [sharing.rank]
        return max(
            # Each lane ends with a short batch. Units count as equally long.
            sum(
                steps(length * len(places), sharing.batch_size * units, 1, sharing.drop_last)
                for places in begin.share(rank, sharing.world_size, lanes)
            )
            for rank in ranks
        )

    def records(self, point: StreamPoint, step: int, sharing: Sharing) -> StepRecords:
        raise OptionError(
            "which records a step of a stream has is known when they are read: look at batch.ids, "
            "or at explain() without a step."
        )

    # Where a run stands.

    def is_whole(self, point: StreamPoint) -> bool:
        return not point.position or not point.position.lanes

    def state(self, point: StreamPoint) -> dict[str, object]:
        if self._stream.source is not None:
            remember_files(self._stream.source, point.fingerprint)
        return point.to_dict()

    def joined(self, states: Sequence[Mapping[str, Any]]) -> dict[str, object]:
        points = [self._point(StreamDocument.of(state, KIND, VERSION)) for state in states]
        first, *others = (point.done() for point in points)
        position = StreamPosition(first.joined(others))
        return replace(points[0], part=None, position=position).to_dict()

    def _point(self, document: StreamDocument) -> StreamPoint:
        """Return the point of a state document, whatever units there are now."""
        done = document.places()
        point = replace(
            self.begin,
            seed=document.seed,
            buffer=document.order.buffer,
            count=None if self.begin.count is None else done.units,
            part=document.part,
            epoch=document.epoch,
        )
        has_begun = bool(done.whole or done.parts)
        return point.at(position=StreamPosition(done) if has_begun else 0)

    def resumed(self, state: Mapping[str, Any]) -> StreamPoint:
        document = StreamDocument.of(state, KIND, VERSION)
        point = self._point(document)
        now = replace(point, count=self.begin.count)
        if document.fingerprint != point.fingerprint:
            if self._options.on_changed == "raise":
                source, was = self._stream.source, document.fingerprint
                files = "" if source is None else changes_since(source, was)
                raise ChangedSourceError(
                    f"the units of the stream changed since the state was saved: there were "
                    f"{document.order.units or 1:,}, and there are {now.units or 1:,} now, or "
                    f"others (fingerprint {was} then, {now.fingerprint} now){files}.",
                    remedy="Give the same units, or on_changed='continue' to go on with those that "
                    "are there, each as far as the unit of its number came.",
                )
            if not point.position or now.units is None:
                return now
            done = point.done()
            moved = done.reordered(point.order(done.units), now.order(now.units))
            return now.at(position=StreamPosition(moved))
        if point.count is not None and point.count < len(self._stream.units):
            more = counted(len(self._stream.units) - point.count, "unit", ("was", "were"))
            warnings.warn(
                f"{more} appended since the run began; it goes on over the {point.count:,} that it "
                "began with. Start a new run to use them.",
                stacklevel=3,
            )
        return point
