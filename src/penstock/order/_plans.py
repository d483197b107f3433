"""Batches of records with lengths or costs: what all such plans have in common."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar, Literal, Self, TypeAlias, TypeVar

import numpy as np

from penstock._cpus import usable_cpus
from penstock.errors import OptionError, RecordIndexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.order._order import Batches, RecordOrder

T = TypeVar("T")

Lengths: TypeAlias = "NDArray[np.integer] | Sequence[int] | str"
"""A whole number for each record; or, for a loader, what it looks up in the source."""
Oversize: TypeAlias = Literal["emit", "skip", "error"]
"""What a record beyond the limit is: alone, left out, an error."""
STRETCH = 1 << 18
"""Positions that are planned together: as many as block order computes together, and enough to
pack samples without a gap."""
_OVERSIZE = ("emit", "skip", "error")
_MISSING = -1
_THREADS = 16
"""That work on stretches of a few MB each."""


class LengthPlan(ABC):
    """A plan that looks at one whole number of each record.

    `lengths` are an array with one number for each record, or the name that a loader looks up in
    its source: a field (`"tokens"`), the length of a field (`"len(text)"`: characters of a text,
    items of a list) or `"len()"`, the length that the index knows (bytes of a record, tokens of a
    sample). With an `order` the plan is a sequence of batches by itself: arrays of record numbers.
    """

    version: int = 1
    """Raised whenever the same arguments would give other batches."""
    argument: ClassVar[str] = "lengths"
    least: ClassVar[int] = 1
    """The smallest number that a record may have."""

    def __init__(self, name: str, lengths: Lengths, order: RecordOrder | None) -> None:
        self.name = name
        """The kind of plan with its arguments, except the lengths."""
        self.order = order
        self.field = lengths.strip() if isinstance(lengths, str) else None
        """What a loader looks up; None where the numbers were given."""
        self._given = None if isinstance(lengths, str) else _checked(self.argument, lengths)
        self._find: Callable[[], NDArray[np.integer]] | None = None

    def bound(self, find: Callable[[], NDArray[np.integer]]) -> Self:
        """Return the same plan with the function that finds its lengths."""
        plan = copy(self)
        plan._given, plan._find = None, find  # noqa: SLF001 (of the same class)
        return plan

    @property
    def lengths(self) -> NDArray[np.integer]:
        if self._given is not None:
            return self._given
        if self._find is None:
            raise OptionError(
                f"{self.argument}={self.field!r}: only a DataLoader looks this up in its source. "
                "Give an array of whole numbers, one for each record."
            )
        return self._find()

    def key(self, length: int) -> str:
        """Return a hash of the lengths of the first `length` records, whatever their dtype."""
        lengths = self.lengths
        digest = blake2b(digest_size=8)
        for part in ahead(lambda start, stop: _digest(lengths[start:stop]), length):
            digest.update(part)
        return digest.hexdigest()

    @abstractmethod
    def over(self, order: RecordOrder) -> Batches:
        """Return the batches of one epoch."""

    @abstractmethod
    def describe(self) -> str:
        """Return in a few words what a batch is."""

    def space(self, lengths: NDArray[np.int64], bins: NDArray[np.int64] | None) -> int:
        """Return how much a batch of records takes: each padded to the longest of them."""
        return len(lengths) * int(lengths.max(initial=0))

    def at(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lengths of records (int64[n]), int64[n]; raise for one that is too small."""
        lengths = self.lengths
        if records.size and int(records.max()) >= len(lengths):
            raise OptionError(
                f"{self.argument} has {len(lengths):,} values, and there is a record "
                f"{records.max():,}: give one for each record."
            )
        found: NDArray[np.int64] = lengths[records].astype(np.int64)
        if found.size and int(found.min()) < self.least:
            row = int((found < self.least).argmax())
            self._refuse(int(records[row]), int(found[row]))
        return found

    def _refuse(self, record: int, value: int) -> None:
        what = f"record {record:,} has the value {value:,}"
        if self.field is not None and value == _MISSING:
            what = f"record {record:,} has no whole number in {self.field}, or cannot be read"
        elif self.field is not None:
            what += f" in {self.field}"
        raise OptionError(
            f"{self.argument}: {what}. Expected a whole number, {self.least} or more.",
            remedy=f"Leave such records out by skip=[{record}, …] of the loader, or give an array "
            "with numbers for them.",
        )

    def __len__(self) -> int:
        return len(self._own()[1])

    def __getitem__(self, number: int) -> NDArray[np.int64]:
        """Return the record numbers of one batch, int64[B]."""
        order, batches = self._own()
        if not 0 <= operator.index(number) < len(batches):
            raise RecordIndexError(f"there is no batch {number:,}: there are {len(batches):,}.")
        return order.at(batches.positions(number))

    def __bool__(self) -> bool:
        return True  # Not `len`, which needs an order.

    def __repr__(self) -> str:
        by = f"given {self.argument}" if self.field is None else self.field
        return f"<{type(self).__name__} {self.name} by {by}>"

    def _own(self) -> tuple[RecordOrder, Batches]:
        if self.order is None:
            raise OptionError(
                "this plan has no order of its own: give order=Order(length, seed=…), or ask for "
                "the batches of an order: plan.over(order)."
            )
        known: tuple[RecordOrder, Batches] | None = vars(self).get("_planned")
        if known is None:
            known = vars(self)["_planned"] = (self.order, self.over(self.order))
        return known


