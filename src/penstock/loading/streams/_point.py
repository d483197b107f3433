"""Where a run over a stream stands: in memory, and as a state document."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.errors import OptionError
from penstock.loading._run import PART
from penstock.loading.streams._done import Done
from penstock.order import Order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets import Stream
    from penstock.loading.streams._done import LanePoint
    from penstock.order import Kind

KIND, VERSION = "stream", 1


def lane_places(units: int, rank: int, world_size: int, lane: int, lanes: int) -> NDArray[np.int64]:
    """Return the places of the units that one reader of a rank has: in turn with all others."""
    return np.arange(rank + world_size * lane, units, world_size * lanes)


class Share(tuple["NDArray[np.int64]", ...]):
    """The places of the units that each lane of a rank reads; equal to itself alone."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class StreamPosition(NamedTuple):
    """How far the lanes of one rank came in an epoch."""

    base: Done
    """What all ranks had handed out when the pass began."""
    share: Share | None = None
    lanes: tuple[LanePoint | None, ...] = ()
    turns: tuple[int, ...] = ()
    """The lanes, from that of the next batch on."""

    def done(self) -> Done:
        if self.share is None:
            return self.base
        return self.base.advanced(
            (self.share[lane], point)
            for lane in self.turns
            if (point := self.lanes[lane]) is not None
        )


@dataclass(frozen=True, slots=True)
class StreamPoint:
    """Where a run over a stream stands."""

    stream: Stream = field(compare=False, repr=False)
    seed: int
    buffer: int
    """Records that a shuffle draws from; 0 for records in order."""
    count: int | None
    """How many units there were when the run began; None where each epoch has its own, or each
    lane one."""
    part: tuple[int, int] | None = None
    """The rank that this is the part of, and how many ranks there are; None if it is of all."""
    epoch: int = 0
    position: Any = 0
    """0, or a `StreamPosition`."""

    def at(self, epoch: int | None = None, position: Any = 0) -> StreamPoint:  # noqa: ANN401
        return replace(self, epoch=self.epoch if epoch is None else epoch, position=position)

    @property
    def values(self) -> tuple[Any, ...]:
        """All but the stream, for a worker that has it: `StreamPoint(stream, *values)`."""
        position = StreamPosition(self.position.done()) if self.position else 0
        return self.seed, self.buffer, self.count, self.part, self.epoch, position

    @property
    def present(self) -> Stream:
        """The stream with the units of this epoch."""
        return self.stream.at(self.epoch)

    @property
    def units(self) -> int | None:
        """How many units the epoch has; None for one unit a lane."""
        if self.stream.shards_itself:
            return None
        return len(self.present.units) if self.count is None else self.count

    @property
    def fingerprint(self) -> str:
        return self.present.fingerprint(self.count)

    def done(self, lanes: int = 0) -> Done:
        """Return what was handed out; of a stream with one unit a lane, over so many lanes."""
        units = self.units
        begun = Done(lanes if units is None else units)
        done: Done = self.position.done() if self.position else begun
        if units is None and lanes and done.units != lanes:
            raise OptionError(
                f"the state is of {done.units} ranks × workers, and there are {lanes} now: what "
                "each of them read is known to the IterableDataset alone. Give num_workers= for as "
                "many, or begin the epoch anew: set_epoch(n) of the DataLoader."
            )
        return done

    def order(self, units: int) -> NDArray[np.int64]:
        """Return the units of this epoch by place, int64[units]."""
        stream = self.stream
        is_permuted = self.buffer and stream.is_permuted and not stream.shards_itself
        kind: Kind = "full" if is_permuted else "sequential"
        order = Order(units, seed=self.seed, epoch=self.epoch, kind=kind)
        return order.positions(0, units)

    def share(self, rank: int, world_size: int, lanes: int) -> Share:
        """Return the units of a rank: those that it owns, or else each lane's in turn."""
        units = self.done(world_size * lanes).units
        owners = self.present.owners(world_size, lanes)
        if owners is None:
            return Share(lane_places(units, rank, world_size, lane, lanes) for lane in range(lanes))
        # Units that were appended since the run began have no place.
        of_places = owners[self.order(units)]
        return Share(np.flatnonzero(of_places == lane + lanes * rank) for lane in range(lanes))

    def to_dict(self) -> dict[str, object]:
        """Return the state document."""
        done = self.done()
        order = {"kind": KIND, "version": VERSION, "units": done.units, "buffer": self.buffer}
        own = {} if self.part is None else {PART: [*self.part]}
        return {
            "version": 1,
            "fingerprint": self.fingerprint,
            "length": self.stream.length,
            "seed": self.seed,
            "epoch": self.epoch,
            "order": {**order, "next": [*done.parts]},
            "done": done.to_dict(),
            "skip": [],
            **own,
        }
