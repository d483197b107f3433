"""One epoch as one rank sees it: which records each step has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.batch import BatchPosition
from penstock.errors import RecordIndexError
from penstock.order import Skips, share_full, share_rows, steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.order import Cursor, Plan, RecordOrder

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

    @property
    def global_batch_size(self) -> int:
        """Records of one step, over all ranks."""
        return self.batch_size * self.world_size


def step_counts(cursor: Cursor, sharing: Sharing) -> tuple[int, int]:
    """Return how many steps of a cursor's epoch lie before it, and how many behind.

    >>> from penstock.order import Cursor
    >>> step_counts(Cursor(fingerprint="", length=10, position=4), Sharing(batch_size=3))
    (2, 2)
    """
    length = Skips(cursor.order_skip, cursor.length).kept
    origin = min(cursor.position, length)
    rest = steps(length, sharing.batch_size, sharing.world_size, sharing.drop_last, origin=origin)
    return -(-origin // sharing.global_batch_size), rest


class Task(NamedTuple):
    """The batch of one step, or of several whole steps that are read together.

    It says which records to read, and where the run stands afterwards.
    """

    step: int
    """The first of them."""
    where: BatchPosition
    """Of the rows of all steps."""
    valid: NDArray[np.bool_] | None
    """Which rows count, bool[B]; None where all do."""
    unread: NDArray[np.bool_] | None
    """Rows that were skipped in mid-epoch and are not read, bool[B]; None where there are none."""
    position: Any
    """The position in the epoch after the last of its batches."""
    steps: int = 1
    each: int = 1
    """Positions that every one of several steps hands out, over all ranks."""

    @property
    def positions(self) -> Sequence[Any]:
        """`position` after each of its steps."""
        if self.steps == 1:
            return (self.position,)
        return range(self.position - (self.steps - 1) * self.each, self.position + 1, self.each)

    def apart(self) -> list[Task]:
        return [self.part(number, number + 1) for number in range(self.steps)]

    def part(self, start: int, stop: int) -> Task:
        if (start, stop) == (0, self.steps):
            return self
        rows = len(self.where.ids) // self.steps
        own = slice(start * rows, stop * rows)
        part = self.where.part(own.start, own.stop)
        valid = None if self.valid is None else self.valid[own]
        unread = None if self.unread is None else self.unread[own]
        valid = None if valid is None or valid.all() else valid
        unread = None if unread is None or not unread.any() else unread
        position = self.positions[stop - 1]
        return Task(self.step + start, part, valid, unread, position, stop - start, self.each)


class EpochSteps(ABC):
    """The steps of a cursor's epoch, counted from its beginning."""

    def __init__(self, cursor: Cursor, blocks: NDArray[np.int64] | None, sharing: Sharing) -> None:
        self.order: RecordOrder = cursor.order(blocks)
        self.cursor = cursor.at(position=cursor.position, lanes=self.order.lanes)
        self.sharing = sharing
        self.first = self._rest = 0
        """Steps that lie before the cursor, and behind it."""
        self._masked = Skips(cursor.masked, cursor.length) if cursor.masked else None

    def __len__(self) -> int:
        return self.first + self._rest

    def task(self, step: int, most: int = 1) -> Task:
        """Return the batch of a step, from `first` to `len(self) - 1`.

        With `most` it has up to so many steps, as long as no row is missing in them.
        """
        if not self.first <= step < len(self):
            there = f"those from {self.first:,} to {len(self) - 1:,}" if self._rest else "any"
            raise RecordIndexError(f"step {step:,} of epoch {self.cursor.epoch} is not {there}.")
        return self._task(step, most)

    @abstractmethod
    def _task(self, step: int, most: int) -> Task: ...

    def _where(
        self, positions: NDArray[np.int64], ids: NDArray[np.int64], valid: NDArray[np.bool_] | None
    ) -> tuple[BatchPosition, NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
        """Return the position of a batch, which of its rows count, and which are not read."""
        unread = None if self._masked is None else self._masked.hold(ids)
        unread = None if unread is None or not unread.any() else unread
        if unread is not None:
            valid = ~unread if valid is None else valid & ~unread
        cursor = self.cursor
        where = BatchPosition(cursor.seed, cursor.epoch, positions, ids)
        return where, valid, unread


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

    def __init__(self, cursor: Cursor, blocks: NDArray[np.int64] | None, sharing: Sharing) -> None:
        super().__init__(cursor, blocks, sharing)
        self._origin = min(cursor.position, len(self.order))
        self.first, self._rest = step_counts(cursor, sharing)
        self._whole = (len(self.order) - self._origin) // sharing.global_batch_size
        self._window = max(1, _WINDOW // sharing.batch_size)
        self._share = (sharing.batch_size, sharing.rank, sharing.world_size, len(self.order))
        self._layout = {"origin": self._origin, "lanes": self.order.lanes}
        self._known: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None

    def _task(self, step: int, most: int) -> Task:
        number, count = step - self.first, 1
        if number < self._whole:
            positions, ids = self._full(number, most)
            count = len(ids) // self.sharing.batch_size
            valid = None
        else:
            drop_last = self.sharing.drop_last
            positions, valid = share_rows(number, *self._share, drop_last, **self._layout)
            ids = self.order.at(positions)
            valid = None if valid.all() else valid
        where, valid, unread = self._where(positions, ids, valid)
        each = self.sharing.global_batch_size
        done = min(self._origin + (number + count) * each, len(self.order))
        return Task(step, where, valid, unread, done, count, each)

    def _full(self, number: int, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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

    def __init__(self, cursor: Cursor, blocks: NDArray[np.int64] | None, sharing: Sharing) -> None:
        super().__init__(cursor, blocks, sharing)
        assert sharing.plan is not None  # noqa: S101 (who makes steps has looked)
        self._batches = sharing.plan.over(self.order)
        self._origin = min(cursor.position, len(self._batches))
        whole, rest = divmod(len(self._batches) - self._origin, sharing.world_size)
        self.first = -(-self._origin // sharing.world_size)
        self._rest = whole + (rest > 0 and not sharing.drop_last)

    def _task(self, step: int, most: int) -> Task:
        world_size, count = self.sharing.world_size, len(self._batches)
        begin = self._origin + (step - self.first) * world_size
        number = begin + self.sharing.rank
        positions = self._batches.positions(min(number, count - 1))
        valid = None if number < count else np.zeros(len(positions), np.bool_)
        where, valid, unread = self._where(positions, self.order.at(positions), valid)
        return Task(step, where, valid, unread, min(begin + world_size, count))


def epoch_steps(
    cursor: Cursor, blocks: NDArray[np.int64] | None, sharing: Sharing
) -> Steps | PlannedSteps:
    return (Steps if sharing.plan is None else PlannedSteps)(cursor, blocks, sharing)
