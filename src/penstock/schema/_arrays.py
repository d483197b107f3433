"""The first stage of a schema: columns become the arrays of each leaf; pure, and without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import SchemaMismatchError
from penstock.schema._nodes import MASKED, NULL, PADDED, VALUED
from penstock.schema._odd_values import in_short
from penstock.schema._placement import BATCH_AXIS, ROOT_AXIS, OverflowedError
from penstock.schema._query import FailedQueryError
from penstock.schema._values import BadSlotError, Labels, scattered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.batch import BatchPosition
    from penstock.schema._nodes import Leaf
    from penstock.schema._odd_values import OddValue
    from penstock.schema._placement import Axis
    from penstock.schema._splits import Strata
    from penstock.schema._values import SlotValues

    Flags = NDArray[np.bool_] | None
    Placed = tuple[NDArray[np.int64], pa.Array | list[Any], Sequence[OddValue]]
    """Slots, the values in them, and values of another structure than the query expects."""

_ONE = 2**64


@dataclass(frozen=True, slots=True)
class LeafArrays:
    """One leaf of a batch, before its labels have numbers and slots are hidden."""

    state: NDArray[np.uint8]
    """`ValueState` of each slot, uint8[B, 1, …]."""
    content: dict[str, NDArray[Any]]
    """Parts of the content, with the slots as first axes; of a set, its items (see `offsets`)."""
    labels: Labels = field(default_factory=Labels)
    """What the numbers in `content["codes"]` stand for."""
    offsets: NDArray[np.int64] | None = None
    """Of sets, where the items of each row begin, int64[B + 1]; `content` then has the slot of each
    item within its row, too."""
    unavailable: Flags = None
    """Which values a known label is taken away from."""
    masked: Flags = None
    """Slots that `p_mask` hides; None where it hides none."""
    pruned: Flags = None
    """Rows that `p_prune` hides, bool[B]; None where it hides none."""
    odd: Sequence[OddValue] = ()
    """Values of another structure than the query expects."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        flags = (self.unavailable, self.masked, self.offsets)
        parts = [self.state, *self.content.values(), *(one for one in flags if one is not None)]
        return sum(part.nbytes for part in parts)

    def spread(self, there: NDArray[np.bool_]) -> LeafArrays:
        """Return its rows where `there`, bool[B], is true, and hidden ones elsewhere."""

        def rows(values: NDArray[Any], fill: int) -> NDArray[Any]:
            wide = np.full((len(there), *values.shape[1:]), fill, values.dtype)
            wide[there] = values
            return wide

        numbers = np.flatnonzero(there)
        content, offsets, unavailable = self.content, self.offsets, self.unavailable
        if offsets is not None:
            offsets = np.append(0, np.cumsum(rows(np.diff(offsets), 0)))
        else:
            fills = {"codes": -1}
            content = {name: rows(part, fills.get(name, 0)) for name, part in content.items()}
            unavailable = None if unavailable is None else rows(unavailable, 0)
        return replace(
            self,
            state=rows(self.state, MASKED),
            content=content,
            offsets=offsets,
            unavailable=unavailable,
            masked=None if self.masked is None else rows(self.masked, 0),
            pruned=None if self.pruned is None else rows(self.pruned, 0),
            odd=[one._replace(row=int(numbers[one.row])) for one in self.odd],
        )

    def part(self, start: int, stop: int) -> LeafArrays:
        """Return some of the rows."""

        def rows(values: Flags) -> Flags:
            return None if values is None else values[start:stop]

        own = slice(start, stop)
        offsets, unavailable = self.offsets, self.unavailable
        if offsets is not None:
            own = slice(int(offsets[start]), int(offsets[stop]))
            offsets = offsets[start : stop + 1] - offsets[start]
            unavailable = None if unavailable is None else unavailable[own]
        else:
            unavailable = rows(unavailable)
        return replace(
            self,
            state=self.state[start:stop],
            content={name: values[own] for name, values in self.content.items()},
            offsets=offsets,
            unavailable=unavailable,
            masked=rows(self.masked),
            pruned=rows(self.pruned),
            odd=[one._replace(row=one.row - start) for one in self.odd if start <= one.row < stop],
        )


