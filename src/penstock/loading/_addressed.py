"""The feed of sources that answer by record number: an order, and a cursor in it."""

from __future__ import annotations

import operator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock._words import counted
from penstock.datasets import has_columns
from penstock.errors import OptionError
from penstock.loading._column_choice import choose_columns, without_any
from penstock.loading._feed import Opened, Placed, Reads
from penstock.loading._fetch import named_batch
from penstock.loading._options import read_skips
from penstock.loading._order_choice import (
    chosen_order,
    first_sequential,
    lies_remote,
    refuse_shuffled_stream,
)
from penstock.loading._run import resumed
from penstock.loading._steps import PlannedSteps, Steps, step_counts, step_records
from penstock.order import ORDERS, Cursor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.datasets import Source
    from penstock.loading._column_choice import Columns
    from penstock.loading._feed import FeedOptions
    from penstock.loading._recipes import Recipe
    from penstock.loading._steps import EpochSteps, Sharing, StepRecords, Task


class SourceReader(NamedTuple):
    """Reads the records of tasks, which are numbers, from one source."""

    source: Source
    is_remote: bool

    def opened(self, request: Task) -> Opened:
        return Opened(self.source, request)

    def name(self, request: Task) -> str:
        return named_batch(request, self.source)

    def place(self, request: Task) -> str:
        if not self.source.files:
            return ""
        file, offset, size = self.source.location(int(request.where.ids[0]))
        return f"{file}, bytes {offset:,} to {offset + size:,}"

    def warm_up(self, recipe: Recipe) -> None:
        # Else each worker of each pass does so for itself, in 0.3 s: pyarrow imports pandas, too,
        # where it is installed.
        if not self.is_remote and len(self.source):
            # A bad record raises when its batch is due.
            with suppress(Exception):
                recipe.read(self.source, np.zeros(1, np.int64))


class Addressed:
    """Tasks of record numbers, in an order that is a function; a `Feed`."""

    def __init__(self, source: Source, schema: pa.Schema | None, options: FeedOptions) -> None:
        self._source = source
        self._schema = schema
        self._options = options
        self._order = chosen_order(source, options.shuffle, through_columns=self._may_gather)
        self._skip = read_skips(options.skip, len(source))
        plan = options.plan
        self.begin = Cursor(
            fingerprint=source.fingerprint,
            length=len(source),
            seed=operator.index(options.seed),
            kind=self._order[0],
            order_version=ORDERS[self._order[0]].version,
            plan=None if plan is None else (plan.name, plan.version),
            skip=self._skip,
        )
        self._columns: Columns | None = None
        self._known_steps: tuple[Cursor, EpochSteps] | None = None

    def name(self, point: Cursor) -> tuple[str, str]:
        return counted(len(self._source), "record"), f"{point.kind} order"

    def describe(self, point: Cursor) -> dict[str, str]:
        kind, why = self._order
        if point.kind != kind:
            why = "as the state says"
        is_kept = not self._is_gathered(point) and self._read_from(point) is not self._source
        about = self._source._about()  # noqa: SLF001 (a source describes itself)
        return {
            "source": f"{counted(point.length, 'record')}{about and f' ({about})'}, fingerprint "
            f"{point.fingerprint}",
            "order": f"{point.kind}, seed {point.seed}: {why}",
            "blocks": "remote and large ones are kept on this host's disk, for all its processes"
            if is_kept
            else "read as they are needed",
            "columns": self._chosen(point).describe(self._schema),
            "state": f"epoch {point.epoch}, position {point.position:,}",
        }

    # How records are read.

    def prepare(self, point: Cursor) -> None:
        masked = self._options.max_bad if self._options.on_error == "mask" else 0
        most_bad = masked + sum(stop - start for start, stop in self._skip)
        self._columns = self._chosen(point).built(most_bad)

    def reads(self, point: Cursor) -> Reads:
        is_remote = lies_remote(self._source)
        is_sequential = is_remote and first_sequential(self._source) is not None
        return Reads(is_remote, is_sequential, from_columns=self._is_gathered(point))

    def reader(self, point: Cursor) -> tuple[SourceReader, bool]:
        return SourceReader(self._read_from(point), lies_remote(self._source)), point.kind == "full"

    def _read_from(self, point: Cursor) -> Source:
        """Return the source as it is read best in the order of a point."""
        columns = self._chosen(point)
        if columns.are_used:
            return columns.source
        kind = point.kind
        if kind == "full" or (kind == "sequential" and not lies_remote(self._source)):
            return self._source
        # A block is fetched once, for all its records, to all processes of this host.
        return self._source.by_blocks()

    @property
    def _may_gather(self) -> bool:
        """Whether batches can come out of columns."""
        schema = self._schema
        if schema is None or without_any(self._source):
            return False
        return self._options.materialize is not False or has_columns(self._source, schema)

    def _chosen(self, point: Cursor) -> Columns:
        if self._columns is None:
            self._columns = choose_columns(
                self._source, self._schema, self._options, shuffled=point.kind != "sequential"
            )
        return self._columns

    def _is_gathered(self, point: Cursor) -> bool:
        """Whether batches come out of columns, which may still be to build."""
        columns = self._chosen(point)
        return columns.are_used or columns.to_build is not None

    # Which records a step has.

    def requests(
        self, point: Cursor, sharing: Sharing, together: Callable[[], int]
    ) -> Iterator[Placed]:
        steps = self._steps(point, sharing)
        number = steps.first
        while number < len(steps):
            task = steps.task(number, together())
            number += task.steps
            yield Placed(steps.cursor, task)

    def note(self, request: Task, task: Task) -> None:
        """Learn nothing: a task has its records from the beginning."""

    def steps(self, point: Cursor, sharing: Sharing) -> int:
        if sharing.plan is not None:
            return len(self._steps(point, sharing))
        return sum(step_counts(point, sharing))

    def records(self, point: Cursor, step: int, sharing: Sharing) -> StepRecords:
        steps = self._epoch(point, sharing)
        if 0 <= step < steps.first and point.position % sharing.global_batch_size == 0:
            steps = self._epoch(point.at(position=0), sharing)
        return step_records(steps.task(step), sharing.rank, self._source)

    def _steps(self, point: Cursor, sharing: Sharing) -> EpochSteps:
        known = self._known_steps
        if known is None or known[0] != point or known[1].sharing != sharing:
            known = self._known_steps = (point, self._epoch(point, sharing))
        return known[1]

    def _epoch(self, point: Cursor, sharing: Sharing) -> EpochSteps:
        blocks = self._blocks if point.needs_blocks else None
        return (Steps if sharing.plan is None else PlannedSteps)(point, blocks, sharing)

    @cached_property
    def _blocks(self) -> NDArray[np.int64]:
        return self._source.blocks

    # Where a run stands.

    def state(self, point: Cursor) -> dict[str, object]:
        if point.needs_blocks and not point.position:
            # The lanes are known with the order, which is made with the first batch.
            point = point.at(lanes=point.order(self._blocks).lanes)
        return point.to_dict()

    def resumed(self, state: Mapping[str, Any]) -> Cursor:
        cursor = resumed(state, self._source, self._skip, self._options.on_changed)
        if cursor.plan != self.begin.plan:
            then, now = (
                f"batches by the plan {plan[0]!r}, version {plan[1]}" if plan else "equal batches"
                for plan in (cursor.plan, self.begin.plan)
            )
            raise OptionError(
                f"the state counts {then}, and this loader has {now}: give the batch_size that the "
                "state was saved with."
            )
        if cursor.kind != "sequential" and not self._may_gather:
            refuse_shuffled_stream(self._source)
        return cursor
