"""Which record stands at which position of an epoch, and which positions a batch has."""

from __future__ import annotations

import operator
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeAlias,
    runtime_checkable,
)

import numpy as np

from penstock._words import counted
from penstock.errors import OptionError
from penstock.order._blocks import LANES, BlockOrder, window_records
from penstock.order._permutation import Permutation, checked_positions, stretch_of
from penstock.order._skips import Skips

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penstock.order._skips import Skip

Kind: TypeAlias = Literal["sequential", "full", "block"]
KINDS: tuple[Kind, ...] = ("sequential", "full", "block")
_LONGEST = 2**63 - 1
"""The most that `len` can return and an int64 offset can hold."""


class RecordOrder(Protocol):
    """The contract of an order: which record stands at which position of one epoch; pure.

    A state holds `kind`, `VERSION` and `lanes`, and a resume refuses those it does not know.
    `Order` makes the plain kinds; `ORDERS` in `_kinds.py` lists all.
    """

    kind: Any
    """The name of this kind of order."""
    VERSION: ClassVar[int]
    """Raised whenever the same arguments would give another order."""
    lanes: int
    """Into how many equal lanes it is dealt: position i belongs to lane `i % lanes`; 1 for none."""
    repeats: bool
    """Whether a record may come more than once: its position then joins every random draw."""

    def __len__(self) -> int: ...

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the record numbers that stand at `start` … `stop - 1`, int64[stop - start]."""

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the record numbers that stand at positions (integers), int64 of the same shape."""


@runtime_checkable
class Plan(Protocol):
    """Cuts an epoch into batches of any size; a loader takes it in place of a batch size.

    A pure function of its own arguments and the order, so every rank derives the same batches. At
    step s, rank r of W takes batch s·W + r. A state counts batches, so another number of ranks
    continues with the next one.
    """

    name: str
    """Part of the state, with `version`: a run continues only with the plan that it began with."""
    version: int
    """Raised whenever the same arguments would give other batches."""

    def over(self, order: RecordOrder) -> Batches:
        """Return the batches of one epoch."""


class Batches(Protocol):
    """The batches of one epoch, by number; used by one thread."""

    def __len__(self) -> int: ...

    def positions(self, number: int) -> NDArray[np.int64]:
        """Return the positions of one batch, int64[B], at least one."""


