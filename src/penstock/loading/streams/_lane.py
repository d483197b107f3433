"""One reader of a stream: its units one after the other, in order or through a shuffle buffer.

A unit yields *inputs*. `Stream.map` makes none, one or several records of each. Records go through
*windows*. In order, a window is what was read last. Shuffled, it has `buffer` records, which come
in the order of their keys; while one window is handed out the next one is read. A key is a hash of
what a record is: the records of a window that were handed out are those up to a key, and a resume
reads the window again and leaves them out.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.datasets import RecordsAt, RowsAt, own_numbers
from penstock.loading.streams._done import WHOLE, LanePoint
from penstock.loading.streams._rows import NO_ROWS, FlowRows, UnitReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.datasets import Source, Stream, TorchWorker
    from penstock.datasets._memory import Places
    from penstock.loading.streams._done import Span
    from penstock.loading.streams._rows import LaneUnit, Numbers, Piece


class TakenRecords(NamedTuple):
    """Records that were taken of a lane."""

    source: Source
    """Reads them by their ids."""
    ids: Numbers
    positions: Numbers
    """Differ between any two rows of an epoch."""


class Lane:
    """The records of some units of a stream, in the order in which they are handed out."""

    def __init__(
        self,
        stream: Stream,
        units: Sequence[LaneUnit],
        salt: tuple[int, ...],
        buffer: int,
        worker: TorchWorker | None,
    ) -> None:
        """Read units; a `buffer` of 0 keeps the order of records.

        All random choices depend on `salt`.
        """
        self._stream, self._salt, self._buffer, self._worker = stream, salt, buffer, worker
        self._units = deque(units)
        self._numbers = {unit.nth: unit.number for unit in units}
        self._reader: UnitReader | None = None
        self._coming: list[Piece] = []
        """What was read of the next window, of which so many records are held."""
        self._held = 0
        self._is_whole = False
        self._behind: Piece | None = None
        """What was read of the window behind the next one."""
        self._window = NO_ROWS
        self._spans: tuple[Span, ...] = ()
        self._drawn = 0
        self.point = LanePoint(0, (), WHOLE)
        """Where it stands behind the records that were taken."""
        self.last = TakenRecords(RecordsAt([], NO_ROWS.ids), NO_ROWS.ids, NO_ROWS.ids)
        """The records that were taken last, if any were."""

    def take(self, count: int) -> TakenRecords:
        """Return the next records; fewer, or none, at the end."""
        if self._buffer:
            self._read(self._held + count)  # As many come in as go out.
        found = []
        while count:
            if self._drawn == len(self._window.ids) and not self._begin_window(count):
                self.point = LanePoint(max(self._numbers, default=-1) + 1, (), WHOLE)
                break
            part = self._window.part(self._drawn, self._drawn + count)
            self._drawn += len(part.ids)
            count -= len(part.ids)
            self.point = self._present()
            found.append(part)
        rows = FlowRows.joined(found)
        # A copy: users get it, and one batch must not keep the whole window alive.
        ids = positions = rows.ids.copy()
        if not len(ids):
            return TakenRecords(RecordsAt([], ids), ids, ids)
        source = self._stream.source
        if source is None or not isinstance(rows.records, np.ndarray):
            kind = RecordsAt if isinstance(rows.records, list) else RowsAt
            taken = kind(rows.records, ids, partial(self._places, rows))
            taken.home, source = source, taken
        if self._stream.repeats:
            units = np.array([self._numbers[nth] for nth in rows.at[:, 0].tolist()])
            positions = (units << 40) + (rows.at[:, 1] << 8) + rows.at[:, 2]
        self.last = TakenRecords(source, ids, positions)
        return self.last

    def _places(self, rows: FlowRows) -> Places:
        if (source := self._stream.source) is not None and source.files:
            files, offsets, _ = source.location(own_numbers(rows.ids))
            return source.files, files, offsets
        units, which = np.unique(rows.at[:, 0], return_inverse=True)
        names = [self._stream.unit_name(self._numbers[nth]) for nth in units.tolist()]
        return names, which, rows.at[:, 1]

    def reads(self) -> str:
        """Return which unit it reads; "" before the first and behind the last."""
        return "" if self._reader is None else self._reader.name()

    def close(self) -> None:
        self._units.clear()
        if self._reader is not None:
            self._reader.close()

    def _begin_window(self, count: int) -> bool:
        """Begin the next window, in order with about so many records; False at the end."""
        self._read(None if self._buffer else count)
        pieces, self._coming = self._coming, []
        if not pieces:
            return False
        self._held, self._is_whole, self._drawn = 0, False, 0
        rows = FlowRows.joined([piece.rows for piece in pieces])
        self._window = rows.take(np.argsort(rows.keys, kind="stable")) if self._buffer else rows
        starts = {piece.span[0]: piece.span[1] for piece in reversed(pieces)}
        stops = {piece.span[0]: piece.span[2] for piece in pieces}
        self._spans = tuple((nth, starts[nth], stop) for nth, stop in stops.items())
        return True

    def _present(self) -> LanePoint:
        if self._drawn == len(self._window.ids):
            nth, _, stop = self._spans[-1]
            return LanePoint(nth, ((nth, stop, stop),), WHOLE)
        if self._buffer:
            upto = int(self._window.keys[self._drawn - 1])
            return LanePoint(self._spans[0][0], self._spans, upto)
        nth, number, sub = self._window.at[self._drawn].tolist()
        return LanePoint(nth, ((nth, number, number + (sub > 0)),), sub - 1 if sub else WHOLE)

    def _read(self, goal: int | None) -> None:
        """Read the next window up to so many records, or whole.

        A window has `buffer` records; or those that are left of a window that was begun before a
        resume, which were handed out up to the same key.
        """
        while not self._is_whole and (goal is None or self._held < goal):
            piece = self._next_piece(self._buffer if goal is None else goal - self._held)
            if piece is None or (self._coming and self._coming[-1].upto != piece.upto):
                self._behind, self._is_whole = piece, True
                return
            room = self._buffer - self._held
            if self._buffer and piece.upto is None and len(piece.rows.ids) >= room:
                piece, self._behind = piece.cut(room)
                self._is_whole = True
            self._coming.append(piece)
            self._held += len(piece.rows.ids)

    def _next_piece(self, count: int) -> Piece | None:
        """Return about so many more records; None at the end."""
        piece, self._behind = self._behind, None
        while piece is None and (self._reader is not None or self._units):
            if self._reader is None:
                unit, is_shuffled = self._units.popleft(), self._buffer > 0
                about = (self._salt, self._worker)
                self._reader = UnitReader(self._stream, unit, *about, is_shuffled=is_shuffled)
            piece = self._reader.read(count)
            if piece is None:
                self._reader.close()
                self._reader = None
        return piece
