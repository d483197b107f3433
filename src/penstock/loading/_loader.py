"""The one loader in the middle: a source goes in, batches come out."""

from __future__ import annotations

import operator
from contextlib import closing
from copy import copy, deepcopy
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Self

from penstock.datasets import Source, has_columns
from penstock.datasets import open as open_source
from penstock.errors import OptionError
from penstock.loading._column_choice import choose_columns, refuse_without_fields
from penstock.loading._delivery import Delivery, Placed, moved
from penstock.loading._encoder_choice import recipe_for
from penstock.loading._explain import Decisions, StepRecords, step_records
from penstock.loading._fetch import Fetch
from penstock.loading._options import check_choice, seconds, whole_or_none
from penstock.loading._order_choice import chosen_order, lies_remote, refuse_shuffled_gzip
from penstock.loading._ranks import Ranks, find_ranks, rank_batch_size
from penstock.loading._resume import ENCODER, learnt_in, refuse_other_plan, resumed
from penstock.loading._run import Run
from penstock.loading._skip_list import read_skips
from penstock.loading._stats import Stats
from penstock.loading._steps import Sharing, epoch_steps, step_counts
from penstock.loading.engines._choice import choose_workers
from penstock.order import Cursor, Plan, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.context import BaseContext

    import numpy as np
    from numpy.typing import NDArray

    from penstock.loading._column_choice import Columns
    from penstock.loading._fetch import OnError
    from penstock.loading._run import Start
    from penstock.loading._skip_list import Skipped
    from penstock.loading._steps import EpochSteps
    from penstock.loading.engines._choice import Workers
    from penstock.loading.engines._engines import Engine
    from penstock.order import Kind


