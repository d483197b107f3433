"""Where a run stands, and where its next pass begins."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.order import Cursor


class Start(NamedTuple):
    """Where a pass begins, and over how many epochs it goes; None: without end."""

    cursor: Cursor
    epochs: int | None


class Run:
    """The place of a run: it moves with each batch, or to where somebody tells it.

    A pass is what one `for` loop goes over: `epochs` of them, 0 to 2 for epochs=3, then 3 to 5. It
    begins where somebody told the run to be, by a state or an epoch, and else with the epochs after
    those of the last pass, also if that was left early. A state of an epoch's last batch has an
    empty rest: only a pass that ended moved on to the next epoch.
    """

    def __init__(self, cursor: Cursor, epochs: int | None) -> None:
        self._cursor = cursor
        self._position = cursor.position
        self._epochs = epochs
        self._is_told = True
        """Whether the cursor is where the next pass begins, and not where the last one is."""
        self._tellings = 0
        self._passes = 0

    @property
    def cursor(self) -> Cursor:
        """Where the run stands."""
        # Made when it is asked for: a batch moves the position, which costs nothing.
        if self._cursor.position != self._position:
            self._cursor = self._cursor.at(position=self._position)
        return self._cursor

    def _set(self, cursor: Cursor, *, is_told: bool) -> None:
        self._cursor, self._position, self._is_told = cursor, cursor.position, is_told

    def go_to(self, cursor: Cursor) -> None:
        """Let the next pass begin here."""
        self._set(cursor, is_told=True)
        self._tellings += 1
        self._passes += 1  # A pass that goes on all the same moves the run no more.

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be over an epoch; the one that a loaded state stands in goes on."""
        number = operator.index(epoch)
        is_there = self._is_told and number == self.cursor.epoch
        self.go_to(self.cursor if is_there else self.cursor.at(number, 0))

    @property
    def present(self) -> Cursor:
        """A cursor of the epoch that is gone over now, or next."""
        return self.start().cursor if self._is_told else self.cursor

    @property
    def tellings(self) -> int:
        """How often somebody told the run where to be."""
        return self._tellings

    def start(self) -> Start:
        """Return where a pass would begin now."""
        cursor, epochs = self.cursor, self._epochs
        if not self._is_told:
            ahead = 1 if epochs is None else epochs - cursor.epoch % epochs
            cursor = cursor.at(cursor.epoch + ahead, 0)
        return Start(cursor, None if epochs is None else epochs - cursor.epoch % epochs)

    def begin(self, start: Start) -> int:
        """Begin a pass; return its number, for `move` and `end`."""
        self._set(start.cursor, is_told=True)
        self._passes += 1
        return self._passes

    def move(self, number: int, epoch: Cursor, position: int) -> None:
        """Note how far in an epoch a pass came; of several passes the newest one is the run."""
        if number == self._passes:
            self._cursor, self._position, self._is_told = epoch, position, False

    def end(self, number: int, epoch: int) -> None:
        """Note that a pass came to its end, after which this epoch is next."""
        if number == self._passes:
            self._set(self.cursor.at(epoch, 0), is_told=True)
