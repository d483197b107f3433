"""`DataLoader`: a source goes in, batches come out."""

from __future__ import annotations

import operator
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, Literal, Self

from penstock.errors import OptionError
from penstock.loading._addressed import feed_of
from penstock.loading._agreement import Agreement
from penstock.loading._decisions import Decisions, decided
from penstock.loading._delivery import Delivery, moved
from penstock.loading._encoder_choice import recipe_for
from penstock.loading._feed import FeedOptions, Point, Reads
from penstock.loading._fetch import Fetch
from penstock.loading._kept_plans import bound_plan
from penstock.loading._mixing import opened, source_of
from penstock.loading._options import (
    check_batch,
    check_choice,
    masked_errors,
    refuse_unknown,
    seconds,
    whole_or_none,
)
from penstock.loading._peers import Meeting, Peers
from penstock.loading._ranks import Ranks, find_ranks, rank_batch_size
from penstock.loading._run import (
    ENCODER,
    Mark,
    RunState,
    joined,
    learner_mark,
    learner_state,
    lightning_sampler,
    pass_requests,
    split_state,
)
from penstock.loading._stats import Stats
from penstock.loading._steps import Sharing, StepRecords
from penstock.loading.engines._choice import Workers, choose_workers
from penstock.loading.engines._kept import KeptWorkers
from penstock.order import Mixture, Plan, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.context import BaseContext

    import numpy as np
    from numpy.typing import NDArray

    from penstock.datasets import Source
    from penstock.loading._options import Skipped
    from penstock.loading._run import Start


