"""A task becomes what a batch is made of, wherever that is done."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from penstock.errors import MalformedLineError, SchemaMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.batch import BatchPosition
    from penstock.datasets import Source
    from penstock.loading._recipes import Recipe
    from penstock.loading._steps import Task

OnError: TypeAlias = Literal["raise", "mask"]

OF_A_RECORD = (MalformedLineError, SchemaMismatchError)
"""What is wrong with single records; everything else is wrong with the whole batch."""
_SHOWN = 5


class Bad(NamedTuple):
    """A record that turned out to be bad."""

    row: int
    id: int
    why: str


class Gathered(NamedTuple):
    """Records that were read and decoded, and are not yet a batch."""

    read: Any
    bad: list[Bad]
    seconds: float


class Fetched(NamedTuple):
    """What the user's process makes a batch of."""

    made: Any
    bad: list[Bad]
    gathering: float
    """Seconds of reading and decoding."""
    encoding: float


class Fetch:
    """Reads and makes batches; small, picklable, used by any number of threads."""

    def __init__(self, source: Source, recipe: Recipe, on_error: OnError) -> None:
        self.source = source
        self.recipe = recipe
        self._on_error = on_error

    def __call__(self, task: Task) -> Fetched:
        """Return what the batch of a task is made of."""
        return self.finish(task, self.gather(task))

    def gather(self, task: Task) -> Gathered:
        """Read and decode the records of a task."""
        began = time.perf_counter()
        bad: list[Bad] = []
        try:
            read = self._read(task.where.ids, task.unread)
        except OF_A_RECORD as why:
            if self._on_error == "raise":
                raise self._told(why, task) from None
            bad = self._bad_rows(task)
            read = self._read_good(task, bad)
        except Exception as why:
            why.add_note(named_batch(task, self.source))
            raise
        return Gathered(read, bad, time.perf_counter() - began)

    def finish(self, task: Task, gathered: Gathered) -> Fetched:
        """Make of gathered records what is handed to the user's process."""
        began = time.perf_counter()
        read, bad, gathering = gathered
        try:
            made = self.recipe.make(read, task.where)
        except Exception as why:
            # A user's own callable decides for itself what is wrong with records.
            if not isinstance(why, OF_A_RECORD) or not self.recipe.is_pure:
                why.add_note(named_batch(task, self.source))
                raise
            if self._on_error == "raise":
                raise self._told(why, task) from None
            bad = self._bad_rows(task)
            made = self.recipe.make(self._read_good(task, bad), task.where)
        return Fetched(made, bad, gathering, time.perf_counter() - began)

    def _read(self, ids: NDArray[np.int64], unread: NDArray[np.bool_] | None) -> Any:  # noqa: ANN401
        if unread is None:
            return self.recipe.read(self.source, ids)
        return self._read_rows(ids, ~unread)

    def _read_good(self, task: Task, bad: list[Bad]) -> Any:  # noqa: ANN401
        good = np.ones(len(task.where.ids), bool)
        good[[one.row for one in bad]] = False
        if task.unread is not None:
            good &= ~task.unread
        return self._read_rows(task.where.ids, good)

    def _read_rows(self, ids: NDArray[np.int64], good: NDArray[np.bool_]) -> Any:  # noqa: ANN401
        """Read some rows, with stand-ins for the others."""
        read = self.recipe.read(self.source, ids[good])
        rows = np.where(good, np.cumsum(good) - 1, -1)
        return self.recipe.filled(read, rows, self.source)

    def _bad_rows(self, task: Task) -> list[Bad]:
        """Find the rows that cannot be read, or not made into what was asked for."""
        ids = task.where.ids
        rows = np.arange(len(ids)) if task.unread is None else np.flatnonzero(~task.unread)
        bad: list[Bad] = []
        stack = [rows]
        while stack:
            some = stack.pop()
            try:
                self._try(task.where, some)
            except OF_A_RECORD as why:
                if len(some) == 1:
                    bad.append(Bad(int(some[0]), int(ids[some[0]]), str(why)))
                else:
                    middle = len(some) // 2
                    stack += [some[middle:], some[:middle]]
        return bad

    def _try(self, where: BatchPosition, rows: NDArray[np.int64]) -> None:
        part = replace(where, positions=where.positions[rows], ids=where.ids[rows])
        read = self.recipe.read(self.source, part.ids)
        if self.recipe.is_pure:
            self.recipe.make(read, part)

    def _told(self, why: Exception, task: Task) -> Exception:
        """Return the error of a record with both remedies."""
        bad = self._bad_rows(task)
        if bad:
            numbers = sorted({one.id for one in bad})
            shown = ", ".join(map(str, numbers[:_SHOWN]))
            more = ", …" if len(numbers) > _SHOWN else ""
            them = "it" if len(numbers) == 1 else f"the {len(numbers)} bad records of this batch"
            text = (
                f"{bad[0].why.rstrip('.')}. To leave {them} out: DataLoader(…, "
                f"skip=[{shown}{more}]). To keep a row with valid=False for such records: "
                "on_error='mask'."
            )
            why.args = (text, *why.args[1:])
        why.add_note(named_batch(task, self.source))
        return why


def named_batch(task: Task, source: Source) -> str:
    """Return which records a batch has, and where the first of them lies."""
    ids = task.where.ids
    shown = ", ".join(map(str, ids[:_SHOWN].tolist()))
    text = f"In the batch of step {task.step:,} of epoch {task.where.epoch}: "
    text += f"records {shown}{' …' if len(ids) > _SHOWN else ''} ({len(ids):,} in all)"
    if source.files and len(ids):
        file, offset, _ = source.location(int(ids[0]))
        text += f", the first in {file} at {offset:,}"
    return text + "."