class DataLoader:
    """Batches of a source: shuffled, shared over ranks, made ahead of time, resumable exactly.

    `source` is a Source or anything `penstock.open` takes. `encode` says what a batch is: a dict of
    field types, a list of names, `Tokens`, a callable from an Arrow record batch to tensors;
    without it a batch is a list of records, and of tokens a tensor with `ids` and `valid` as
    attributes. A state holds nothing of ranks or workers: another number of them goes on with the
    very next record.

    >>> records = [{"n": number} for number in range(10)]
    >>> loader = DataLoader(records, batch_size=4, shuffle=True, seed=1)
    >>> [len(batch) for batch in loader], len(loader)
    ([4, 4, 2], 3)
    >>> loader.set_epoch(0)
    >>> run = iter(loader)
    >>> first, state = next(run), loader.state_dict()
    >>> other = DataLoader(records, batch_size=4, shuffle=True, seed=1)
    >>> other.load_state_dict(state)
    >>> list(other) == list(run)
    True
    """

    def __init__(  # noqa: PLR0913 (what a run can decide)
        self,
        source: Any,  # noqa: ANN401 (anything `open` takes)
        encode: Any = None,  # noqa: ANN401 (types, names, an encoder, a callable)
        *,
        batch_size: int | Plan | None = None,
        global_batch_size: int | None = None,
        shuffle: bool | Literal["full", "block"] = False,
        seed: int = 0,
        epochs: int | None = 1,
        drop_last: bool = False,
        num_workers: int | Literal["auto"] = "auto",
        materialize: Literal["auto"] | bool = "auto",
        on_error: OnError = "raise",
        max_bad: int = 100,
        skip: Skipped = None,
        rank: int | None = None,
        world_size: int | None = None,
        mesh: object = None,
        on_changed: Literal["raise", "continue"] = "raise",
        output: Literal["arrow"] | None = None,
        pin_memory: bool = False,
        prefetch_to: object = None,
        multiprocessing_context: str | BaseContext | None = None,
        stall_timeout: float = 600,
    ) -> None:
        check_choice("on_error", on_error, ("raise", "mask"))
        check_choice("on_changed", on_changed, ("raise", "continue"))
        check_choice("materialize", materialize, ("auto", True, False))
        if batch_size is None and global_batch_size is None:
            raise OptionError("give batch_size (of each rank), or global_batch_size (of all).")
        if isinstance(batch_size, Plan) and global_batch_size is not None:
            raise OptionError("a plan as batch_size cuts all batches: leave global_batch_size out.")
        self.source: Source = source if isinstance(source, Source) else open_source(source)
        self._plan = batch_size if isinstance(batch_size, Plan) else None
        size = 1 if isinstance(batch_size, Plan) else batch_size
        self.batch_size = whole_or_none("batch_size", size)
        self.global_batch_size = whole_or_none("global_batch_size", global_batch_size)
        self.drop_last = bool(drop_last)
        self._epochs = whole_or_none("epochs", epochs)
        self._on_changed = on_changed
        self._max_bad = whole_number("max_bad", max_bad, 0)
        self._pin_memory = pin_memory
        self._prefetch_to = prefetch_to
        self._stall_timeout = seconds("stall_timeout", stall_timeout)
        self._ranks_told = (rank, world_size, mesh)
        self.source, self._recipe = recipe_for(self.source, encode, output)
        refuse_without_fields(materialize, self._recipe.schema)
        self._materialize = materialize
        self._shuffle = chosen_order(self.source, shuffle, through_columns=self._may_gather)
        self._on_error = on_error
        self._workers_told = (num_workers, multiprocessing_context)
        choose_workers(*self._workers_told, self.source)  # What cannot be is told at once.
        self._skip = read_skips(skip, len(self.source))
        cursor = Cursor(
            fingerprint=self.source.fingerprint,
            length=len(self.source),
            seed=operator.index(seed),
            kind=self._shuffle[0],
            plan=None if self._plan is None else (self._plan.name, self._plan.version),
            skip=self._skip,
        )
        self._run = Run(cursor, self._epochs)
        self._stats = Stats()
        self._known_steps: tuple[Cursor, EpochSteps] | None = None
        if rank is not None or mesh is not None:
            self._sharing()  # Else the ranks are known when a pass begins.

    # Where it stands.

    def state_dict(self) -> dict[str, object]:
        """Return where the run stands, up to the last batch handed out, in plain JSON types."""
        cursor = self._run.cursor
        if cursor.kind == "block" and not cursor.position:
            # How many lanes there are is known with the order, which is made with the first batch.
            cursor = cursor.at(lanes=cursor.order(self._blocks).lanes)
        state = cursor.to_dict()
        if self._recipe.learner is not None:
            state[ENCODER] = self._recipe.learner.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the very next record after the last batch of a saved state."""
        rest, learnt = learnt_in(state, self._recipe.learner)
        cursor = resumed(rest, self.source, self._skip, self._on_changed)
        refuse_other_plan(cursor, self._run.cursor)
        if cursor.kind != "sequential" and not self._may_gather:
            refuse_shuffled_gzip(self.source)
        if self._recipe.learner is not None:
            self._recipe.learner.load_state_dict(learnt)
        self._run.go_to(cursor)

    def __copy__(self) -> Self:
        """Return a loader over the same source that goes on by itself from here."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._run, twin._stats = copy(self._run), deepcopy(self._stats)
        if self._recipe.learner is not None:
            twin._recipe = deepcopy(self._recipe)
        return twin

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be over this epoch; without it, each pass is over the next one.

        The epoch that a loaded state stands in goes on where the state says.
        """
        self._run.set_epoch(whole_number("epoch", epoch, 0))

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """What Lightning tells the epoch: it looks for `batch_sampler.sampler.set_epoch`."""
        return SimpleNamespace(sampler=self)

    @property
    def dataset(self) -> Source:
        """The source, by the name that torch's loader has for it."""
        return self.source

    def __len__(self) -> int:
        """Return the batches of a pass, those before a loaded state's included."""
        if self._epochs is None:
            raise TypeError("a loader with epochs=None has no length: it does not end")
        cursor = self._run.cursor
        first = cursor.epoch - cursor.epoch % self._epochs
        others = [n for n in range(first, first + self._epochs) if n != cursor.epoch]
        cursors = [cursor, *(cursor.at(epoch, 0) for epoch in others)]
        if self._plan is not None:
            return sum(len(self._steps(one)) for one in cursors)
        return sum(sum(step_counts(one, self._sharing())) for one in cursors)

    # What comes out.

    def __iter__(self) -> Iterator[Any]:
        """Go over the rest of the epoch of a loaded state, or else over the next epoch."""
        return self._pass(self._run.start(), self._run.tellings)

    def _pass(self, start: Start, tellings: int) -> Iterator[Any]:
        if tellings != self._run.tellings:
            # Lightning makes an iterator, then sets the epoch, then asks for the first batch.
            start = self._run.start()
        self._columns = self._columns.built(self._most_bad)  # Before the run moves, should it fail.
        number = self._run.begin(start)
        tally = self._stats.begin_pass()
        try:
            delivery = Delivery(
                Fetch(self._read_from(start.cursor.kind), self._recipe, self._on_error),
                tally,
                self._stats.bad_ids,
                self._ranks(),
                self._stall_timeout,
                self._max_bad,
                self._pin_memory,
            )
            is_mixed = start.cursor.kind == "full"
            with closing(self._workers().engine(delivery.fetch, is_mixed=is_mixed)) as engine:
                lots = delivery.lots(engine, self._tasks(engine, *start))
                if self._prefetch_to is not None:
                    # An encoder that learns is asked for no batch before its turn.
                    is_ahead = self._recipe.learner is None
                    lots = moved(lots, self._prefetch_to, is_ahead=is_ahead)
                run = self._run
                for lot in lots:
                    tally.begin(lot)
                    # What is done here for each is, of tokens, a third of what a batch costs.
                    for position, batch in zip(lot.positions, lot.batches, strict=True):
                        run.move(number, lot.epoch, position)
                        tally.handed_out()
                        yield batch
                        tally.came_back()
                if start.epochs is not None:
                    self._run.end(number, start.cursor.epoch + start.epochs)
        finally:
            self._stats.end_pass(tally)

    @property
    def _may_gather(self) -> bool:
        """Whether batches can come out of columns."""
        schema = self._recipe.schema
        return schema is not None and (
            self._materialize is not False or has_columns(self.source, schema)
        )

    @cached_property
    def _columns(self) -> Columns:
        return choose_columns(
            self.source,
            self._recipe.schema,
            self._materialize,
            shuffled=self._run.present.kind != "sequential",
            patience=self._stall_timeout,
        )

    @property
    def _most_bad(self) -> int:
        """Bad records that a pass bears, those that are left out included."""
        allowed = self._max_bad if self._on_error == "mask" else 0
        return allowed + sum(stop - start for start, stop in self._skip)

    @property
    def _is_gathered(self) -> bool:
        """Whether batches come out of columns, which may still be to build."""
        return self._columns.are_used or self._columns.to_build is not None

    def _workers(self) -> Workers:
        return choose_workers(
            *self._workers_told,
            self.source,
            from_columns=self._is_gathered,
            from_tokens=self._recipe.reads_tokens,
            batch_size=self._sharing().batch_size,
        )

    def _read_from(self, kind: Kind) -> Source:
        """Return the source as it is read best in a kind of order."""
        if self._columns.are_used:
            return self._columns.source
        if kind == "full" or (kind == "sequential" and not lies_remote(self.source)):
            return self.source
        # A block is brought once, for all its records, to all processes of this host.
        return self.source.by_blocks()

    def _tasks(self, engine: Engine, cursor: Cursor, epochs: int | None) -> Iterator[Placed]:
        """Yield the tasks of a pass, of as many steps as the engine likes, each with its epoch."""
        while True:
            steps = self._steps(cursor)
            number = steps.first
            while number < len(steps):
                task = steps.task(number, engine.together)
                number += task.steps
                yield Placed(steps.cursor, task)
            epochs = None if epochs is None else epochs - 1
            # An epoch without a batch would repeat itself for ever.
            if epochs == 0 or not len(steps):
                return
            cursor = cursor.at(cursor.epoch + 1, 0)

    # What is known of it.

    def stats(self) -> dict[str, float]:
        """Return where the time went and what was read, over all batches handed out."""
        return self._stats.numbers()

    def explain(self, step: int | None = None, rank: int | None = None) -> Decisions | StepRecords:
        """Return what was decided and why; or with a step the records of that step's batch.

        Steps count from the beginning of the present epoch. Nothing is read for a step, and for
        the decisions a few records, to tell what columns would cost.
        """
        if step is None:
            return self._decisions()
        sharing = self._sharing(rank)
        cursor = self._run.present
        steps = epoch_steps(cursor, self._borders(cursor), sharing)
        number = operator.index(step)
        whole = cursor.position % sharing.global_batch_size == 0
        if 0 <= number < steps.first and whole:
            steps = epoch_steps(cursor.at(position=0), self._borders(cursor), sharing)
        return step_records(steps.task(number), sharing.rank, self.source)

    def _decisions(self) -> Decisions:
        ranks, sharing, cursor = self._ranks(), self._sharing(), self._run.cursor
        kind, why = self._shuffle
        if cursor.kind != kind:
            why = "as the state says"
        is_kept = not self._is_gathered and self._read_from(cursor.kind) is not self.source
        about = self.source._about()  # noqa: SLF001 (for those who ask)
        return Decisions(
            source=f"{cursor.length:,} records{about and f' ({about})'}, fingerprint "
            f"{cursor.fingerprint}",
            order=f"{cursor.kind}, seed {cursor.seed}: {why}",
            batch=self._recipe.describe(),
            sharing=f"rank {ranks.rank} of {ranks.world_size} ({ranks.why}), "
            + (
                f"{sharing.batch_size} records a batch, {sharing.global_batch_size} a step over "
                "all ranks"
                if self._plan is None
                else f"batches by the plan {self._plan.name!r}, one a rank and step"
            ),
            workers=self._workers().describe(),
            blocks="remote and large ones are kept on this host's disk, for all its processes"
            if is_kept
            else "read as they are needed",
            columns=self._columns.told(self._recipe.schema),
            state=f"epoch {cursor.epoch}, position {cursor.position:,}",
        )

    def __repr__(self) -> str:
        size = f"batch_size={self._plan or self.batch_size}"
        if self.batch_size is None:
            size = f"global_batch_size={self.global_batch_size}"
        kind = self._run.cursor.kind
        return f"<DataLoader of {len(self.source):,} records, {size}, {kind} order>"

    def _ranks(self) -> Ranks:
        # Asked anew each time: frameworks set up torch.distributed after a loader was made.
        return find_ranks(*self._ranks_told)

    def _sharing(self, rank: int | None = None) -> Sharing:
        ranks = self._ranks()
        size = rank_batch_size(self.batch_size, self.global_batch_size, ranks)
        chosen = ranks.rank if rank is None else operator.index(rank)
        if not 0 <= chosen < ranks.world_size:
            raise OptionError(f"rank={rank}: there are {ranks.world_size} ranks, from 0 on.")
        return Sharing(size, chosen, ranks.world_size, self.drop_last, self._plan)

    def _steps(self, cursor: Cursor) -> EpochSteps:
        known = self._known_steps
        sharing = self._sharing()
        if known is None or known[0] != cursor or known[1].sharing != sharing:
            steps = epoch_steps(cursor, self._borders(cursor), sharing)
            known = self._known_steps = (cursor, steps)
        return known[1]

    def _borders(self, cursor: Cursor) -> NDArray[np.int64] | None:
        return self._blocks if cursor.kind == "block" else None

    @cached_property
    def _blocks(self) -> NDArray[np.int64]:
        return self.source.blocks