def leaf_arrays(
    leaf: Leaf,
    address: str,
    axes: Sequence[Axis],
    where: BatchPosition,
    placed: Callable[[], Placed],
) -> LeafArrays:
    """Return the arrays of one leaf; `placed` returns its slots and the values in them."""
    count = len(where.ids)
    shape = (count, 1, *(axis.length for axis in axes))
    try:
        slots, values, odd = placed()
    except OverflowedError as found:
        raise _too_long(found, address, axes, where) from None
    except FailedQueryError as found:
        raise _mismatch(found.why, address, int(where.ids[found.row])) from None
    is_column = isinstance(values, pa.Array)
    try:
        encoded = leaf.from_arrow(values) if is_column else leaf.from_values(values)
    except BadSlotError as found:
        row = int(slots[found.slot]) * count // max(1, math.prod(shape))
        value = values[found.slot]
        raise _mismatch(
            found.why,
            address,
            int(where.ids[row]),
            value=in_short(value.as_py() if is_column else value),
        ) from None
    state = np.full(math.prod(shape), PADDED, np.uint8)
    state[slots] = np.where(encoded.valued, VALUED, NULL)
    content, offsets = _content(encoded, slots, shape)
    labels = encoded.labels
    known = labels if isinstance(labels, Labels) else Labels(labels)
    return LeafArrays(state.reshape(shape), content, known, offsets, odd=odd)


def _content(
    encoded: SlotValues, slots: NDArray[np.int64], shape: tuple[int, ...]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64] | None]:
    if encoded.items is None:
        fills = {"codes": -1}
        dense = {
            name: scattered(values, slots, shape, fills.get(name, 0))
            for name, values in encoded.content.items()
        }
        return dense, None
    each = math.prod(shape[1:])
    owners = np.repeat(slots, encoded.items)
    offsets = np.searchsorted(owners, np.arange(shape[0] + 1) * each)
    return {**encoded.content, "slots": (owners % each).astype(np.int32)}, offsets


def refuse_odd(arrays: LeafArrays, address: str, where: BatchPosition) -> None:
    """Raise for a value of another structure than the query expects."""
    for value in arrays.odd:
        record = int(where.ids[value.row])
        raise _mismatch(f"{value.fact} (strict=True)", address, record, value=value.text)


def drawn(
    arrays: LeafArrays, leaf: Leaf, address: str, where: BatchPosition, strata: Strata
) -> LeafArrays:
    """Return the arrays with what chance decides, by hashes of the position of each row."""
    shape = arrays.state.shape

    def flags(purpose: str, share: float, *size: int) -> Flags:
        if share <= 0:
            return None
        text, limit = f"{strata} {purpose} {address}", np.uint64(max(0, int(share * _ONE) - 1))
        if purpose == "unavailable" and arrays.offsets is not None:
            return _of_items(arrays, arrays.offsets, lambda *at: where.draw_at(text, *at)) <= limit
        return (where.draw(text, math.prod(size)) <= limit).reshape(-1, *size)

    # Of a target all is hidden, whatever chance says.
    is_shown = not leaf.target
    lost = getattr(leaf, "p_unavailable", 0) if strata == "train" else 0
    return replace(
        arrays,
        masked=flags("mask", leaf.p_mask * is_shown, *shape[1:]),
        pruned=flags("prune", leaf.p_prune * is_shown),
        unavailable=flags("unavailable", lost, *shape[1:]),
    )


def _of_items(
    arrays: LeafArrays, offsets: NDArray[np.int64], draw: Callable[..., NDArray[np.uint64]]
) -> NDArray[np.uint64]:
    """Return a number for each item of sets: for each label of a set its own, however often."""
    each, items = math.prod(arrays.state.shape[1:]), np.arange(offsets[-1])
    rows = np.repeat(np.arange(len(arrays.state)), np.diff(offsets))
    slots = arrays.content["slots"]
    sets = rows * each + slots
    begins = np.maximum.accumulate(np.where(np.diff(sets, prepend=-1), items, 0))
    numbers = draw(rows, (items - begins) * each + slots)
    labels = sets * len(arrays.labels) + arrays.content["codes"]
    _, first, again = np.unique(labels, return_index=True, return_inverse=True)
    return numbers[first[again]]


def _too_long(
    found: OverflowedError, address: str, axes: Sequence[Axis], where: BatchPosition
) -> SchemaMismatchError:
    remedy = "Let the query find one value for each record"
    if found.axis == BATCH_AXIS:
        dimension, length = "batch", len(where.ids)
    elif found.axis == ROOT_AXIS:
        dimension, length = address.split("/", maxsplit=1)[0], 1
    else:
        dimension, length = address.split("/")[found.axis + 1], axes[found.axis].length
        remedy = "Give more max_length, or overflow='head' or 'tail'"
    return _mismatch(
        f"{dimension!r} has {found.count:,} items, and its slots are {length:,} "
        f"(overflow='error'). {remedy}",
        address,
        int(where.ids[found.row]),
    )


def _mismatch(why: str, address: str, record: int, value: str | None = None) -> SchemaMismatchError:
    text = f"record {record:,}: {address}: {why}."
    return SchemaMismatchError(text, record=record, field=address, value=value)
