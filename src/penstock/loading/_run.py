"""Where a run stands, where its next pass begins, and whether it may continue over a source."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock._words import counted
from penstock.datasets import changes_since
from penstock.errors import ChangedSourceError, OptionError
from penstock.order import Cursor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.datasets import Source
    from penstock.loading._feed import Feed, Placed, Point
    from penstock.loading._order_choice import OrderChoice
    from penstock.loading._peers import Peers
    from penstock.loading._ranks import Ranks
    from penstock.loading._steps import Sharing
    from penstock.loading.engines._engines import Engine

ENCODER, ENCODERS = "encoder", "encoders"
"""The keys of the encoder's part of a state: of one for all ranks, or of one for each."""
_HANDED_AHEAD = 3
"""Batches that may be on their way to a device, behind the engine and before the user."""
PART = "part"
"""The key of [rank, world size] in a state that only one rank can continue."""
SET_EPOCH = "set_epoch"
"""The key of the epoch that Lightning had set, in a state that stands in a later one."""


class Start(NamedTuple):
    """Where a pass begins, and over how many epochs it goes: 0: none, None: without end."""

    cursor: Point
    epochs: int | None


class RunState:
    """The point at which a run stands: each batch moves it, so do a loaded state and `set_epoch`.

    A pass is one `for` loop over `epochs` epochs: 0 to 2 for epochs=3, then 3 to 5. It begins at a
    loaded state or a set epoch, else with the epochs after those of the last pass, even if that
    was left early. A state of an epoch's last batch has an empty rest: only the end of a pass
    moves the run to the next epoch.
    """

    def __init__(self, cursor: Point, epochs: int | None) -> None:
        self._cursor = cursor
        self._position = cursor.position
        self._epochs = epochs
        self._is_set = True
        """Whether the next pass begins at the cursor; else the last pass stands there."""
        self.moves = 0
        """How often a state was loaded or an epoch set."""
        self._passes = 0
        self._late = -1
        """The number of a pass that may go on behind `set_epoch_late`."""
        self._set_by_lightning: int | None = None
        """The epoch that Lightning set last. It may make several passes in one epoch of its own:
        they are over this epoch and those that follow."""
        self._loaded: int | None = None
        """Until a pass begins: the epoch that was set by hand, or when the loaded state was saved.
        """
        self._is_over = False
        """Whether the loaded state stands behind a pass, and Lightning's epoch goes on without."""

    @property
    def cursor(self) -> Point:
        # Made when it is asked for: a batch moves the position, which costs nothing.
        if self._cursor.position != self._position:
            self._cursor = self._cursor.at(position=self._position)
        return self._cursor

    def _set(self, cursor: Point, *, is_set: bool) -> None:
        self._cursor, self._position, self._is_set = cursor, cursor.position, is_set

    def _go_to(self, cursor: Point) -> None:
        """Let the next pass begin here."""
        self._set(cursor, is_set=True)
        self._is_over = False
        self.moves += 1
        self._passes += 1  # A pass that still goes on no longer moves the run.

    def load(self, cursor: Point, set_epoch: int | None) -> None:
        """Let the next pass begin where a state stands."""
        self._go_to(cursor)
        self._set_by_lightning = set_epoch
        self._loaded = cursor.epoch if set_epoch is None else set_epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be over an epoch; the one that a loaded state stands in goes on."""
        is_there = self._is_set and epoch == self.cursor.epoch
        self._go_to(self.cursor if is_there else self.cursor.at(epoch))
        self._set_by_lightning, self._loaded = None, epoch

    def set_epoch_late(self, epoch: int) -> None:
        """Set the epoch as Lightning does: behind a loaded state, and late where it read ahead.

        A state goes on in the epoch of Lightning's that it was saved in, whichever pass of it that
        was. That Lightning has read ahead, as it does where there is no length, shows by a batch
        of the present pass that comes before another pass begins.
        """
        present, cursor = self._passes, self.cursor
        is_there = self._is_set and epoch == self._loaded
        self._go_to(cursor if is_there else cursor.at(epoch))
        self._is_over = is_there and cursor.epoch != epoch and not cursor.position
        self._late, self._set_by_lightning = present, epoch

    @property
    def is_new(self) -> bool:
        """Whether no pass began, and nothing was loaded or set."""
        return self._passes == 0

    def set_before(self) -> dict[str, int]:
        """Return what a state has besides the cursor."""
        epoch = self._set_by_lightning
        return {} if epoch in (None, self.cursor.epoch) else {SET_EPOCH: epoch}

    @property
    def present(self) -> Point:
        """A point of the present epoch, or of the next one between passes."""
        return self.start().cursor if self._is_set else self.cursor

    def start(self) -> Start:
        cursor, epochs = self.cursor, self._epochs
        if self._is_over:
            return Start(cursor, 0)
        if not self._is_set:
            ahead = 1 if epochs is None else epochs - cursor.epoch % epochs
            cursor = cursor.at(cursor.epoch + ahead)
        return Start(cursor, None if epochs is None else epochs - cursor.epoch % epochs)

    def begin(self, start: Start) -> int:
        """Begin a pass; return its number, for `move` and `end`."""
        self._set(start.cursor, is_set=True)
        self._passes += 1
        self._late, self._loaded = -1, None
        return self._passes

    def move(self, number: int, epoch: Point, position: Any) -> None:  # noqa: ANN401 (the feed's own)
        """Note how far in an epoch a pass came; of several passes only the newest moves the run."""
        if number == self._passes or self._was_read_ahead(number):
            self._cursor, self._position, self._is_set = epoch, position, False

    def end(self, number: int, epoch: int) -> None:
        """Note that a pass ended, after which this epoch is next."""
        if number == self._passes or self._was_read_ahead(number):
            self._set(self.cursor.at(epoch), is_set=True)

    def _was_read_ahead(self, number: int) -> bool:
        """Whether a pass goes on although an epoch was set."""
        if number != self._late:
            return False
        self._passes, self._late = number, -1
        warnings.warn(
            "Lightning reads one batch ahead of a loader without a length: a checkpoint counts it "
            "as trained, and a resume leaves it out. Give the source to "
            "penstock.lightning.DataModule, which resumes exactly.",
            stacklevel=5,
        )
        return True


def lightning_sampler(run: RunState, learner: object) -> SimpleNamespace:
    """Return what has `sampler.set_epoch`, by which Lightning sets the epoch."""

    def set_epoch(epoch: int) -> None:
        if epoch and run.is_new and getattr(learner, "is_new", False):
            warnings.warn(
                "Lightning restores no loader from a checkpoint of the end of an epoch: epoch "
                f"{epoch} begins with empty vocabularies, and labels get other numbers than "
                "before. Give the source to penstock.lightning.DataModule, put SchemaMixin before "
                "LightningModule, or save by steps: ModelCheckpoint(every_n_train_steps=…).",
                stacklevel=4,
            )
        run.set_epoch_late(epoch)

    return SimpleNamespace(sampler=SimpleNamespace(set_epoch=set_epoch))


def pass_requests(  # noqa: PLR0913, PLR0917 (the parts of a loader)
    feed: Feed,
    run: RunState,
    start: Start,
    engine: Engine,
    sharing: Sharing,
    peers: Peers | None,
) -> Iterator[Placed | None]:
    """Yield the requests of a pass, of as many steps as the engine likes."""
    (point, epochs), quiet, stands = start, 0, run.cursor
    while True:
        is_empty = not point.position
        for placed in feed.requests(point, sharing, lambda: engine.together, peers):
            is_empty = False
            yield placed
        epochs = None if epochs is None else epochs - 1
        # Epochs without a batch would repeat for ever. A flow shows only by its answers that it
        # has no record, and as many requests as the engine is deep may be unanswered yet.
        quiet = quiet + 1 if run.cursor == stands else 0
        stands = run.cursor
        if epochs == 0 or is_empty or quiet > engine.depth + _HANDED_AHEAD:
            return
        point = point.at(point.epoch + 1)


def resumed(
    state: Mapping[str, Any],
    source: Source,
    skip: tuple[tuple[int, int], ...],
    on_changed: Literal["raise", "continue"],
    choice: OrderChoice,
) -> Cursor:
    """Return where a state document stands in a source; records to skip may have been added."""
    if "done" in state:
        raise OptionError(
            "the state is of a stream, whose records have no numbers: give the stream that it was "
            "saved with."
        )
    cursor = Cursor.from_dict(state)
    now, length, source = source, len(source), choice.as_it_was(cursor, source)
    if skip and source is not now:
        raise OptionError(
            "skip numbers the records that sources of the mixture have by now, and the state those "
            "that they had, without what was appended. The state has the skips of that time: leave "
            "skip out."
        )
    is_same = source.was(cursor.fingerprint, cursor.length)
    if not is_same and on_changed == "raise":
        raise ChangedSourceError(_change(cursor, source))
    own = choice.continued(cursor, source, on_changed if is_same else None)
    if not is_same:
        cursor = _moved(cursor, source, own)
    elif own != cursor.own:
        begun = replace(cursor, own=own, position=0)
        cursor = begun.at(position=min(cursor.position, begun.order_length))
    if is_same and length > cursor.length:
        warnings.warn(
            f"{counted(length - cursor.length, 'record', ('was', 'were'))} appended since the run "
            f"began; it goes on over the {cursor.length:,} that it began with. Start a new run to "
            "use them.",
            stacklevel=4,
        )
    cursor.order_length  # noqa: B018 (a position beyond it raises)
    return cursor.with_skips(skip, available=length)


def refuse_finished(source: Source, length: int) -> None:
    """Raise where a record was completed since a state, and a run rests on values of records."""
    if source._has_finished(length, length):  # noqa: SLF001 (of the contract between rooms)
        raise ChangedSourceError(
            "a record that the state counts was not complete yet, and was completed when its file "
            "grew. Its number is the same, but weights and the codes of categories rest on its "
            "value. Start a new run, or give on_changed='continue' to go on at the same position."
        )


class Mark(NamedTuple):
    """Where a run stood behind a batch, to be made a state of later."""

    point: Point
    learnt: Any
    """The `learner_mark` of the encoder; None for one that learns nothing."""
    batches: int
    """How many were handed out; the same on all ranks."""
    set_before: Mapping[str, int]
    """The epoch that Lightning had set, where the run stood in a later one."""


def learner_mark(learner: Any) -> Any:  # noqa: ANN401 (the encoder's own)
    """Return what an encoder needs to make its present state later: a mark, or the state."""
    if learner is None:
        return None
    return learner.mark() if hasattr(learner, "mark") else learner.state_dict()


def learner_state(learner: Any, learnt: Any) -> Any:  # noqa: ANN401 (likewise)
    """Return the state of an encoder as it was when the mark was made."""
    return learner.state_dict(learnt) if hasattr(learner, "mark") else learnt


def joined(states: Sequence[Mapping[str, Any]], feed: Feed, learner: object) -> dict[str, Any]:
    """Return one state document of those of all ranks."""
    beside = (ENCODER, SET_EPOCH)
    rest = [{key: state[key] for key in state if key not in beside} for state in states]
    whole = feed.joined(rest)
    if SET_EPOCH in states[0]:
        whole[SET_EPOCH] = states[0][SET_EPOCH]
    learnt = [state[ENCODER] for state in states if ENCODER in state]
    if not learnt:
        return whole
    if hasattr(learner, "merged"):
        return {**whole, ENCODER: learner.merged(learnt)}
    is_one = all(one == learnt[0] for one in learnt)
    return {**whole, **({ENCODER: learnt[0]} if is_one else {ENCODERS: learnt})}


def split_state(
    state: Mapping[str, Any], learner: object, ranks: Ranks
) -> tuple[dict[str, Any], Any, int | None]:
    """Split a state document into the feed's part, the encoder's, and the epoch that was set.

    Raises if only one of state and encoder has a state, or it is of other ranks.
    """
    if not isinstance(state, Mapping):
        raise OptionError(f"state: expected what `state_dict()` returned, not {state!r}.")
    part, here = state.get(PART), [ranks.rank, ranks.world_size]
    if part is not None and (part != here or ranks.peers):
        raise OptionError(
            f"the state is the part of [rank, world_size] {part}, and this is {here}"
            f"{', with a process group' * bool(ranks.peers)}: what other ranks handed out is not "
            "in it. Give each rank its own part; a state of all ranks is made where "
            "torch.distributed connects them."
        )
    learnt = learnt_in(state, learner, ranks.rank, ranks.world_size)
    if (learnt is None) != (learner is None):
        there = "what an encoder learnt, and this one learns nothing"
        if learnt is None:
            there = f"nothing of {type(learner).__qualname__}, which learns as batches come"
        raise OptionError(
            f"the state holds {there}. Give the encoder that the state was saved with."
        )
    beside = (ENCODER, ENCODERS, SET_EPOCH)
    rest = {key: state[key] for key in state if key not in beside}
    return rest, learnt, state.get(SET_EPOCH)


def learnt_in(state: Mapping[str, Any], learner: object, rank: int, world_size: int) -> Any:  # noqa: ANN401 (the encoder's own)
    """Return an encoder's part of a state document; None without one."""
    each = state.get(ENCODERS)
    if each is None:
        return state.get(ENCODER)
    if len(each) != world_size:
        raise OptionError(
            f"the state holds what {type(learner).__qualname__} learnt on each of {len(each)} "
            f"ranks, and there are {world_size} now. Continue on {len(each)} ranks, or give it a "
            "method merged(states) that makes one state of them, and save again."
        )
    return each[rank]


def _change(cursor: Cursor, source: Source) -> str:
    what = f"it had {counted(cursor.length, 'record')}, and has {len(source):,} now"
    if len(source) >= cursor.length:
        what += ", but other records or another order"
    what += changes_since(source, cursor.fingerprint)
    tokens = ""
    if source.is_tokens:
        tokens = ", or give Tokens the length, stride and shift that the state was saved with"
    return (
        f"the source changed since the state was saved: {what} (fingerprint {cursor.fingerprint} "
        f"then, {source.fingerprint} now). Bring the files back{tokens}, or give "
        "on_changed='continue' to go on at the same position over what is there."
    )


def _moved(cursor: Cursor, source: Source, own: Mapping[str, Any]) -> Cursor:
    """Return the same position over other records; their order is another one."""
    length = len(source)
    skip = [(a, min(b, length), *epoch) for a, b, *epoch in cursor.skip if a < length]
    begun = replace(
        cursor, fingerprint=source.fingerprint, length=length, skip=tuple(skip), position=0, own=own
    )
    blocks = source.blocks if cursor.kind == "block" else None
    position = min(cursor.position, begun.order_length)
    return begun.at(position=position, lanes=begun.order(blocks).lanes)