class Order:
    """All records of a dataset, each exactly once, in the order of one epoch.

    A pure function of the arguments and `VERSION`. `kind` is

    - `"sequential"`: as they are numbered;
    - `"full"`: every order is as likely as any other, and takes no memory;
    - `"block"`: the blocks (units of storage: a zstd frame, a row group) in random order, and
      records in random order inside windows of many blocks, so that each block is needed for a
      short time only. A dataset of at most one window is shuffled in full. It takes two numbers a
      block.

    `blocks` are the record offsets of the blocks, int64, first 0, last `length`. `skip` are record
    numbers and (start, stop) ranges to leave out; the order is shorter by them.

    >>> Order(6, kind="sequential", skip=[1, (3, 5)]).positions(0, 3).tolist()
    [0, 2, 5]
    >>> order = Order(10, seed=1, skip=[4])
    >>> len(order), sorted(order.positions(0, 9).tolist())
    (9, [0, 1, 2, 3, 5, 6, 7, 8, 9])
    >>> import numpy as np
    >>> million = Order(10**6, kind="block", blocks=np.arange(0, 10**6 + 1, 1000))
    >>> million.lanes, len(np.unique(million.positions(0, 1024) // 1000)) > 64
    (64, True)
    """

    VERSION: ClassVar[int] = 1
    """Raised whenever the same arguments would give another order, also by other sizes of windows
    or another number of lanes."""
    repeats = False

    def __init__(  # noqa: PLR0913 (the six things that an order depends on)
        self,
        length: int,
        *,
        seed: int = 0,
        epoch: int = 0,
        kind: Kind = "full",
        blocks: NDArray[np.int64] | None = None,
        skip: Skip = (),
    ) -> None:
        self.length = operator.index(length)
        self.seed = operator.index(seed)
        self.epoch = operator.index(epoch)
        self.kind = kind
        if not 0 <= self.length <= _LONGEST:
            raise OptionError(f"length={length}: an order has from 0 to 2**63 - 1 records.")
        if kind not in KINDS:
            raise OptionError(f"kind={kind!r}: an order is one of {', '.join(KINDS)}.")
        borders = None if blocks is None else _checked_blocks(blocks, self.length)
        self._blocks = borders
        self._skips = Skips(skip, self.length)
        self._kept = self._skips.kept
        self.lanes = 1
        """Into how many equal lanes the order is dealt: position i belongs to lane `i % lanes`."""
        self._ranks: Callable[[NDArray[np.int64]], NDArray[np.int64]]
        if kind == "sequential":
            self._ranks = lambda positions: positions
        elif kind == "full":
            self._ranks = Permutation(self._kept, self.seed, self.epoch).at
        elif borders is None:
            raise OptionError(
                'kind="block" needs blocks: the int64 record offsets of the units of storage, '
                "first 0, last the length (a source has them as `source.blocks`)."
            )
        else:
            kept_borders = self._skips.ranks(borders)
            count = int(np.count_nonzero(np.diff(kept_borders)))
            if self._kept <= window_records(self._kept, count):
                self._ranks = Permutation(self._kept, self.seed, self.epoch).at
            else:
                self.lanes = LANES
                self._ranks = BlockOrder(kept_borders, self.seed, self.epoch, self.VERSION).at

    @property
    def skip(self) -> tuple[tuple[int, int], ...]:
        """The records left out, as sorted (start, stop) ranges that do not touch."""
        return self._skips.ranges

    def __len__(self) -> int:
        return self._kept

    def __repr__(self) -> str:
        skipped = f", {self.length - self._kept} skipped" if self._kept < self.length else ""
        return (
            f"<Order of {counted(self.length, 'record')}, seed={self.seed}, epoch={self.epoch}, "
            f"kind={self.kind!r}{skipped}>"
        )

    def __reduce__(self) -> tuple[object, ...]:
        # Only the arguments travel; the rest is computed again.
        skip = np.array(self.skip, np.int64).reshape(-1, 2)
        when: dict[str, Any] = {"seed": self.seed, "epoch": self.epoch, "kind": self.kind}
        return partial(Order, self.length, **when, blocks=self._blocks, skip=skip), ()

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the record numbers that stand at `start` … `stop - 1`, int64[stop - start]."""
        asked = stretch_of(start, stop, self._kept).view(np.int64)
        return self._skips.records(self._ranks(asked))

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the record numbers that stand at positions (integers), int64 of the same shape."""
        array = checked_positions(positions, self._kept)
        ranks = self._ranks(array.astype(np.int64).reshape(-1))
        return self._skips.records(ranks).reshape(array.shape)


def clip_blocks(blocks: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return the blocks (int64[n + 1] record offsets) of the first `length` records.

    They are the blocks that a source had before it grew: a run continues the order it began.

    >>> import numpy as np
    >>> clip_blocks(np.array([0, 4, 8, 12]), 8).tolist(), clip_blocks(np.array([0, 4]), 3).tolist()
    ([0, 4, 8], [0, 3])
    """
    borders = np.asarray(blocks)
    if borders.size and 0 <= length < borders[-1]:
        # A block that ended exactly there is followed by no border of its own.
        whole = borders[: np.searchsorted(borders, length, side="left")]
        return np.append(whole, length).astype(np.int64)
    return borders


def _checked_blocks(blocks: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    borders = np.asarray(blocks)
    fact = ""
    if borders.ndim != 1 or not borders.size or borders.dtype.kind not in "iu":
        fact = f"blocks is an array of {borders.dtype}{list(borders.shape)}"
    elif borders[0] != 0 or borders[-1] != length:
        fact = f"blocks go from {borders[0]:,} to {borders[-1]:,}"
    elif (falls := np.flatnonzero(borders[1:] < borders[:-1])).size:
        at = int(falls[0])
        fact = f"blocks[{at + 1}] is {borders[at + 1]:,}, less than blocks[{at}], {borders[at]:,}"
    if fact:
        raise OptionError(
            f"{fact}; give record offsets, int64[number of blocks + 1], that begin with 0, "
            f"never fall and end with the length, {length:,}."
        )
    return borders.astype(np.int64)
