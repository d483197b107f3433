"""Where a run stands, and where its next pass begins."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from penstock.loading._feed import Point


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
        self._moves = 0
        self._passes = 0

    @property
    def cursor(self) -> Point:
        """Where the run stands."""
        # Made when it is asked for: a batch moves the position, which costs nothing.
        if self._cursor.position != self._position:
            self._cursor = self._cursor.at(position=self._position)
        return self._cursor

    def _set(self, cursor: Point, *, is_set: bool) -> None:
        self._cursor, self._position, self._is_set = cursor, cursor.position, is_set

    def go_to(self, cursor: Point) -> None:
        """Let the next pass begin here."""
        self._set(cursor, is_set=True)
        self._moves += 1
        self._passes += 1  # A pass that still goes on no longer moves the run.

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be over an epoch; the one that a loaded state stands in goes on."""
        number = operator.index(epoch)
        is_there = self._is_set and number == self.cursor.epoch
        self.go_to(self.cursor if is_there else self.cursor.at(number))

    @property
    def present(self) -> Point:
        """A point of the present epoch, or of the next one between passes."""
        return self.start().cursor if self._is_set else self.cursor

    @property
    def moves(self) -> int:
        """How often a state was loaded or an epoch set."""
        return self._moves

    def start(self) -> Start:
        """Return where a pass would begin now."""
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
