"""Which value goes to which slot: by columns, and record by record, with the same result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.schema._nodes import Overflow
from penstock.schema._odd_values import LIST, NULL, OBJECT, PADDED, OddValue, in_short
from penstock.schema._query import EACH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.schema._query import Query, Step

    Ints = NDArray[np.int64]
    _Odd = list[tuple[Any, str]]
    """Values that a step could not enter, and what was expected in their place."""


class Axis(NamedTuple):
    """The slots of one array."""

    length: int
    overflow: Overflow


BATCH_AXIS, ROOT_AXIS = -2, -1
"""The axes that stand before those of arrays."""


class OverflowedError(Exception):
    """A list has more items than slots, under the policy that refuses it."""

    def __init__(self, row: int, axis: int, count: int) -> None:
        super().__init__(row, axis, count)
        self.row, self.axis, self.count = row, axis, count


# By columns.


class Placement(NamedTuple):
    """The slots of one array, for all leaves below it."""

    before: Ints
    """The slots of the lists, one level above."""
    starts: Ints
    counts: Ints
    rows: Ints
    """The items that have a slot, by their place among the items of all lists."""
    slots: Ints
    is_run: bool
    """Whether these items stand one behind the other."""


class ColumnPlacer:
    """Finds the slots of leaves in the columns of one batch."""

    def __init__(self, count: int) -> None:
        self._rows = np.arange(count)
        self._known: dict[tuple[Axis, ...], Placement] = {}

    def place(
        self, column: pa.Array, steps: Sequence[Step], axes: Sequence[Axis]
    ) -> tuple[Ints, pa.Array]:
        """Return the slots that records have, numbered row by row, and the values in them.

        `column` has one list for each step into a list in `steps`, and for each axis that these
        leave.
        """
        rows = slots = self._rows
        taken: list[Step] = [step for step in steps if not isinstance(step, str)]
        taken += [EACH] * (len(axes) - sum(step is EACH for step in taken))
        values, number, is_run = column, 0, False
        for step in taken:
            starts, counts, values = _lists(values, rows)
            if step is EACH:
                number += 1
                found = self._placed(slots, starts, counts, axes[:number])
                rows, slots, is_run = found.rows, found.slots, found.is_run
            else:
                assert isinstance(step, int)  # noqa: S101 (names are left out above)
                place = starts + (step if step >= 0 else counts + step)
                is_there = counts > (step if step >= 0 else -step - 1)
                rows, is_run = np.where(is_there, place, -1), False
        if values is column:
            return slots, column
        if is_run:
            return slots, values.slice(rows[0], len(rows))
        return slots, values.take(pa.array(rows, mask=rows < 0))

    def _placed(self, before: Ints, starts: Ints, counts: Ints, axes: Sequence[Axis]) -> Placement:
        """Return the slots of lists: the same ones for lists that begin and end alike."""
        known = self._known.get(tuple(axes))
        if (
            known is not None
            and known.before is before
            and np.array_equal(known.starts, starts)
            and np.array_equal(known.counts, counts)
        ):
            return known
        length, overflow = axes[-1]
        if overflow is Overflow.error and (counts > length).any():
            first = int(np.argmax(counts > length))
            above = math.prod(axis.length for axis in axes[:-1])
            raise OverflowedError(int(before[first]) // above, len(axes) - 1, int(counts[first]))
        kept = np.minimum(counts, length)
        begins = starts + counts - kept if overflow is Overflow.tail else starts
        within = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)
        rows = np.repeat(begins, kept) + within
        slots = np.repeat(before * length, kept) + within
        is_run = bool(len(rows)) and bool((np.diff(rows) == 1).all())
        found = Placement(before, starts, counts, rows, slots, is_run)
        self._known[tuple(axes)] = found
        return found


def _lists(values: pa.Array, rows: Ints) -> tuple[Ints, Ints, pa.Array]:
    """Return where the lists of rows begin, how long they are, and the items of all lists.

    A row below 0 has no list, and a null is one without items.
    """
    if not len(values):
        return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64), values.flatten()
    if pa.types.is_fixed_size_list(values.type):
        size = values.type.list_size
        starts = (np.arange(len(values)) + values.offset) * size
        ends = starts + size
    else:
        offsets = values.offsets.to_numpy().astype(np.int64, copy=False)
        starts, ends = offsets[:-1], offsets[1:]
    counts = ends - starts
    if values.null_count:
        counts = np.where(values.is_valid().to_numpy(zero_copy_only=False), counts, 0)
    safe = np.maximum(rows, 0)
    return starts[safe], np.where(rows < 0, 0, counts[safe]), values.values


# Record by record.


class RowPlacer:
    """Collects the slots and values of one leaf, record by record."""

    def __init__(self, query: Query, axes: Sequence[Axis]) -> None:
        self._query = query
        self._axes = axes
        self.slots: list[int] = []
        self.values: list[Any] = []
        self.odd: list[OddValue] = []
        self._row = 0

    def place(self, records: Sequence[Any]) -> None:
        steps = self._query.steps
        if steps is not None:
            if self._are_last(steps, 0):
                self._add(records, steps, 0)
            else:
                for row, record in enumerate(records):
                    self._row = row
                    self._walk(record, steps, 0, row)
            if not steps or not isinstance(steps[0], str):
                self.odd.clear()  # The query is at fault: every record is an object.
            return
        found = [*self._query.search(records)]
        if len(found) > len(records):
            raise OverflowedError(0, BATCH_AXIS, len(found))
        for row, values in enumerate(found):
            self._row = row
            if len(values) > 1:
                raise OverflowedError(row, ROOT_AXIS, len(values))
            for value in values:
                self._walk(value, (), 0, row)

    def _walk(self, value: Any, steps: tuple[Step, ...], axis: int, slot: int) -> None:
        ahead = steps.index(EACH) if EACH in steps else len(steps)
        odd: _Odd = []
        value = _found(value, steps[:ahead], odd)
        if axis == len(self._axes):
            self._end(value, steps[ahead:], slot, odd)
            return
        items = _items(value, odd)
        if items is None:
            self._note(odd, self._row, PADDED)
            return
        length, overflow = self._axes[axis]
        if len(items) > length:
            if overflow is Overflow.error:
                raise OverflowedError(self._row, axis, len(items))
            items = items[:length] if overflow is Overflow.head else items[-length:]
        rest = steps[ahead + 1 :]
        if self._are_last(rest, axis + 1):
            self._add(items, rest, slot * length)
            return
        for number, item in enumerate(items):
            self._walk(item, rest, axis + 1, slot * length + number)

    def _end(self, value: Any, steps: tuple[Step, ...], slot: int, odd: _Odd) -> None:
        """Add the value below all arrays; a step into more lists leads nowhere without a list."""
        if steps and _items(value, odd) is None:
            self._note(odd, self._row, PADDED)
            return
        self.slots.append(slot)
        self.values.append(_projected(value, steps, odd) if steps else value)
        if odd:
            self._note(odd, self._row, NULL)

    def _are_last(self, steps: tuple[Step, ...], axis: int) -> bool:
        """Whether steps lead into no more lists, below the last array."""
        return axis == len(self._axes) and EACH not in steps

    def _add(self, items: Sequence[Any], steps: tuple[Step, ...], slot: int) -> None:
        """Add a value of each item, from a slot on: many at once, since most items end here."""
        odd: _Odd = []
        self.slots += range(slot, slot + len(items))
        self.values += [_found(item, steps, odd) for item in items]
        if not odd:
            return
        each = math.prod(axis.length for axis in self._axes)
        for number, item in enumerate(items):
            of_item: _Odd = []
            _found(item, steps, of_item)
            self._note(of_item, (slot + number) // each, NULL)

    def _note(self, odd: _Odd, row: int, outcome: str) -> None:
        for value, expected in odd:
            self.odd.append(OddValue(row, in_short(value), expected, outcome))


def items_of(value: Any) -> Any:
    """Return the items of a list; None for any other value."""
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
        return value
    return None


def _items(value: Any, odd: _Odd) -> Any:
    """Return the items of a list; None for null, and for another value, which is odd."""
    items = items_of(value)
    if items is None and value is not None:
        odd.append((value, LIST))
    return items


def _found(value: Any, steps: tuple[Step, ...], odd: _Odd) -> Any:
    for step in steps:
        if isinstance(step, int):
            items = _items(value, odd)
            is_there = items is not None and -len(items) <= step < len(items)
            value = items[step] if is_there else None
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            if value is not None:
                odd.append((value, OBJECT))
            return None
    return value


def _projected(value: Any, steps: tuple[Step, ...], odd: _Odd) -> Any:
    """Return a value behind steps into more lists than there are axes: a list of lists."""
    if not steps:
        return value
    rest = steps[1:]
    ahead = rest.index(EACH) if EACH in rest else len(rest)
    items = _items(value, odd)
    if items is None:
        return None
    return [_projected(_found(item, rest[:ahead], odd), rest[ahead:], odd) for item in items]