class CutPlan(LengthPlan):
    """A plan that goes through the whole order once; its two arrays are kept for large orders.

    `limit` is what fits into one bin: a batch of a `CostPlan`, a sample of a `PackingPlan`.
    """

    limit_argument: ClassVar[str]
    bins: ClassVar[bool] = False
    """Whether a batch shows which rows share a bin."""

    def __init__(  # noqa: PLR0913, PLR0917 (what both plans are made of)
        self,
        name: str,
        lengths: Lengths,
        limit: int,
        each: int,
        oversize: Oversize,
        order: RecordOrder | None,
    ) -> None:
        if oversize not in _OVERSIZE:
            raise OptionError(f"oversize={oversize!r}: expected one of {', '.join(_OVERSIZE)}.")
        super().__init__(f"{name}-{oversize}", lengths, order)
        self.limit, self.each, self.oversize = limit, each, oversize

    def over(self, order: RecordOrder) -> CutBatches:
        return self.cut(*self.arrays(order))

    @abstractmethod
    def arrays(self, order: RecordOrder) -> list[NDArray[np.integer]]:
        """Return where bins start among the rows, and the position of each row; see `CutBatches`.

        A pure function, computed by several threads.
        """

    def cut(self, starts: NDArray[np.integer], rows: NDArray[np.integer]) -> CutBatches:
        return CutBatches(starts, rows, self.each, shows_bins=self.bins)

    def _kept(
        self, order: RecordOrder, start: int, stop: int
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
        """Return the positions of a stretch that come, None for all, and their lengths."""
        records = order.positions(start, stop)
        lengths = self.at(records)
        if self.oversize == "emit" or int(lengths.max(initial=0)) <= self.limit:
            return None, lengths
        fits = lengths <= self.limit
        if self.oversize == "error":
            row = int(fits.argmin())
            raise OptionError(
                f"record {records[row]:,} has {lengths[row]:,}, more than {self.limit_argument}="
                f"{self.limit:,}.",
                remedy="Raise the limit; or let such a record come alone, oversize='emit', or "
                "never, oversize='skip'.",
            )
        return start + np.flatnonzero(fits), lengths[fits]


class CutBatches:
    """Bins of rows, some of them a batch: the `Batches` of a `CutPlan`.

    `starts` (int[bins + 1]) are the first rows of bins, and at last the number of rows. `rows`
    are their positions in the order; empty where row and position are the same.
    """

    def __init__(
        self,
        starts: NDArray[np.integer],
        rows: NDArray[np.integer],
        each: int,
        *,
        shows_bins: bool,
    ) -> None:
        self._starts, self._rows = starts, rows
        self._each, self._shows_bins = each, shows_bins

    def __len__(self) -> int:
        return (len(self._starts) - 2) // self._each + 1

    def positions(self, number: int) -> NDArray[np.int64]:
        borders = self._borders(number)
        start, stop = int(borders[0]), int(borders[-1])
        if not len(self._rows):
            return np.arange(start, stop, dtype=np.int64)
        return self._rows[start:stop].astype(np.int64)

    def bins(self, number: int) -> NDArray[np.int64] | None:
        """Return the first row of each bin of a batch, and at last the number of its rows."""
        borders = self._borders(number)
        return borders - borders[0] if self._shows_bins else None

    def _borders(self, number: int) -> NDArray[np.int64]:
        first = number * self._each
        return self._starts[first : first + self._each + 1].astype(np.int64)


def position_type(length: int) -> type[np.integer]:
    """Return the narrowest type that positions are kept in."""
    return np.int32 if length <= np.iinfo(np.int32).max else np.int64


def ahead(work: Callable[[int, int], T], length: int) -> Iterator[T]:
    """Yield the results for all stretches of so many positions in order, computed by threads."""
    ranges = [(at, min(at + STRETCH, length)) for at in range(0, length, STRETCH)]
    threads = min(usable_cpus(), _THREADS, len(ranges))
    if threads < 2:  # noqa: PLR2004 (nothing is computed side by side)
        yield from (work(*ends) for ends in ranges)
        return
    with ThreadPoolExecutor(threads, "penstock-plan") as pool:
        waiting: deque[Future[T]] = deque()
        for ends in ranges:
            waiting.append(pool.submit(work, *ends))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _digest(part: NDArray[np.integer]) -> bytes:
    return blake2b(np.ascontiguousarray(part, "<i8").data, digest_size=16).digest()


def _checked(name: str, values: object) -> NDArray[np.integer]:
    array = np.asarray(values)
    if array.ndim == 1 and (array.dtype.kind in "iu" or not array.size):
        return array if array.size else array.astype(np.int64)
    fact = f"an array of {array.dtype}{list(array.shape)}"
    if array.ndim == 1 and array.dtype.kind == "f" and np.isnan(array).any():
        fact += f", and record {int(np.isnan(array).argmax()):,} has NaN"
    raise OptionError(
        f"{name} is {fact}; give whole numbers, one for each record. Round others up: "
        f"numpy.ceil({name}).astype('int64')."
    )
