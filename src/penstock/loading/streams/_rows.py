# ruff: noqa: ANN401 (records are the user's own)
"""The records of a unit: read forward, numbered, and without those that were handed out."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.datasets import OWN_BITS, plain_table
from penstock.decode import as_records
from penstock.errors import OptionError
from penstock.loading.streams._done import WHOLE
from penstock.order import keys, mixed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.datasets import Stream, TorchWorker
    from penstock.loading.streams._done import Parts, Span

    Numbers = NDArray[np.int64]

_MAPPED_INPUTS = 64
"""Inputs that go through `Stream.map` together: how many records they make is not known."""
_INPUT_BITS = 32
_FURTHER_IDS = 1 << 62
_END: Any = object()


def record_ids(unit: int, inputs: Numbers, subs: Numbers, own: Numbers | None = None) -> Numbers:
    """Return the numbers of records, int64[m], the same in every run and epoch.

    The first record of an input has unit × 2³² + input, or its `own` number. Further ones, and
    those of units and inputs beyond these numbers, have a hash from 2⁶² on, or a number that
    contains their `own` one: `penstock.datasets.own_numbers` finds it.
    """
    if own is not None:
        return np.where(subs > 0, _FURTHER_IDS + (subs << OWN_BITS) + own, own)
    is_hashed = (subs > 0) | (inputs >> _INPUT_BITS > 0) | (unit >= _FURTHER_IDS >> _INPUT_BITS)
    plain = inputs if is_hashed.all() else (unit << _INPUT_BITS) + inputs
    if not is_hashed.any():
        return plain
    hashes = _hashes("stream record", unit, inputs=inputs, subs=subs) >> np.uint64(2)
    return np.where(is_hashed, _FURTHER_IDS + hashes.astype(np.int64), plain)


def _hashes(purpose: str, *numbers: int, inputs: Numbers, subs: Numbers) -> NDArray[np.uint64]:
    one, other = keys(purpose, *numbers, count=2)
    return mixed(mixed(inputs.astype(np.uint64), one) + subs.astype(np.uint64), other)


class FlowRows(NamedTuple):
    """Records, and where they come from."""

    records: Any
    """A list, a record batch, or record numbers of the stream's source."""
    at: Numbers
    """Of each record the unit (its `nth` in the lane), the input, and its number among the records
    that the input became, int64[m, 3]."""
    ids: Numbers
    keys: NDArray[np.uint64]

    def part(self, start: int, stop: int) -> FlowRows:
        own = slice(start, stop)
        return FlowRows(self.records[own], self.at[own], self.ids[own], self.keys[own])

    def take(self, rows: Numbers) -> FlowRows:
        if isinstance(self.records, list):
            found: Any = [self.records[row] for row in rows.tolist()]
        else:
            is_array = isinstance(self.records, np.ndarray)
            found = self.records[rows] if is_array else self.records.take(pa.array(rows))
        return FlowRows(found, self.at[rows], self.ids[rows], self.keys[rows])

    @staticmethod
    def joined(several: Sequence[FlowRows]) -> FlowRows:
        """Return all of several; batches of different columns become lists."""
        some = [rows for rows in several if len(rows.ids)]
        if len(some) < 2:  # noqa: PLR2004 (none, or one)
            return some[0] if some else NO_ROWS
        schema = getattr(some[0].records, "schema", None)
        if isinstance(some[0].records, np.ndarray):
            records: Any = np.concatenate([rows.records for rows in some])
        elif all(getattr(rows.records, "schema", None) == schema for rows in some) and schema:
            records = pa.concat_batches([rows.records for rows in some])
        else:
            records = [record for rows in some for record in rows.as_list()]
        numbers = (np.concatenate([rows[which] for rows in some]) for which in (1, 2, 3))
        return FlowRows(records, *numbers)

    def as_list(self) -> list[Any]:
        is_list = isinstance(self.records, list)
        return self.records if is_list else as_records(self.records, self.ids)


NO_ROWS = FlowRows([], np.zeros((0, 3), np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64))


class Piece(NamedTuple):
    """Records that were read together."""

    span: Span
    upto: int | None
    """The key up to which they were handed out before; None where none of them was."""
    rows: FlowRows

    def cut(self, count: int) -> tuple[Piece, Piece | None]:
        """Return at least so many records, up to the end of an input, and the others."""
        nth, start, stop = self.span
        inputs = self.rows.at[:, 1]
        edge = int(np.searchsorted(inputs, inputs[count - 1], side="right"))
        if edge == len(inputs):
            return self, None
        at = int(inputs[edge])
        first = Piece((nth, start, at), self.upto, self.rows.part(0, edge))
        return first, Piece((nth, at, stop), self.upto, self.rows.part(edge, len(inputs)))


class LaneUnit(NamedTuple):
    """A unit that a lane reads."""

    nth: int
    """Which unit of the lane it is, from 0 on."""
    number: int
    """In the stream."""
    done: Parts
    """What was handed out of it before."""


