"""The feed of sources that answer by record number: an order, and a cursor in it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from penstock._words import counted
from penstock.datasets import Source, Stream, remember_files, without_columns
from penstock.errors import OptionError
from penstock.loading._column_choice import choose_columns, without_any
from penstock.loading._feed import Placed, Reads
from penstock.loading._kept_plans import check_plan, describe_plan, plan_before, plan_facts
from penstock.loading._mixing import MixtureChoice, seed_of
from penstock.loading._options import read_skips
from penstock.loading._order_choice import (
    OrderChoice,
    chosen_order,
    first_sequential,
    lies_remote,
    refuse_shuffled_stream,
)
from penstock.loading._run import refuse_finished, resumed
from penstock.loading._source_reader import SourceReader
from penstock.loading._steps import PlannedSteps, Sharing, Steps, step_counts, step_records
from penstock.loading._weights import WeightChoice
from penstock.loading.streams._feed import StreamFeed
from penstock.order import ORDERS, Cursor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from penstock.loading._column_choice import Columns
    from penstock.loading._feed import Feed, FeedOptions
    from penstock.loading._recipes import Recipe
    from penstock.loading._steps import EpochSteps, StepRecords
    from penstock.order import Skip


def feed_of(source: Any, recipe: Recipe, options: FeedOptions) -> Feed:  # noqa: ANN401
    """Return the feed of a new run over a source, or over what has a feed of its own."""
    if options.materialize is True and recipe.schema is None:
        raise OptionError(
            "materialize=True needs to know the fields and their types: give them as encode, as in "
            "{'price': 'float32'}. Records as they are have no columns."
        )
    if isinstance(source, Source):
        return Addressed(source, recipe, options)
    if options.weights is not None or options.balance is not None:
        raise OptionError("weights and balance need records that have numbers: leave them out.")
    if isinstance(source, Stream):
        return StreamFeed(source, options)
    feed: Feed = source.__penstock_feed__(options)
    return feed


def order_choice(
    source: Source, options: FeedOptions, skip: Skip, *, through_columns: bool = False
) -> OrderChoice:
    """Return the order that options ask for: of a mixture, by weights, or by `shuffle`."""
    has_weights = options.weights is not None or options.balance is not None
    if options.mixture is None and not has_weights:
        return OrderChoice(*chosen_order(source, options.shuffle, through_columns=through_columns))
    if not through_columns:
        refuse_shuffled_stream(source)
    if options.mixture is None:
        return WeightChoice.of(source, options, skip)
    if has_weights:
        raise OptionError(
            "a Mixture has weights of its own, of its sources: leave weights and balance out."
        )
    return MixtureChoice.of(source, options)


def begin_of(
    source: Source,
    options: FeedOptions,
    choice: OrderChoice,
    skip: tuple[tuple[int, int], ...],
) -> Cursor:
    """Return where a new run over a source stands."""
    return Cursor(
        fingerprint=source.fingerprint,
        length=len(source),
        seed=seed_of(options),
        kind=choice.kind,
        own=choice.own,
        order_version=ORDERS[choice.kind].version,
        plan=plan_facts(options.plan, len(source)),
        skip=skip,
    )


class Addressed:
    """Tasks of record numbers, in an order that is a function; a `Feed`."""

    def __init__(self, source: Source, recipe: Recipe, options: FeedOptions) -> None:
        self._source = self._given = source
        self._has_codes = any(type_.startswith("category") for type_ in recipe.types.values())
        """Whether values are numbered as they come in the source."""
        self._schema = recipe.schema
        self._is_loose = getattr(recipe, "loose", None) is not None
        self._options = options
        self._skip = read_skips(options.skip, len(source))
        self._choice = order_choice(source, options, self._skip, through_columns=self._may_gather)
        self.begin = begin_of(source, options, self._choice, self._skip)
        self.plan = options.plan
        """The plan over `source`."""
        self._columns: Columns | None = None
        self._by_blocks: tuple[Source, Source] | None = None
        """A source, and the same one read by whole blocks."""
        self._known_steps: tuple[Cursor, EpochSteps] | None = None

    @property
    def source(self) -> Source:
        """The records under the numbers of the run: without those appended since it began."""
        return self._source

    def name(self, point: Cursor) -> tuple[str, str]:
        return counted(len(self._source), "record"), f"{point.kind} order"

    def describe(self, point: Cursor) -> dict[str, str]:
        why = self._choice.why if point.kind == self._choice.kind else "as the state says"
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
        } | self._planned(point)

    def _planned(self, point: Cursor) -> dict[str, str]:
        plan = self.plan
        if plan is None:
            return {}
        steps = self._steps(point, Sharing(1, plan=plan))
        assert isinstance(steps, PlannedSteps)  # noqa: S101 (by its plan)
        return {"plan": describe_plan(plan, steps.order, steps.batches)[0]}

    # How records are read.

    def prepare(self, point: Cursor) -> None:
        masked = self._options.max_bad if self._options.masked else 0
        most_bad = masked + sum(stop - start for start, stop in self._skip)
        # An encoder that takes values which do not fit needs no columns to read them.
        decodes = self._is_loose and (
            point.kind == "sequential" or first_sequential(self._source) is None
        )
        self._columns = self._chosen(point).built(most_bad, decodes_misfits=decodes)
        table = self._choice.table(point, self._source)
        if table is not None and point.order_length:
            table()

    def reads(self, point: Cursor) -> Reads:
        is_sequential = self._is_remote and first_sequential(self._source) is not None
        is_table = self._schema is not None and not self._source.files
        is_table = is_table and self._source.schema_is_complete
        from_columns = is_table or self._is_gathered(point)
        return Reads(self._is_remote, is_sequential, from_columns=from_columns)

    def reader(self, point: Cursor) -> tuple[SourceReader, bool]:
        is_mixed = point.kind not in ("sequential", "block")
        return SourceReader(self._read_from(point), self._is_remote), is_mixed

    def _read_from(self, point: Cursor) -> Source:
        """Return the source as it is read best in the order of a point."""
        columns = self._chosen(point)
        if columns.are_used:
            return columns.source
        is_sequential = point.kind == "sequential" and self._is_remote
        if not is_sequential and not point.needs_blocks:
            return self._source
        # A block is fetched once, for all its records, to all processes of this host.
        # The same one for all passes, whose worker processes may be kept.
        if self._by_blocks is None or self._by_blocks[0] is not self._source:
            self._by_blocks = (self._source, self._source.by_blocks())
        return self._by_blocks[1]

    @property
    def _may_gather(self) -> bool:
        """Whether batches can come out of columns."""
        schema = self._schema
        if schema is None or without_any(self._source):
            return False
        asks = self._options.materialize is not False
        return asks or not len(without_columns(self._source, schema))

    def _chosen(self, point: Cursor) -> Columns:
        if self._columns is None:
            how = {"shuffled": point.kind != "sequential", "remote": self._is_remote}
            self._columns = choose_columns(self._source, self._schema, self._options, **how)
        return self._columns

    def _is_gathered(self, point: Cursor) -> bool:
        """Whether batches come out of columns, which may still be to build."""
        columns = self._chosen(point)
        return columns.are_used or columns.to_build is not None

    # Which records a step has.

    def requests(
        self, point: Cursor, sharing: Sharing, together: Callable[[], int], peers: object
    ) -> Iterator[Placed]:
        steps = self._steps(point, sharing)
        number = steps.first
        while number < len(steps):
            task = steps.task(number, together())
            number += task.steps
            yield Placed(steps.cursor, task)

    def steps(self, point: Cursor, sharing: Sharing) -> int:
        if point.own.get("stop") == "repeat":
            raise TypeError("a loader of a mixture with stop='repeat' has no length: no epoch ends")
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
        is_blocked = point.needs_blocks
        given = self._blocks if is_blocked else self._choice.table(point, self._source)
        return (Steps if sharing.plan is None else PlannedSteps)(point, given, sharing)

    @cached_property
    def _is_remote(self) -> bool:
        return lies_remote(self._source)

    @cached_property
    def _blocks(self) -> NDArray[np.int64]:
        return self._source.blocks

    # Where a run stands.

    def state(self, point: Cursor) -> dict[str, object]:
        if point.needs_blocks and not point.position:
            # The lanes are known with the order, which is made with the first batch.
            point = point.at(lanes=point.order(self._blocks).lanes)
        remember_files(self._source, point.fingerprint)
        return point.to_dict()

    def is_whole(self, point: Cursor) -> bool:
        return True

    def joined(self, states: Sequence[Mapping[str, Any]]) -> dict[str, object]:
        return dict(states[0])

    def resumed(self, state: Mapping[str, Any]) -> Cursor:
        cursor = resumed(state, self._given, self._skip, self._options.on_changed, self._choice)
        source = self._choice.as_it_was(cursor, self._given)
        plan = plan_before(self._options.plan, self._given, source)
        cursor = check_plan(cursor, plan, self._options.on_changed)
        if cursor.kind != "sequential" and not self._may_gather:
            refuse_shuffled_stream(self._source)
        if (self._has_codes or self._choice.is_by_field) and self._options.on_changed == "raise":
            refuse_finished(source, cursor.length)
        self.plan = plan
        self._go_over(source)
        return cursor

    def _go_over(self, source: Source) -> None:
        """Read records from another source from now on: from one that has not grown yet."""
        if source is self._source:
            return
        self._source, self._columns, self._known_steps = source, None, None
        for known in ("_blocks", "_is_remote"):
            vars(self).pop(known, None)
