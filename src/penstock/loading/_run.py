"""Where a run stands, where its next pass begins, and whether it may continue over a source."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from penstock._words import counted
from penstock.errors import ChangedSourceError, OptionError
from penstock.order import Cursor, Skips

if TYPE_CHECKING:
    from penstock.datasets import Source
    from penstock.loading._feed import Point

ENCODER = "encoder"
"""The key of the encoder's part of a state."""


class Start(NamedTuple):
    """Where a pass begins, and over how many epochs it goes; None: without end."""

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

    @property
    def cursor(self) -> Point:
        # Made when it is asked for: a batch moves the position, which costs nothing.
        if self._cursor.position != self._position:
            self._cursor = self._cursor.at(position=self._position)
        return self._cursor

    def _set(self, cursor: Point, *, is_set: bool) -> None:
        self._cursor, self._position, self._is_set = cursor, cursor.position, is_set

    def go_to(self, cursor: Point) -> None:
        """Let the next pass begin here."""
        self._set(cursor, is_set=True)
        self.moves += 1
        self._passes += 1  # A pass that still goes on no longer moves the run.

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be over an epoch; the one that a loaded state stands in goes on."""
        is_there = self._is_set and epoch == self.cursor.epoch
        self.go_to(self.cursor if is_there else self.cursor.at(epoch))

    @property
    def present(self) -> Point:
        """A point of the present epoch, or of the next one between passes."""
        return self.start().cursor if self._is_set else self.cursor

    def start(self) -> Start:
        cursor, epochs = self.cursor, self._epochs
        if not self._is_set:
            ahead = 1 if epochs is None else epochs - cursor.epoch % epochs
            cursor = cursor.at(cursor.epoch + ahead)
        return Start(cursor, None if epochs is None else epochs - cursor.epoch % epochs)

    def begin(self, start: Start) -> int:
        """Begin a pass; return its number, for `move` and `end`."""
        self._set(start.cursor, is_set=True)
        self._passes += 1
        return self._passes

    def move(self, number: int, epoch: Point, position: Any) -> None:  # noqa: ANN401 (the feed's own)
        """Note how far in an epoch a pass came; of several passes only the newest moves the run."""
        if number == self._passes:
            self._cursor, self._position, self._is_set = epoch, position, False

    def end(self, number: int, epoch: int) -> None:
        """Note that a pass ended, after which this epoch is next."""
        if number == self._passes:
            self._set(self.cursor.at(epoch), is_set=True)


def resumed(
    state: Mapping[str, Any],
    source: Source,
    skip: tuple[tuple[int, int], ...],
    on_changed: Literal["raise", "continue"],
) -> Cursor:
    """Return where a state document stands in a source; records to skip may have been added."""
    cursor = Cursor.from_dict(state)
    length = len(source)
    if not source.was(cursor.fingerprint, cursor.length):
        if on_changed == "raise":
            raise ChangedSourceError(_change(cursor, source))
        cursor = _moved(cursor, source)
    elif length > cursor.length:
        warnings.warn(
            f"{counted(length - cursor.length, 'record', ('was', 'were'))} appended since the run "
            f"began; it goes on over the {cursor.length:,} that it began with. Start a new run to "
            "use them.",
            stacklevel=4,
        )
    return cursor.with_skips(skip, available=length)


def learnt_in(state: Mapping[str, Any], learner: object) -> tuple[dict[str, Any], Any]:
    """Split a state document into the loader's part and the encoder's.

    Raises if only one of state and encoder has a state.
    """
    if not isinstance(state, Mapping):
        raise OptionError(f"state: expected what `state_dict()` returned, not {state!r}.")
    rest = dict(state)
    learnt = rest.pop(ENCODER, None)
    if (learnt is None) != (learner is None):
        there = "what an encoder learnt, and this one learns nothing"
        if learnt is None:
            there = f"nothing of {type(learner).__qualname__}, which learns as batches come"
        raise OptionError(
            f"the state holds {there}. Give the encoder that the state was saved with."
        )
    return rest, learnt


def _change(cursor: Cursor, source: Source) -> str:
    what = f"it had {counted(cursor.length, 'record')}, and has {len(source):,} now"
    if len(source) >= cursor.length:
        what += ", but other records or another order"
    tokens = ""
    if source.is_tokens:
        tokens = ", or give Tokens the length, stride and shift that the state was saved with"
    return (
        f"the source changed since the state was saved: {what} (fingerprint {cursor.fingerprint} "
        f"then, {source.fingerprint} now). Bring the files back{tokens}, or give "
        "on_changed='continue' to go on at the same position over what is there."
    )


def _moved(cursor: Cursor, source: Source) -> Cursor:
    """Return the same position over other records; their order is another one."""
    length = len(source)
    skip = [(a, min(b, length), *epoch) for a, b, *epoch in cursor.skip if a < length]
    kept = Skips([(a, b) for a, b, *epoch in skip if not epoch], length).kept
    begun = replace(
        cursor, fingerprint=source.fingerprint, length=length, skip=tuple(skip), position=0
    )
    blocks = source.blocks if cursor.needs_blocks else None
    return begun.at(position=min(cursor.position, kept), lanes=begun.order(blocks).lanes)