class UnitReader:
    """Reads a unit from its first record on that was not handed out."""

    def __init__(
        self,
        stream: Stream,
        unit: LaneUnit,
        salt: tuple[int, ...],
        worker: TorchWorker | None,
        *,
        is_shuffled: bool,
    ) -> None:
        """Open a unit; `salt` makes the keys of a shuffle and the choice of a sample."""
        self._stream, self._unit, self._salt, self._worker = stream, unit, salt, worker
        self._is_shuffled = is_shuffled
        self._parts = deque(unit.done)
        begun = bool(unit.done) and unit.done[0][::2] == (0, WHOLE)
        self._at = unit.done[0][1] if begun else 0
        self._rest: pa.RecordBatch | None = None
        try:
            self._items = stream.opened(unit.number, self._at, worker)
        except Exception as why:
            why.add_note(self._note())
            raise

    def read(self, count: int) -> Piece | None:
        """Return so many records, or fewer, or those of a batch; None at the end of the unit."""
        while True:
            upto, most = self._present()
            if self._stream.is_mapped:
                most = min(most, _MAPPED_INPUTS)
            try:
                inputs = self._inputs(min(count, most), most)
            except Exception as why:
                why.add_note(self._note())
                raise
            if inputs is None:
                return None
            start, self._at = self._at, self._at + len(inputs)
            if upto != WHOLE:
                return self._piece(inputs, start, upto)

    def _present(self) -> tuple[int | None, int]:
        """Return up to which key the next inputs were handed out, and of how many that holds."""
        while self._parts and self._parts[0][1] <= self._at:
            self._parts.popleft()
        if not self._parts:
            return None, sys.maxsize
        start, stop, upto = self._parts[0]
        return (None, start - self._at) if self._at < start else (upto, stop - self._at)

    def _inputs(self, count: int, most: int) -> Any:
        """Return so many inputs in a list, or a batch of at most some; None at the end."""
        batch, self._rest = self._rest, None
        found: list[Any] = []
        while batch is None and len(found) < count:
            # One by one up to the first batch, which may follow records.
            for item in islice(self._items, count - len(found)):
                if isinstance(item, pa.RecordBatch | pa.Table | np.ndarray):
                    batch = _as_batch(item)
                    break
                found.append(self._checked(item, self._at + len(found)))
            else:
                break
        if found:
            self._rest = batch
            return found
        if batch is not None and len(batch) > most:
            batch, self._rest = batch[:most], batch[most:]
        return batch

    def _checked(self, item: Any, number: int) -> Any:
        if type(item) is dict or isinstance(item, Mapping) or self._stream.shards_itself:
            return item
        raise OptionError(
            f"record {number:,} is a {type(item).__qualname__}, {item!r:.60}: a stream yields "
            "dicts or Arrow record batches."
        )

    def _piece(self, records: Any, start: int, upto: int | None) -> Piece:
        number = self._unit.number
        inputs = np.arange(start, self._at)
        subs = np.zeros(len(inputs), np.int64)
        own = records if isinstance(records, np.ndarray) else None
        if self._stream.is_mapped:
            records, inputs, subs = self._mapped(records, inputs)
            own = None if own is None else own[inputs - start]
        at = np.stack([np.full(len(inputs), self._unit.nth), inputs, subs], axis=1)
        order = subs.astype(np.uint64)
        if self._is_shuffled:
            order = _hashes("stream order", *self._salt, number, inputs=inputs, subs=subs)
        rows = FlowRows(records, at, record_ids(number, inputs, subs, own), order)
        is_left = None if upto is None else order > np.uint64(upto)
        if self._stream.rate < 1:
            # A record that comes again is drawn again.
            what = inputs + (number << _INPUT_BITS) if self._stream.repeats else rows.ids
            purpose = f"stream sample {self._stream.split}".strip()
            drawn = _hashes(purpose, *self._salt, inputs=what, subs=subs)
            is_kept = drawn < np.uint64(self._stream.rate * 2**64)
            is_left = is_kept if is_left is None else is_left & is_kept
        if is_left is not None:
            rows = rows.take(np.flatnonzero(is_left))
        return Piece((self._unit.nth, start, self._at), upto, rows)

    def _mapped(self, records: Any, inputs: Numbers) -> tuple[list[Any], Numbers, Numbers]:
        made = []
        if isinstance(records, np.ndarray):
            records = self._stream.records(records)
        elif not isinstance(records, list):
            records = as_records(records, inputs)
        with self._stream.mapping(self._worker):
            for number, record in zip(inputs.tolist(), records, strict=True):
                try:
                    made.append([] if record is None else self._stream.made(record))
                except Exception as why:
                    why.add_note(self._note(f"record {number:,}"))
                    raise
        counts = [len(each) for each in made]
        subs = np.concatenate([np.zeros(0, np.int64), *map(np.arange, counts)])
        return [one for each in made for one in each], np.repeat(inputs, counts), subs

    def _note(self, what: str = "a record") -> str:
        return f"It happened when {what} of {self.name()} was read."

    def name(self) -> str:
        return f"unit {self._unit.number}, {self._stream.unit_name(self._unit.number)}"

    def close(self) -> None:
        """Let the `finally` blocks of a generator run, unless another thread runs it."""
        close = getattr(self._items, "close", None)
        if close is not None and not getattr(self._items, "gi_running", False):
            close()


def _as_batch(rows: Any) -> Any:
    """Return rows as one batch of plain types, and numbers as they are; None for no rows."""
    if isinstance(rows, np.ndarray):
        return rows if len(rows) else None
    found = plain_table(rows).combine_chunks().to_batches()
    return found[0] if found else None
