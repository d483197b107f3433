"""One epoch as one rank sees it: which records each step has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock._redact import without_secrets
from penstock._words import counted
from penstock.batch import BatchPosition
from penstock.errors import RecordIndexError
from penstock.loading._kept_plans import batches_of
from penstock.order import CutBatches, Skips, share_full, share_rows, steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.datasets import Source
    from penstock.order import Cursor, Plan, RecordOrder

    Rows = NDArray[np.int64]
    Flags = NDArray[np.bool_] | None

_SHOWN = 10
_WINDOW = 65_536
"""Positions that are computed together, since each call of the permutation has a fixed cost."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How an epoch is cut into batches, and which part of each is this rank's."""

    batch_size: int
    """Of one rank."""
    rank: int = 0
    world_size: int = 1
    drop_last: bool = False
    plan: Plan | None = None
    """Cuts the epoch into batches in place of `batch_size`, which then is 1."""
    are_joined: bool = False
    """Whether a process group connects the ranks."""

    @property
    def global_batch_size(self) -> int:
        """Records of one step, over all ranks."""
        return self.batch_size * self.world_size


def step_counts(cursor: Cursor, sharing: Sharing) -> tuple[int, int]:
    """Return how many steps of a cursor's epoch lie before it, and how many behind."""
    length = cursor.order_length
    origin = min(cursor.position, length)
    rest = steps(length, sharing.batch_size, sharing.world_size, sharing.drop_last, origin=origin)
    return -(-origin // sharing.global_batch_size), rest


class Task(NamedTuple):
    """The records of one step, or of several whole steps that are read together."""

    step: int
    """The first of them."""
    where: BatchPosition
    """Of the rows of all steps."""
    valid: Flags
    """Which rows count, bool[B]; None where all do."""
    unread: Flags
    """Rows that were skipped in mid-epoch and are not read, bool[B]; None where there are none."""
    position: Any
    """The position in the epoch after the last of its batches."""
    steps: int = 1
    each: int = 1
    """Positions that every one of several steps hands out, over all ranks."""
    uneven: tuple[int, ...] = ()
    """The first row of each of several steps, and at last B, where they have not as many rows."""
    places: tuple[Any, ...] = ()
    """`positions`, where they are no numbers."""

    @classmethod
    def joined(cls, tasks: Sequence[Task]) -> Task:
        """Return single steps, one behind the other, in which all rows count, as one task."""
        first, last = tasks[0], tasks[-1]
        if len(tasks) == 1:
            return first
        positions, ids = (
            np.concatenate([getattr(one.where, name) for one in tasks])
            for name in ("positions", "ids")
        )
        rows = [len(one.where.ids) for one in tasks]
        return first._replace(
            where=replace(first.where, positions=positions, ids=ids),
            position=last.position,
            steps=len(tasks),
            uneven=(0, *accumulate(rows)) if len({*rows}) > 1 else (),
            places=tuple(one.position for one in tasks),
        )

    @property
    def borders(self) -> Sequence[int]:
        """The first row of each step, and at last B."""
        rows = len(self.where.ids)
        return self.uneven or range(0, rows + 1, max(1, rows // self.steps))

    @property
    def positions(self) -> Sequence[Any]:
        """`position` after each of its steps."""
        if self.places or self.steps == 1:
            return self.places or (self.position,)
        return range(self.position - (self.steps - 1) * self.each, self.position + 1, self.each)

    def apart(self) -> list[Task]:
        return [self.part(number, number + 1) for number in range(self.steps)]

    def part(self, start: int, stop: int) -> Task:
        if (start, stop) == (0, self.steps):
            return self
        borders = self.borders[start : stop + 1]
        own = slice(borders[0], borders[-1])
        uneven = tuple(row - own.start for row in borders) if self.uneven else ()
        part = self.where.part(own.start, own.stop)
        valid = None if self.valid is None else self.valid[own]
        unread = None if self.unread is None else self.unread[own]
        valid = None if valid is None or valid.all() else valid
        unread = None if unread is None or not unread.any() else unread
        position = self.positions[stop - 1]
        many = (stop - start, self.each, uneven, self.places[start:stop])
        return Task(self.step + start, part, valid, unread, position, *many)


class EpochSteps(ABC):
    """The steps of a cursor's epoch, counted from its beginning."""

    def __init__(self, cursor: Cursor, blocks: Rows | None, sharing: Sharing) -> None:
        self.order: RecordOrder = cursor.order(blocks)
        self.cursor = cursor.at(position=cursor.position, lanes=self.order.lanes)
        self.sharing = sharing
        self.first = self._rest = 0
        """Steps that lie before the cursor, and behind it."""
        self._masked = Skips(cursor.masked, cursor.length) if cursor.masked else None

    def __len__(self) -> int:
        return self.first + self._rest

    def task(self, step: int, most: int = 1) -> Task:
        """Return the batch of a step, or of up to `most` steps in which no row is missing."""
        if not self.first <= step < len(self):
            there = f"those from {self.first:,} to {len(self) - 1:,}" if self._rest else "any"
            raise RecordIndexError(f"step {step:,} of epoch {self.cursor.epoch} is not {there}.")
        return self._task(step, most)

    @abstractmethod
    def _task(self, step: int, most: int) -> Task: ...

    def _filled(  # noqa: PLR0913, PLR0917 (what a task has)
        self,
        step: int,
        positions: Rows,
        ids: Rows,
        valid: Flags,
        done: int,
        steps: int = 1,
        each: int = 1,
        bins: Rows | None = None,
    ) -> Task:
        """Return the task of these rows, of which those that are masked are not read."""
        unread = None if self._masked is None else self._masked.hold(ids)
        unread = None if unread is None or not unread.any() else unread
        if unread is not None:
            valid = ~unread if valid is None else valid & ~unread
        when = (self.cursor.seed, self.cursor.epoch)
        where = BatchPosition(*when, positions, ids, repeats=self.order.repeats, bins=bins)
        return Task(step, where, valid, unread, done, steps, each)


class Steps(EpochSteps):
    """Steps of equal batches.

    A pure function of its arguments. With another global batch than before, the steps behind the
    cursor begin exactly there.

    >>> from penstock.order import Cursor
    >>> cursor = Cursor(fingerprint="", length=10, kind="sequential", position=4)
    >>> epoch = Steps(cursor, None, Sharing(batch_size=2, rank=1, world_size=2))
    >>> len(epoch), epoch.first
    (3, 1)
    >>> epoch.task(1).where.ids.tolist(), epoch.task(2).where.ids.tolist()
    ([6, 7], [9])
    >>> epoch.task(1, most=5).steps  # The last step is not whole.
    1
    """

    def __init__(self, cursor: Cursor, blocks: Rows | None, sharing: Sharing) -> None:
        super().__init__(cursor, blocks, sharing)
        length = len(self.order)
        self._origin = min(cursor.position, length)
        self.first, self._rest = step_counts(cursor, sharing)
        self._whole = (length - self._origin) // sharing.global_batch_size
        self._window = max(1, _WINDOW // sharing.batch_size)
        self._share = (sharing.batch_size, sharing.rank, sharing.world_size, length)
        self._layout = {"origin": self._origin, "lanes": self.order.lanes}
        self._known: tuple[int, Rows, Rows] | None = None

    def _task(self, step: int, most: int) -> Task:
        number, count = step - self.first, 1
        valid: Flags = None
        if number < self._whole:
            positions, ids = self._full(number, most)
            count = len(ids) // self.sharing.batch_size
        else:
            drop_last = self.sharing.drop_last
            positions, valid = share_rows(number, *self._share, drop_last, **self._layout)
            ids = self.order.at(positions)
            valid = None if valid.all() else valid
        each = self.sharing.global_batch_size
        done = min(self._origin + (number + count) * each, len(self.order))
        return self._filled(step, positions, ids, valid, done, count, each)

    def _full(self, number: int, most: int) -> tuple[Rows, Rows]:
        """Return positions and record numbers of some steps in which no row is missing."""
        known = self._known
        start = number - number % self._window
        if known is None or known[0] != start:
            stop = min(start + self._window, self._whole)
            positions = share_full(start, stop, *self._share, **self._layout)
            known = self._known = (start, positions, self.order.at(positions))
        own = slice(number - start, number - start + most)
        # Copies: users get them, and one batch must not keep the whole window alive.
        return known[1][own].flatten(), known[2][own].flatten()


class PlannedSteps(EpochSteps):
    """Steps whose batches a plan cuts: at step s, rank r of W takes batch s·W + r.

    The cursor counts batches, so steps behind it begin with the next one for any number of ranks.
    In the last step a rank without a batch repeats the last one, in which no row counts.
    """

    def __init__(self, cursor: Cursor, blocks: Rows | None, sharing: Sharing) -> None:
        super().__init__(cursor, blocks, sharing)
        assert sharing.plan is not None  # noqa: S101 (who makes steps has looked)
        self.plan = sharing.plan
        self.batches = batches_of(self.plan, self.order, self.cursor, blocks)
        self._origin = min(cursor.position, len(self.batches))
        whole, rest = divmod(len(self.batches) - self._origin, sharing.world_size)
        self.first = -(-self._origin // sharing.world_size)
        self._rest = whole + (rest > 0 and not sharing.drop_last)
        self._known: tuple[int, list[Rows], Rows, Rows] | None = None
        """The first of some steps, their positions, and all their rows: borders and records."""

    def _task(self, step: int, most: int) -> Task:
        world_size, count = self.sharing.world_size, len(self.batches)
        begin = self._origin + (step - self.first) * world_size
        number = begin + self.sharing.rank
        known = self._known
        if known is None or not known[0] <= step < known[0] + len(known[1]):
            known = self._known = (step, *self._ahead(min(number, count - 1)))
        first, positions, borders, ids = known
        at = step - first
        # Behind it a step may be one that not all ranks have a batch in.
        whole = max(1, min(most, len(positions) - at, (count - begin) // world_size))
        rows = borders[at : at + whole + 1]
        # Copies: users get them, and one batch must not keep the whole window alive.
        own = np.concatenate(positions[at : at + whole]), ids[rows[0] : rows[-1]].copy()
        valid = None if number < count else np.zeros(len(own[0]), np.bool_)
        done = min(begin + whole * world_size, count)
        uneven = tuple((rows - rows[0]).tolist()) if whole > 1 else ()
        bins = self._bins(min(number, count - 1) + world_size * np.arange(whole))
        task = self._filled(step, *own, valid, done, whole, world_size, bins)
        return task._replace(uneven=uneven)

    def _bins(self, numbers: Rows) -> Rows | None:
        """Return the first row of each bin in some batches, counted over all of them."""
        if not isinstance(self.batches, CutBatches):
            return None
        found, rows = [], 0
        for number in numbers.tolist():
            bins = self.batches.bins(number)
            if bins is None:
                return None
            found.append(bins[:-1] + rows)
            rows += int(bins[-1])
        return np.concatenate([*found, np.array([rows])])

    def _ahead(self, first: int) -> tuple[list[Rows], Rows, Rows]:
        """Return positions, borders and records of this rank's batches from one on.

        As many as a window has rows, since each call of an order has a fixed cost.
        """
        found: list[Rows] = []
        borders = [0]
        for number in range(first, len(self.batches), self.sharing.world_size):
            found.append(self.batches.positions(number))
            borders.append(borders[-1] + len(found[-1]))
            if borders[-1] >= _WINDOW:
                break
        return found, np.array(borders), self.order.at(np.concatenate(found))


@dataclass(frozen=True, slots=True, repr=False)
class StepRecords:
    """The records of one step of one rank, and where they lie; nothing was read for it."""

    step: int
    epoch: int
    rank: int
    ids: NDArray[np.int64]
    """Record numbers, int64[B]."""
    valid: NDArray[np.bool_]
    """Which rows count, bool[B]."""
    files: list[str]
    """The path of each record; empty for records in memory."""
    offsets: NDArray[np.int64]
    """Where each begins (a row number where rows are no bytes), int64[B]."""
    bytes: NDArray[np.int64]
    """How long each is, int64[B]."""
    bins: NDArray[np.int64] | None = None
    """The first row of each bin of a `PackingPlan`, and at last B: int64[bins + 1]; else None."""

    def __repr__(self) -> str:
        rows = counted(len(self.ids), "row")
        lines = [f"epoch {self.epoch}, step {self.step:,}, rank {self.rank}: {rows}"]
        for row in range(min(_SHOWN, len(self.ids))):
            place = f"  {self.files[row]} at {self.offsets[row]:,}" if self.files else ""
            mark = "" if self.valid[row] else "  (does not count)"
            lines.append(f"  record {self.ids[row]:,}{place}{mark}")
        if len(self.ids) > _SHOWN:
            lines.append(f"  … {len(self.ids) - _SHOWN:,} more")
        return without_secrets("\n".join(lines))


def step_records(task: Task, rank: int, source: Source) -> StepRecords:
    """Return the records of a task with their places."""
    ids = task.where.ids
    files: list[str] = []
    offsets = sizes = np.zeros(len(ids), np.int64)
    if source.files and len(ids):
        numbers, offsets, sizes = (np.asarray(one, np.int64) for one in source.location(ids))
        files = [source.files[number] for number in numbers.tolist()]
    valid = np.ones(len(ids), bool) if task.valid is None else task.valid
    where = task.where
    places = (files, offsets, sizes)
    return StepRecords(task.step, where.epoch, rank, ids, valid, *places, where.bins)