class DataLoader:
    """Batches of a source: shuffled, shared over ranks, made ahead of time, resumable exactly.

    A state holds nothing about ranks or workers: another number of them continues with the very
    next record.

    Args:
        source: A `Source`, or anything that `penstock.open` takes; a `Mixture` of them; or records
            that flow: a `penstock.stream`, a generator function, a torch `IterableDataset`.
        encode: Decides what a batch is. Field types (`{"price": "float32"}`) or a list of names
            give a `Batch` of tensors; `Tokens(…)` gives inputs and labels; an encoder
            (`penstock.batch.Encoder`) or a callable from an Arrow record batch gives its own
            result. Without it a batch is a list of records, or for tokens a tensor with `ids` and
            `valid` as attributes. Only the fields named here are decoded.
        batch_size: Records in a batch of one rank; or a plan: `CostPlan`, `BucketPlan`, any `Plan`.
        global_batch_size: Records in a step over all ranks, in place of `batch_size`. Use it where
            the number of ranks may change and the step must not.
        shuffle: False reads in order. True shuffles in the way that suits the source: over all
            records, or by blocks where reading single records is slow (remote, compressed,
            Parquet). "full" and "block" force one: "full" over remote data costs a request a
            record.
        seed: Decides the order, and every random draw of an encoder.
        epochs: Epochs in one `for` loop; None for a loop without end that counts steps. The
            loader then has no `len`.
        drop_last: Leave out the last step of an epoch where it is not full. By default its rows
            are shared out, and rows that fill it up have `valid` False.
        collate: A function from a list of records to a batch, in place of `encode`; torch calls it
            `collate_fn`. A dict that it returns becomes a `Batch`, other objects are handed out
            as they are. It costs Python for every record: give `encode` where field types do.
        weights: Draw records with replacement, each as often as its weight says: an array with a
            number for each record, the name of a field, or `penstock.order.Weighted`, which also
            says how many an epoch has.
        balance: A field each of whose values comes equally often, drawn in the same way.
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
        max_bad: With "mask", the number of different bad records after which a run stops. Raise it
            where more are known to be bad.
        skip: Records to leave out: numbers, (start, stop) ranges, or the path of a file with one a
            line. In the middle of an epoch they are masked; the next epoch is shorter.
        rank: This process's rank; give `world_size` as well. By default both come from `mesh`,
            `torch.distributed`, or RANK and WORLD_SIZE.
        world_size: How many processes share the data.
        mesh: A `DeviceMesh`, whose data-parallel dimensions decide the rank, or a process group.
        on_changed: What `load_state_dict` does where the source is not the one of the state:
            "raise", or "continue" at the same position over the records that are there, for files
            replaced on purpose: records may come twice or never.
        output: "arrow" hands out Arrow record batches, with ids in the schema's metadata.
        pin_memory: Copy batches to page-locked memory, for faster copies to a GPU. Without a GPU
            it does nothing.
        prefetch_to: A device, as in "cuda": batches arrive there, each copied while the one
            before is used. It keeps one more batch in the device's memory.
        multiprocessing_context: How processes are started: "fork", "forkserver", "spawn" or a
            context. By default "fork" for local data, which is fastest, and "forkserver" for
            remote data, whose client does not survive a fork.
        persistent_workers: Keep worker processes between passes, until the loader is closed or
            gone: choose it where they start slowly ("spawn", large imports) and epochs are short.
            They have `encode` as it was when they started; a torch `IterableDataset` has new ones.
        stall_timeout: Seconds without a batch after which `StallError` is raised: more for slow
            storage, less to learn of a stall early.

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
        collate: Callable[[list[Any]], Any] | None = None,
        weights: Any = None,  # noqa: ANN401 (an array of any library, a name, `Weighted`)
        balance: str | None = None,
        num_workers: int | Literal["auto"] = "auto",
        materialize: Literal["auto"] | bool = "auto",
        on_error: Literal["raise", "mask"] = "raise",
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
        persistent_workers: bool = False,
        stall_timeout: float = 600,
        **unknown: object,
    ) -> None:
        refuse_unknown(unknown, type(self))
        check_choice("on_changed", on_changed, ("raise", "continue"))
        check_choice("materialize", materialize, ("auto", True, False))
        check_choice("persistent_workers", persistent_workers, (True, False))
        check_batch(batch_size, global_batch_size)
        mixture = source if isinstance(source, Mixture) else None
        given = opened(source)
        size = 1 if isinstance(batch_size, Plan) else batch_size
        self.batch_size = whole_or_none("batch_size", size)
        self.global_batch_size = whole_or_none("global_batch_size", global_batch_size)
        self.drop_last = bool(drop_last)
        self._epochs = whole_or_none("epochs", epochs)
        self._pin_memory = pin_memory
        self._prefetch_to = prefetch_to
        self._ranks_given = (rank, world_size, mesh)
        self.source: Source
        self.source, self._recipe = recipe_for(given, encode, output, collate)
        self._plan = bound_plan(batch_size, self.source)
        self._workers_given = (num_workers, multiprocessing_context)
        self._kept_workers = KeptWorkers(are_kept=persistent_workers)
        workers = choose_workers(*self._workers_given, Reads(), self._recipe)  # Or raise here.
        self._options = FeedOptions(
            shuffle=shuffle,
            seed=seed,
            plan=self._plan,
            weights=weights,
            balance=balance,
            mixture=mixture,
            skip=skip,
            materialize=materialize,
            masked=masked_errors(on_error),
            max_bad=whole_number("max_bad", max_bad, 0),
            on_changed=on_changed,
            patience=seconds("stall_timeout", stall_timeout),
            processes=workers.count if workers.kind == "processes" else 0,
        )
        self._feed = feed_of(self.source, self._recipe, self._options)
        self._run = RunState(self._feed.begin, self._epochs)
        self._stats = Stats()
        self._meeting = Meeting()
        self._passes = 0
        if rank is not None or mesh is not None:
            self._sharing()  # Else the ranks are known when a pass begins.

    # Where it stands.

    def mark(self) -> Mark:
        """Return where the run stands, up to the last batch handed out, for a later `state_dict`.

        It costs little: take one for each batch where batches are handed out ahead of their use.
        """
        learnt = learner_mark(self._recipe.learner)
        return Mark(self._run.cursor, learnt, int(self.stats()["batches"]), self._run.set_before())

    def state_dict(self, at: Mark | None = None) -> dict[str, object]:
        """Return where the run stands, up to the last batch handed out, in plain JSON types.

        It is the same on all ranks. Where each knows a part of it, of a stream or of an encoder
        that learns, all ranks have to call it at the same step, and wait for each other.

        Args:
            at: A mark that was taken before: the state as it was then.
        """
        learner, ranks = self._recipe.learner, self._ranks()
        point, learnt, batches, set_before = at or self.mark()
        state = {**self._feed.state(point), **set_before}
        if learner is not None:
            state[ENCODER] = learner_state(learner, learnt)
        elif self._feed.is_whole(point):
            return state
        peers = self._meeting.peers(ranks, self._options.patience)
        if peers is None:
            return state
        # Ranks that were brought together know more than after the same batch before.
        met = getattr(learnt, "meetings", 0)
        moment = f"{self._run.moves}/{point.epoch}/{batches}/{met}"
        states = self._meeting.parts(peers, moment, ranks.rank, state)
        return joined(states, self._feed, learner)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue with the very next record after the last batch of a saved state."""
        rest, learnt, set_epoch = split_state(state, self._recipe.learner, self._ranks())
        point = self._feed.resumed(rest)
        self.source = getattr(self._feed, "source", self.source)  # With the numbers of the state.
        self._plan = getattr(self._feed, "plan", self._plan)
        self._recipe.load(learnt, self._ranks())
        self._run.load(point, set_epoch)

    def __copy__(self) -> Self:
        """Return a loader over the same source that continues from here by itself."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        twin._feed, twin._run = copy(self._feed), copy(self._run)
        twin._stats = deepcopy(self._stats)
        twin._meeting, twin._kept_workers = Meeting(), copy(self._kept_workers)
        if self._recipe.learner is not None:
            twin._recipe = deepcopy(self._recipe)
        return twin

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be over this epoch; without it, each pass is over the next one.

        The epoch of a loaded state continues where the state says.
        """
        self._run.set_epoch(whole_number("epoch", epoch, 0))

    @property
    def batch_sampler(self) -> object:
        """Where Lightning sets the epoch: it looks for `batch_sampler.sampler.set_epoch`."""
        return lightning_sampler(self._run, self._recipe.learner)

    @property
    def dataset(self) -> Source:
        """The source, by the name that torch's loader has for it."""
        return self.source

    def source_of(self, ids: Any) -> NDArray[np.str_]:  # noqa: ANN401 (an array or a tensor)
        """Return the names of the sources of a mixture that records, as `batch.ids`, come from."""
        return source_of(getattr(self._run.cursor, "own", {}), ids)

    def __len__(self) -> int:
        """Return the batches of a pass, those before a loaded state included."""
        if self._epochs is None:
            raise TypeError("a loader with epochs=None has no length: it does not end")
        point, sharing = self._run.cursor, self._sharing()
        first = point.epoch - point.epoch % self._epochs
        others = {*range(first, first + self._epochs)} - {point.epoch}
        return sum(self._feed.steps(one, sharing) for one in [point, *map(point.at, others)])

    # What comes out.

    def __iter__(self) -> Iterator[Any]:
        """Go over the rest of the epoch of a loaded state, or else over the next epoch."""
        return self._pass(self._run.start(), self._run.moves)

    def _pass(self, start: Start, moves: int) -> Iterator[Any]:
        if moves != self._run.moves:
            # Lightning makes an iterator, then sets the epoch, then asks for the first batch.
            start = self._run.start()
        if start.epochs == 0:
            return
        feed, ranks = self._feed, self._ranks()
        feed.prepare(start.cursor)  # Before the run moves, should it fail.
        self._recipe.configure(ranks)
        self._passes += 1
        peers = self._meeting.peers(ranks, self._options.patience, self._passes)
        agreement = None if peers is None else self._agreement(start.cursor, peers)
        number = self._run.begin(start)
        tally = self._stats.begin_pass()
        try:
            reader, is_mixed = feed.reader(start.cursor)
            fetch = Fetch(reader, self._recipe, self._options.masked)
            about = (ranks, self._options, self._pin_memory)
            delivery = Delivery(fetch, tally, self._stats.bad_records, *about)
            sharing = self._sharing(ranks)
            workers = self._workers(start.cursor, sharing)
            with self._kept_workers.engine(workers, fetch, is_mixed=is_mixed) as engine:
                requests = pass_requests(feed, self._run, start, engine, sharing, peers)
                lots = delivery.lots(engine, requests)
                if self._prefetch_to is not None:
                    # A learning encoder gets no batch before its turn.
                    lots = moved(lots, self._prefetch_to, is_ahead=self._recipe.learner is None)
                run = self._run
                for lot in lots:
                    tally.begin(lot)
                    # For tokens, these lines are a third of the cost of a batch.
                    for position, batch in zip(lot.positions, lot.batches, strict=True):
                        if agreement is not None and agreement.is_complete():
                            agreement = None
                        run.move(number, lot.epoch, position)
                        tally.handed_out()
                        yield batch
                        tally.came_back()
                if start.epochs is not None:
                    self._run.end(number, start.cursor.epoch + start.epochs)
        finally:
            self._stats.end_pass(tally)

    def close(self) -> None:
        """End the workers that `persistent_workers` keeps; those of a running pass end with it."""
        self._kept_workers.close()

    _iterator = property(lambda _: None, lambda self, _: self.close())  # Lightning ends runs so.

    def _agreement(self, point: Point, peers: Peers) -> Agreement | None:
        """Return what compares this rank with the others, as long as that is not done."""
        size = self._sharing().global_batch_size if self._plan is None else self._plan.name
        facts = {**self._feed.state(point), "batch": size, "drop_last": self.drop_last}
        agreement = Agreement(peers, facts)
        return None if agreement.is_complete() else agreement

    # What is known of it.

    def stats(self) -> dict[str, float]:
        """Return where the time went and what was read, over all batches handed out."""
        return {**self._stats.numbers(), **self._recipe.tally()}

    def explain(self, step: int | None = None, rank: int | None = None) -> Decisions | StepRecords:
        """Return what was decided and why; or with a step the records of that step's batch.

        Steps count from the beginning of the present epoch. Nothing is read for a step; the
        decisions read a few records, to estimate the cost of columns.
        """
        if step is None:
            point, ranks, sharing = self._run.cursor, self._ranks(), self._sharing()
            about = (ranks, sharing, self._workers(point, sharing))
            return decided(self._feed, point, self._recipe, *about)
        return self._feed.records(self._run.present, operator.index(step), self._sharing(rank=rank))

    def __repr__(self) -> str:
        size = f"batch_size={self.batch_size if self._plan is None else self._plan.name}"
        if self.batch_size is None:
            size = f"global_batch_size={self.global_batch_size}"
        what, order = self._feed.name(self._run.cursor)
        return f"<DataLoader of {what}, {size}, {order}>"

    def _workers(self, point: Point, sharing: Sharing) -> Workers:
        reads = self._feed.reads(point)
        return choose_workers(*self._workers_given, reads, self._recipe, sharing.batch_size)

    def _ranks(self) -> Ranks:
        # Looked up each time: frameworks set up torch.distributed after a loader was made.
        return find_ranks(*self._ranks_given)

    def _sharing(self, ranks: Ranks | None = None, rank: int | None = None) -> Sharing:
        ranks = ranks or self._ranks()
        size = rank_batch_size(self.batch_size, self.global_batch_size, ranks)
        here = ranks.rank if rank is None else operator.index(rank)
        if not 0 <= here < ranks.world_size:
            raise OptionError(f"rank={rank}: ranks are 0 to {ranks.world_size - 1}.")
        return Sharing(size, here, ranks.world_size, self.drop_last, self._plan, bool(ranks.peers))
