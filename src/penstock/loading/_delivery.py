# ruff: noqa: ANN401 (requests are a feed's own, batches a recipe's)
"""From requests to batches in the user's hands: in order, a few ahead, with errors explained."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock._lazy import require
from penstock._words import counted
from penstock.errors import BadRecordsError, OptionError, StallError
from penstock.loading._fetch import listed
from penstock.loading._recipes import binned
from penstock.loading.engines._engines import Stalled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.loading._feed import FeedOptions, Placed, Point
    from penstock.loading._fetch import Fetch, Fetched
    from penstock.loading._ranks import Ranks
    from penstock.loading._stats import BadRecords, Tally
    from penstock.loading._steps import Task
    from penstock.loading.engines._engines import Engine


class Lot(NamedTuple):
    """Batches that were made together, mostly one, and the facts of each of them."""

    epoch: Point
    positions: Sequence[Any]
    """The position in the epoch after each of them."""
    batches: Iterable[Any]
    records: int
    """Rows that count, of each."""
    gathering: float
    """Seconds of reading and decoding, for each."""
    encoding: float


@dataclass(frozen=True, slots=True)
class Delivery:
    """Hands out what an engine makes."""

    fetch: Fetch
    tally: Tally
    bad_records: BadRecords
    """Those of earlier passes as well."""
    ranks: Ranks
    options: FeedOptions
    pin_memory: bool

    def lots(self, engine: Engine, requests: Iterator[Placed | None]) -> Iterator[Lot]:
        """Yield batches in order, with the engine always as many ahead as it likes."""
        waiting: deque[Placed] = deque()
        for placed in requests:
            if placed is not None:
                engine.submit(placed.request)
                waiting.append(placed)
            while waiting and (placed is None or len(waiting) >= engine.depth):
                yield from self._next(engine, waiting.popleft())
        while waiting:
            yield from self._next(engine, waiting.popleft())

    def _next(self, engine: Engine, placed: Placed) -> Iterator[Lot]:
        """Yield the batches of a request, in as many lots as they were made in."""
        left = placed.request.steps
        while left:
            request, fetched = self._taken(engine, placed.request)
            left -= request.steps
            task: Task = request
            if fetched.task is not None and placed.note is not None:
                task = placed.note(fetched.task)
                if not len(task.where.ids):
                    continue
            lot = self._lot(placed.epoch, task, fetched)
            yield from _one_by_one(lot, task.uneven) if task.uneven else (lot,)

    def _taken(self, engine: Engine, request: Any) -> tuple[Any, Fetched]:
        try:
            return engine.take(self.options.patience)
        except Stalled as stalled:
            raise self._stalled(str(stalled), request) from None
        finally:
            self.tally.costs = engine.costs()

    def _lot(self, epoch: Point, task: Task, fetched: Fetched) -> Lot:
        where, valid, steps = task.where, task.valid, task.steps
        if fetched.bad:
            valid = self._without_bad(fetched, where.ids, valid)
        records = len(where.ids) if valid is None else int(np.count_nonzero(valid))
        recipe, made = self.fetch.recipe, fetched.made
        batches: Iterable[Any] = (
            (binned(recipe.hand_over(made, where, valid), where.bins),)
            if steps == 1
            else recipe.hand_over_all(made, where, task.borders)  # In which every row counts.
        )
        if self.pin_memory:
            batches = map(pinned, batches)
        each = (records // steps, fetched.gathering / steps, fetched.encoding / steps)
        return Lot(epoch, task.positions, batches, *each)

    def _without_bad(
        self, fetched: Fetched, ids: NDArray[np.int64], valid: NDArray[np.bool_] | None
    ) -> NDArray[np.bool_]:
        """Return which rows count, without the bad ones; log each bad record once."""
        valid = np.ones(len(ids), bool) if valid is None else valid.copy()
        for bad in fetched.bad:
            valid[bad.row] = False
            self.bad_records.add(bad.id, bad.why)
        most, known = self.options.max_bad, self.bad_records.ids
        if len(known) > most:
            raise BadRecordsError(
                f"{counted(len(known), 'record', ('is', 'are'))} bad, more than max_bad={most}: "
                f"{listed(sorted(known))}. The last: {fetched.bad[-1].why} Allow more by max_bad=, "
                "or look at them with: penstock check PATH"
            )
        return valid

    def _stalled(self, what: str, request: Any) -> StallError:
        reader = self.fetch.reader
        place = what or (reader.place(request) if self.fetch.recipe.is_pure else "")
        waits = f"It waits for: {place}. " if place else "Nothing is being read. "
        remedy = f"Look {'whether storage answers and workers start' if place else 'at encode'}"
        return StallError(
            f"rank {self.ranks.rank} of {self.ranks.world_size} got no batch for "
            f"{self.options.patience:g} s. {waits}{reader.name(request)} {remedy}; "
            "stall_timeout= sets how long to wait.",
            rank=self.ranks.rank,
        )


def _one_by_one(lot: Lot, borders: Sequence[int]) -> Iterator[Lot]:
    """Yield a lot for each batch, since they have not as many records."""
    each = zip(lot.positions, lot.batches, pairwise(borders), strict=True)
    for position, batch, (start, stop) in each:
        yield lot._replace(positions=(position,), batches=(batch,), records=stop - start)


def pinned(batch: Any) -> Any:
    """Return the batch in page-locked memory; unchanged without a GPU."""
    torch = require("torch", extra="torch", purpose="pin_memory=True")
    if not torch.cuda.is_available():
        return batch
    return _like(batch.pin_memory(), batch) if hasattr(batch, "pin_memory") else batch


def moved(lots: Iterator[Lot], device: object, *, is_ahead: bool = True) -> Iterator[Lot]:
    """Yield batches on a device, one a lot; `is_ahead`: each moved while the one before is used.

    A GPU copies on a stream of its own; the stream that uses a batch waits for its copy, and the
    memory is not used again before that stream is done with it.
    """
    torch = require("torch", extra="torch", purpose=f"prefetch_to={device!r}")
    target = torch.device(device)
    batches = (
        (lot._replace(positions=(position,), batches=()), batch)
        for lot in lots
        for position, batch in zip(lot.positions, lot.batches, strict=True)
    )
    if target.type != "cuda" or not is_ahead:
        for lot, batch in batches:
            yield lot._replace(batches=(_moved(batch, target),))
        return
    if not torch.cuda.is_available():
        raise OptionError(f"prefetch_to={device!r}: torch finds no GPU here.")
    side = torch.cuda.Stream(target)
    ahead: tuple[Lot, Any, Any] | None = None
    for lot, batch in batches:
        with torch.cuda.stream(side):
            copy = _moved(pinned(batch), target, non_blocking=True)
            copied = side.record_event()
        if ahead is not None:
            yield _ready(*ahead, torch.cuda.current_stream(target))
        ahead = (lot, copy, copied)
    if ahead is not None:
        yield _ready(*ahead, torch.cuda.current_stream(target))


def _moved(batch: Any, target: object, **how: bool) -> Any:
    if not hasattr(batch, "to"):
        raise OptionError(
            f"prefetch_to={target}: a {type(batch).__name__} cannot be moved to a device. Give "
            "field types, or an encode that returns a dict of tensors."
        )
    return _like(batch.to(target, **how), batch)


def _like(copy: Any, batch: Any) -> Any:
    """Return the copy of a batch, with the `ids` and `valid` of a tensor of tokens."""
    if copy is not batch and "ids" in getattr(batch, "__dict__", ()):
        vars(copy).update(vars(batch))
    return copy


def _ready(lot: Lot, batch: Any, copied: Any, present: Any) -> Lot:
    present.wait_event(copied)
    batch.record_stream(present)
    return lot._replace(batches=(batch,))
