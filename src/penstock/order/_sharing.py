"""Which positions of an order each rank takes: slices of global batches."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import OptionError, RecordIndexError
from penstock.order._whole import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray


def steps(
    length: int,
    batch_size: int,
    world_size: int,
    drop_last: bool,  # noqa: FBT001 (one more number of a row of numbers)
    *,
    origin: int = 0,
) -> int:
    """Return how many batches each rank gets from position `origin` to the end of the epoch.

    >>> steps(10, 2, 2, drop_last=False), steps(10, 2, 2, drop_last=True)
    (3, 2)
    """
    whole_number("batch_size", batch_size, 1)
    whole_number("world_size", world_size, 1)
    if not 0 <= operator.index(origin) <= operator.index(length):
        raise OptionError(f"origin={origin:,} does not lie in an epoch of {length:,} records.")
    whole, rest = divmod(length - origin, batch_size * world_size)
    return whole + (rest > 0 and not drop_last)


def share(  # noqa: PLR0913, PLR0917 (what a slice depends on)
    step: int,
    batch_size: int,
    rank: int,
    world_size: int,
    length: int,
    drop_last: bool,  # noqa: FBT001 (as in `steps`)
    *,
    origin: int = 0,
) -> tuple[int, int, int]:
    """Return `(start, stop, valid)`: which positions rank takes at a step, and how many are real.

    The global batch of a step is the `batch_size × world_size` positions after those of the step
    before (step 0 begins at `origin`, 0 unless an epoch is resumed with another global batch), and
    each rank takes a contiguous slice of it. The rest at the end is dropped for all ranks, or
    shared out evenly: every rank gets the same, smaller number of rows. Where the rest does not
    divide, fewer than `world_size` rows lie at or beyond `length`: they are padding, the last
    `stop - start - valid` rows of the slice. `share_rows` repeats a record for them.

    >>> [share(0, 2, rank, 2, 7, False) for rank in (0, 1)]
    [(0, 2, 2), (2, 4, 2)]
    >>> [share(1, 2, rank, 2, 7, False) for rank in (0, 1)]
    [(4, 6, 2), (6, 8, 1)]
    >>> share(1, 4, 0, 1, 7, False)
    (4, 7, 3)
    """
    count = steps(length, batch_size, world_size, drop_last, origin=origin)
    _check_rank(rank, world_size)
    if not 0 <= operator.index(step) < count:
        raise RecordIndexError(f"there is no step {step:,} in an epoch of {count:,}.")
    first = origin + step * batch_size * world_size
    rows = min(batch_size, -(-(length - first) // world_size))
    start = first + rank * rows
    return start, start + rows, min(max(length - start, 0), rows)


def share_rows(  # noqa: PLR0913, PLR0917 (what a slice depends on)
    step: int,
    batch_size: int,
    rank: int,
    world_size: int,
    length: int,
    drop_last: bool,  # noqa: FBT001 (as in `steps`)
    *,
    origin: int = 0,
    lanes: int = 1,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the positions that rank takes at a step, int64[B], and which are real, bool[B].

    The global batches are those of `share`. With the `lanes` of a block order, where the world size
    divides them, a rank takes every `world_size`-th position of a batch in place of a contiguous
    slice: that is whole lanes, so what the ranks read lies in different blocks. Padding repeats the
    last position, whose block is being read anyway.

    >>> positions, valid = share_rows(1, 2, rank=1, world_size=2, length=7, drop_last=False)
    >>> positions.tolist(), valid.tolist()
    ([6, 6], [True, False])
    >>> share_rows(0, 3, rank=1, world_size=2, length=7, drop_last=False, lanes=64)[0].tolist()
    [1, 3, 5]
    """
    start, stop, _ = share(step, batch_size, rank, world_size, length, drop_last, origin=origin)
    rows = stop - start
    positions = start - rank * rows + _own(rows, rank, world_size, lanes)
    return np.minimum(positions, length - 1), positions < length


def share_full(  # noqa: PLR0913, PLR0917 (what a slice depends on)
    start: int,
    stop: int,
    batch_size: int,
    rank: int,
    world_size: int,
    length: int,
    *,
    origin: int = 0,
    lanes: int = 1,
) -> NDArray[np.int64]:
    """Return what `share_rows` gives for steps `start` … `stop - 1`, int64[stop - start, B].

    They must be full batches (`steps(…, drop_last=True)` of them there are), so all rows are real.
    Many steps at once make the calls that follow, such as those of an order, much cheaper.

    >>> share_full(0, 2, 2, rank=1, world_size=2, length=9).tolist()
    [[2, 3], [6, 7]]
    """
    count = steps(length, batch_size, world_size, drop_last=True, origin=origin)
    _check_rank(rank, world_size)
    if not 0 <= operator.index(start) <= operator.index(stop) <= count:
        raise RecordIndexError(
            f"steps {start:,} to {stop:,} do not lie in the {count:,} full ones of an epoch."
        )
    step = np.arange(start, stop, dtype=np.int64)[:, np.newaxis]
    own = _own(batch_size, rank, world_size, lanes)
    positions: NDArray[np.int64] = origin + step * (batch_size * world_size) + own
    return positions


def _own(rows: int, rank: int, world_size: int, lanes: int) -> NDArray[np.int64]:
    """Return which positions of a global batch a rank takes, int64[rows]."""
    row = np.arange(rows, dtype=np.int64)
    takes_lanes = lanes > 1 and lanes % world_size == 0
    return rank + world_size * row if takes_lanes else rank * rows + row


def _check_rank(rank: int, world_size: int) -> None:
    if not 0 <= operator.index(rank) < world_size:
        raise OptionError(f"rank={rank} is not one of {world_size}; ranks count from 0.")
