"""The decisions of a loader, and the records of a step, in words and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets import Source
    from penstock.loading._steps import Task

_SHOWN = 10


class Decisions(dict[str, str]):
    """Decisions by name; prints as a list."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.items())


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

    def __repr__(self) -> str:
        lines = [
            f"epoch {self.epoch}, step {self.step:,}, rank {self.rank}: {len(self.ids):,} rows"
        ]
        for row in range(min(_SHOWN, len(self.ids))):
            place = f"  {self.files[row]} at {self.offsets[row]:,}" if self.files else ""
            mark = "" if self.valid[row] else "  (does not count)"
            lines.append(f"  record {self.ids[row]:,}{place}{mark}")
        if len(self.ids) > _SHOWN:
            lines.append(f"  … {len(self.ids) - _SHOWN:,} more")
        return "\n".join(lines)


def step_records(task: Task, rank: int, source: Source) -> StepRecords:
    """Return the records of a task with their places."""
    ids = task.where.ids
    files: list[str] = []
    offsets = sizes = np.zeros(len(ids), np.int64)
    if source.files and len(ids):
        numbers, offsets, sizes = (np.asarray(one, np.int64) for one in source.location(ids))
        files = [source.files[number] for number in numbers.tolist()]
    valid = np.ones(len(ids), bool) if task.valid is None else task.valid
    return StepRecords(task.step, task.where.epoch, rank, ids, valid, files, offsets, sizes)
