"""A feed that shows how little one needs: units of records that can only be read forward."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.batch import BatchPosition
from penstock.datasets import RecordsAt
from penstock.errors import OptionError
from penstock.loading import Opened, Placed, Reads, Task
from penstock.order import Order, share_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.loading import FeedOptions, Sharing

UNIT_IDS = 2**32
"""Records of unit u are numbered from u × this on."""


class Flow:
    """Units of records; how many a unit has is known when it ends."""

    def __init__(self, units: list[list[dict[str, Any]]]) -> None:
        self._units = units

    def __len__(self) -> int:
        return len(self._units)

    def read(self, unit: int, start: int) -> Iterator[dict[str, Any]]:
        return islice(iter(self._units[unit]), start, None)

    def __penstock_feed__(self, options: FeedOptions) -> FlowFeed:
        return FlowFeed(self, options)


class FlowRequest(NamedTuple):
    """The batch of one step: records of a unit, from `start` on, as far as there are any."""

    step: int
    epoch: int
    seed: int
    place: int
    """Where the unit stands in the order of the epoch."""
    unit: int
    start: int
    sharing: Sharing
    steps: int = 1


@dataclass(frozen=True)
class FlowPoint:
    seed: int
    epoch: int = 0
    position: Any = 0
    """0, or the place of a unit and how many of its records were handed out."""

    def at(self, epoch: int | None = None, position: Any = 0) -> FlowPoint:
        return replace(self, epoch=self.epoch if epoch is None else epoch, position=position)


class FlowReader(NamedTuple):
    flow: Flow
    is_remote: bool = False
    is_numbered: bool = False

    def opened(self, request: FlowRequest) -> Opened:
        step, epoch, seed, place, unit, start, sharing, _ = request
        records = list(islice(self.flow.read(unit, start), sharing.global_batch_size))
        rows, valid = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        if records:
            numbers = (sharing.batch_size, sharing.rank, sharing.world_size, len(records))
            rows, valid = share_rows(0, *numbers, drop_last=False)
        first = unit * UNIT_IDS + start
        where = BatchPosition(seed, epoch, start + rows, first + rows)
        task = Task(
            step, where, None if valid.all() else valid, None, (place, start + len(records))
        )
        return Opened(RecordsAt(records, first + np.arange(len(records))), task)

    def name(self, request: FlowRequest) -> str:
        return f"In the batch of unit {request.unit} from record {request.start} on."

    def place(self, request: FlowRequest) -> str:
        return f"unit {request.unit}"

    def warm_up(self, recipe: object) -> None:
        pass

    def close(self) -> None:
        pass


class FlowFeed:
    """Units in the order of a permutation, each cut into global batches."""

    kind, version = "toy-units", 1

    def __init__(self, flow: Flow, options: FeedOptions) -> None:
        self._flow, self._options = flow, options
        self.begin = FlowPoint(options.seed)

    def name(self, point: FlowPoint) -> tuple[str, str]:
        return f"{len(self._flow)} units", "any order"

    def describe(self, point: FlowPoint) -> dict[str, str]:
        return {"source": "units", "order": self.kind, "state": str(point.position)}

    def prepare(self, point: FlowPoint) -> None:
        pass

    def reads(self, point: FlowPoint) -> Reads:
        return Reads()

    def reader(self, point: FlowPoint) -> tuple[FlowReader, bool]:
        return FlowReader(self._flow), False

    def requests(
        self, point: FlowPoint, sharing: Sharing, together: Callable[[], int], peers: object
    ) -> Iterator[Placed]:
        seed, epoch = point.seed, point.epoch
        order = Order(len(self._flow), seed=seed, epoch=epoch).positions(0, len(self._flow))
        place, start = point.position or (0, 0)
        step = 0
        ended = set()

        def note(request: FlowRequest, task: Task) -> Task:
            if task.position[1] < request.start + sharing.global_batch_size:
                ended.add(request.place)
            return task

        while place < len(order):
            if place in ended:
                place, start = place + 1, 0
                continue
            unit = int(order[place])
            request = FlowRequest(step, epoch, seed, place, unit, start, sharing)
            yield Placed(point, request, partial(note, request))
            start += sharing.global_batch_size
            step += 1

    def steps(self, point: FlowPoint, sharing: Sharing) -> int:
        raise TypeError("a flow has no length")

    def records(self, point: FlowPoint, step: int, sharing: Sharing) -> Any:
        raise TypeError("the records of a flow are not known before they are read")

    def state(self, point: FlowPoint) -> dict[str, object]:
        order = {"kind": self.kind, "version": self.version}
        place = list(point.position) if point.position else 0
        return {"order": order, "seed": point.seed, "epoch": point.epoch, "position": place}

    def is_whole(self, point: FlowPoint) -> bool:
        return True

    def joined(self, states: Sequence[Mapping[str, Any]]) -> dict[str, object]:
        return dict(states[0])

    def resumed(self, state: Mapping[str, Any]) -> FlowPoint:
        order = state["order"]
        if (order["kind"], order["version"]) != (self.kind, self.version):
            raise OptionError(f"state: this order is {order['kind']}, version {order['version']}.")
        place = state["position"]
        return FlowPoint(state["seed"], state["epoch"], tuple(place) if place else 0)
