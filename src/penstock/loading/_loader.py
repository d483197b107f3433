"""`DataLoader`: a source goes in, batches come out."""

from __future__ import annotations

import operator
from contextlib import closing
from copy import copy, deepcopy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, Self

from penstock.datasets import Source
from penstock.datasets import open as open_source
from penstock.errors import OptionError
from penstock.loading._addressed import Addressed
from penstock.loading._delivery import Delivery, moved
from penstock.loading._encoder_choice import recipe_for
from penstock.loading._feed import FeedOptions, HasFeed, Reads
from penstock.loading._fetch import Fetch
from penstock.loading._options import check_choice, seconds, whole_or_none
from penstock.loading._ranks import find_ranks, rank_batch_size
from penstock.loading._run import ENCODER, RunState, learnt_in
from penstock.loading._stats import Stats
from penstock.loading._steps import Sharing
from penstock.loading.engines._choice import choose_workers
from penstock.order import Plan, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.context import BaseContext

    from penstock.loading._feed import Feed, Placed, Point
    from penstock.loading._fetch import OnError
    from penstock.loading._options import Skipped
    from penstock.loading._ranks import Ranks
    from penstock.loading._run import Start
    from penstock.loading._steps import StepRecords
    from penstock.loading.engines._choice import Workers
    from penstock.loading.engines._engines import Engine

_HANDED_AHEAD = 3
"""Batches that may be on their way to a device, behind the engine and before the user."""


class Decisions(dict[str, str]):
    """Decisions by name; prints as a list."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.items())


class DataLoader:
    """Batches of a source: shuffled, shared over ranks, made ahead of time, resumable exactly.

    A state holds nothing about ranks or workers: another number of them continues with the very
    next record.

    Args:
        source: A `Source`, or anything that `penstock.open` takes.
        encode: Decides what a batch is. Field types (`{"price": "float32"}`) or a list of names
            give a `Batch` of tensors; `Tokens(…)` gives inputs and labels; an encoder
            (`penstock.batch.Encoder`) or a callable from an Arrow record batch gives its own
            result. Without it a batch is a list of records, or for tokens a tensor with `ids` and
            `valid` as attributes. Only the fields named here are decoded.
        batch_size: Records in a batch of one rank, or a `Plan` that cuts batches of any size.
        global_batch_size: Records in a step over all ranks, in place of `batch_size`. Use it where
            the number of ranks may change and the step must not.
        shuffle: False reads in order. True shuffles in the way that suits the source: over all
            records, or by blocks where reading single records is slow (remote, compressed,
            Parquet). "full" and "block" force one: "full" over remote data costs a request a
            record.
        seed: Decides the order, and every random draw of an encoder.
        epochs: Epochs in one `for` loop; None for a loop without end.
        drop_last: Leave out the last step of an epoch where it is not full. By default its rows
            are shared out, and rows that fill it up have `valid` False.
        num_workers: Where batches are made. "auto" uses the caller's thread for columns and
            tokens, else threads. 0 uses the caller's thread, n uses n processes: choose them
            where `encode` is slow Python. A process costs its start (0.1 to 2 s) and a copy of
            each batch.
        materialize: Whether fields are decoded once into memory-mapped columns beside the index.
            "auto" uses columns that exist, and builds them for local files if that takes less than
            a minute and a tenth of the free disk. True always builds, False never does; existing
            columns that the source already has are used in any case.
        on_error: "raise" stops at the first bad record and names it. "mask" keeps its row with
            `valid` False, so that batches keep their size.
        max_bad: With "mask", the number of different bad records after which a run stops.
        skip: Records to leave out: numbers, (start, stop) ranges, or the path of a file with one a
            line. In the middle of an epoch they are masked; the next epoch is shorter.
        rank: This process's rank; give `world_size` as well. By default both come from `mesh`,
            `torch.distributed`, or RANK and WORLD_SIZE.
        world_size: How many processes share the data.
        mesh: A `DeviceMesh`, whose data-parallel dimensions decide the rank, or a process group.
        on_changed: What `load_state_dict` does where the source is not the one of the state:
            "raise", or "continue" at the same position over the records that are there.
        output: "arrow" hands out Arrow record batches, with ids in the schema's metadata.
        pin_memory: Copy batches to page-locked memory, for faster copies to a GPU. Without a GPU
            it does nothing.
        prefetch_to: A device, as in "cuda": batches arrive there, each copied while the one
            before is used. It keeps one more batch in the device's memory.
        multiprocessing_context: How processes are started: "fork", "forkserver", "spawn" or a
            context. By default "fork" for local data, which is fastest, and "forkserver" for
            remote data, whose client does not survive a fork.
        stall_timeout: Seconds without a batch after which `StallError` is raised.

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
        given = source if isinstance(source, Source | HasFeed) else open_source(source)
        self._plan = batch_size if isinstance(batch_size, Plan) else None
        size = 1 if isinstance(batch_size, Plan) else batch_size
        self.batch_size = whole_or_none("batch_size", size)
        self.global_batch_size = whole_or_none("global_batch_size", global_batch_size)
        self.drop_last = bool(drop_last)
        self._epochs = whole_or_none("epochs", epochs)
        self._pin_memory = pin_memory
        self._prefetch_to = prefetch_to
        self._ranks_given = (rank, world_size, mesh)
        self.source: Source
        self.source, self._recipe = recipe_for(given, encode, output)
        if materialize is True and self._recipe.schema is None:
            raise OptionError(
                "materialize=True needs to know the fields and their types: give them as encode, "
                "as in {'price': 'float32'}. Records as they are have no columns."
            )
        self._workers_given = (num_workers, multiprocessing_context)
        choose_workers(*self._workers_given, Reads())  # Invalid ones raise here.
        self._options = FeedOptions(
            shuffle=shuffle,
            seed=seed,
            plan=self._plan,
            skip=skip,
            materialize=materialize,
            on_error=on_error,
            max_bad=whole_number("max_bad", max_bad, 0),
            on_changed=on_changed,
            patience=seconds("stall_timeout", stall_timeout),
        )
        self._feed: Feed = (
            self.source.__penstock_feed__(self._options)
            if isinstance(self.source, HasFeed)
            else Addressed(self.source, self._recipe.schema, self._options)
        )
        self._run = RunState(self._feed.begin, self._epochs)
        self._stats = Stats()
        if rank is not None or mesh is not None:
            self._sharing()  # Else the ranks are known when a pass begins.

    # Where it stands.

    def state_dict(self) -> dict[str, object]:
        """Return where the run stands, up to the last batch handed out, in plain JSON types."""
        state = self._feed.state(self._run.cursor)
        if self._recipe.learner is not None:
            state[ENCODER] = self._recipe.learner.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the very next record after the last batch of a saved state."""
        rest, learnt = learnt_in(state, self._recipe.learner)
        point = self._feed.resumed(rest)
        if self._recipe.learner is not None:
            self._recipe.learner.load_state_dict(learnt)
        self._run.go_to(point)

    def __copy__(self) -> Self:
        """Return a loader over the same source that continues from here by itself."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._feed, twin._run = copy(self._feed), copy(self._run)
        twin._stats = deepcopy(self._stats)
        if self._recipe.learner is not None:
            twin._recipe = deepcopy(self._recipe)
        return twin

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be over this epoch; without it, each pass is over the next one.

        The epoch of a loaded state continues where the state says.
        """
        self._run.set_epoch(whole_number("epoch", epoch, 0))

    @property
    def batch_sampler(self) -> SimpleNamespace:
        """Where Lightning sets the epoch: it looks for `batch_sampler.sampler.set_epoch`."""
        return SimpleNamespace(sampler=self)

    @property
    def dataset(self) -> Source:
        """The source, by the name that torch's loader has for it."""
        return self.source

    def __len__(self) -> int:
        """Return the batches of a pass, those before a loaded state included."""
        if self._epochs is None:
            raise TypeError("a loader with epochs=None has no length: it does not end")
        point, sharing = self._run.cursor, self._sharing()
        first = point.epoch - point.epoch % self._epochs
        others = [n for n in range(first, first + self._epochs) if n != point.epoch]
        points = [point, *(point.at(epoch) for epoch in others)]
        return sum(self._feed.steps(one, sharing) for one in points)

    # What comes out.

    def __iter__(self) -> Iterator[Any]:
        """Go over the rest of the epoch of a loaded state, or else over the next epoch."""
        return self._pass(self._run.start(), self._run.moves)

    def _pass(self, start: Start, moves: int) -> Iterator[Any]:
        if moves != self._run.moves:
            # Lightning makes an iterator, then sets the epoch, then asks for the first batch.
            start = self._run.start()
        feed = self._feed
        feed.prepare(start.cursor)  # Before the run moves, should it fail.
        number = self._run.begin(start)
        tally = self._stats.begin_pass()
        try:
            reader, is_mixed = feed.reader(start.cursor)
            fetch = Fetch(reader, self._recipe, self._options.on_error)
            about = (self._ranks(), self._options, self._pin_memory)
            delivery = Delivery(fetch, feed, tally, self._stats.bad_ids, *about)
            workers = self._workers(start.cursor)
            with closing(workers.engine(fetch, is_mixed=is_mixed)) as engine:
                lots = delivery.lots(engine, self._requests(engine, *start))
                if self._prefetch_to is not None:
                    # A learning encoder gets no batch before its turn.
                    is_ahead = self._recipe.learner is None
                    lots = moved(lots, self._prefetch_to, is_ahead=is_ahead)
                run = self._run
                for lot in lots:
                    tally.begin(lot)
                    # For tokens, these lines are a third of the cost of a batch.
                    for position, batch in zip(lot.positions, lot.batches, strict=True):
                        run.move(number, lot.epoch, position)
                        tally.handed_out()
                        yield batch
                        tally.came_back()
                if start.epochs is not None:
                    self._run.end(number, start.cursor.epoch + start.epochs)
        finally:
            self._stats.end_pass(tally)

    def _requests(self, engine: Engine, point: Point, epochs: int | None) -> Iterator[Placed]:
        """Yield the requests of a pass, of as many steps as the engine likes."""
        quiet, stands = 0, self._run.cursor
        while True:
            is_empty = not point.position
            for placed in self._feed.requests(point, self._sharing(), lambda: engine.together):
                is_empty = False
                yield placed
            epochs = None if epochs is None else epochs - 1
            # Epochs without a batch would repeat for ever. A flow shows only by its answers that it
            # has no record, and as many requests as the engine is deep may be unanswered yet.
            quiet = quiet + 1 if self._run.cursor == stands else 0
            stands = self._run.cursor
            if epochs == 0 or is_empty or quiet > engine.depth + _HANDED_AHEAD:
                return
            point = point.at(point.epoch + 1)

    # What is known of it.

    def stats(self) -> dict[str, float]:
        """Return where the time went and what was read, over all batches handed out."""
        return self._stats.numbers()

    def explain(self, step: int | None = None, rank: int | None = None) -> Decisions | StepRecords:
        """Return what was decided and why; or with a step the records of that step's batch.

        Steps count from the beginning of the present epoch. Nothing is read for a step; the
        decisions read a few records, to estimate the cost of columns.
        """
        if step is None:
            return self._decisions()
        sharing = self._sharing(rank)
        return self._feed.records(self._run.present, operator.index(step), sharing)

    def _decisions(self) -> Decisions:
        ranks, sharing, point = self._ranks(), self._sharing(), self._run.cursor
        found = self._feed.describe(point)
        batches = (
            f"{sharing.batch_size} records a batch, {sharing.global_batch_size} a step over all "
            "ranks"
            if self._plan is None
            else f"batches by the plan {self._plan.name!r}, one a rank and step"
        )
        return Decisions(
            source=found.pop("source"),
            order=found.pop("order"),
            batch=self._recipe.what,
            sharing=f"rank {ranks.rank} of {ranks.world_size} ({ranks.why}), {batches}",
            workers=self._workers(point).describe(),
            **found,
        )

    def __repr__(self) -> str:
        size = f"batch_size={self._plan or self.batch_size}"
        if self.batch_size is None:
            size = f"global_batch_size={self.global_batch_size}"
        what, order = self._feed.name(self._run.cursor)
        return f"<DataLoader of {what}, {size}, {order}>"

    def _workers(self, point: Point) -> Workers:
        return choose_workers(
            *self._workers_given,
            self._feed.reads(point),
            from_tokens=self._recipe.reads_tokens,
            batch_size=self._sharing().batch_size,
        )

    def _ranks(self) -> Ranks:
        # Looked up each time: frameworks set up torch.distributed after a loader was made.
        return find_ranks(*self._ranks_given)

    def _sharing(self, rank: int | None = None) -> Sharing:
        ranks = self._ranks()
        size = rank_batch_size(self.batch_size, self.global_batch_size, ranks)
        chosen = ranks.rank if rank is None else operator.index(rank)
        if not 0 <= chosen < ranks.world_size:
            raise OptionError(f"rank={rank}: there are {ranks.world_size} ranks, from 0 on.")
        return Sharing(size, chosen, ranks.world_size, self.drop_last, self._plan)
