"""`Mixture`: records of several sources in given shares."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from penstock.errors import OptionError
from penstock.order._order import Order
from penstock.order._permutation import checked_positions, keys, mixed, stretch_of
from penstock.order._schedule import LONGEST, Schedule
from penstock.order._shares import Change, changed, changes_in, phases_of, stretches
from penstock.order._skips import Skips

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Sized

    from numpy.typing import NDArray

    from penstock.order._order import Kind
    from penstock.order._shares import Weights
    from penstock.order._skips import Skip

Stop: TypeAlias = Literal["first_exhausted", "all_exhausted", "repeat"]
STOPS: tuple[Stop, ...] = get_args(Stop)
_KINDS = ("full", "block")
_KEPT = 16
"""Orders of single sources that are kept, each of one pass over its source."""
_FEW = 256
"""A source of fewer records is shuffled for many passes at once: each of them is short."""


class Seen(NamedTuple):
    """How often a run has seen a source."""

    records: int
    epochs: float
    """Passes over the source: records by its length."""
    share: float
    """Of all records that the run has seen."""


class Mixture:
    """Records of several sources in given shares, each source in a shuffled order of its own.

    Which record stands at which position is a pure function, as for `Order`. In any few thousand
    positions every source has its share, within a few records. A loader takes a mixture in place
    of a source. The record numbers are those of all sources, one after the other.

    Args:
        sources: Sources, or their lengths, by name.
        weights: A number above 0 for each name; shares are in proportion. Or phases, as in
            `[(0, {"web": 1}), (10_000, {"web": 3, "code": 1})]`: weights that hold from a position
            of the epoch on. A source that a phase does not name does not come in it.
        stop: When an epoch ends: `"first_exhausted"`, before a record would come again;
            `"all_exhausted"`, when every record came; `"repeat"`, never. A source that is used up
            begins again, in another order.
        seed: Decides the order. Without it the loader's seed does.

    >>> mix = Mixture({"web": 1000, "code": 300}, {"web": 0.75, "code": 0.25}, seed=1)
    >>> mix, len(mix)
    (<Mixture of web 75.0%, code 25.0%; stop='first_exhausted'>, 1204)
    >>> mix.sources_at(range(5)).tolist()
    ['web', 'code', 'web', 'web', 'code']
    """

    def __init__(
        self,
        sources: Mapping[str, int | Sized],
        weights: Weights,
        stop: Stop = "first_exhausted",
        seed: int | None = None,
    ) -> None:
        if not isinstance(sources, Mapping):
            raise OptionError("sources: give them by name, as in {'web': a, 'code': b}.")
        self.sources = dict(sources)
        self.lengths = {name: _length(name, one) for name, one in self.sources.items()}
        if not self.lengths:
            raise OptionError("a mixture of no sources: give some, as in {'web': a, 'code': b}.")
        self.names = list(self.lengths)
        self.phases = phases_of(weights, self.names)
        if stop not in STOPS:
            raise OptionError(f"stop={stop!r}: expected {' or '.join(map(repr, STOPS))}.")
        self.stop = stop
        self.seed = seed
        len(self._first)  # Raises for a mixture that cannot end as it should.

    def order(self, epoch: int = 0) -> MixtureOrder:
        """Return the order of an epoch."""
        length = sum(self.lengths.values())
        return MixtureOrder(length, seed=self.seed or 0, epoch=epoch, **self.facts())

    @cached_property
    def _first(self) -> MixtureOrder:
        return self.order()

    def __len__(self) -> int:
        return len(self._first)

    def __repr__(self) -> str:
        return f"<Mixture of {self.shares()}; stop={self.stop!r}>"

    def shares(self) -> str:
        """Return the share of each source in each phase, in words."""
        parts = []
        for start, weights in self.phases:
            own = (
                f"{name} {weight / sum(weights):.1%}"
                for name, weight in zip(self.names, weights, strict=True)
                if weight
            )
            parts.append(f"from position {start:,} on " * (start > 0) + ", ".join(own))
        return "; ".join(parts)

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the record numbers at `start` … `stop - 1` of epoch 0, int64[stop - start]."""
        return self._first.positions(start, stop)

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the record numbers at positions (integers) of epoch 0, int64 of the same shape."""
        return self._first.at(positions)

    def sources_at(self, positions: NDArray[np.int64]) -> NDArray[np.str_]:
        """Return the names of the sources at positions (integers) of epoch 0, same shape.

        `DataLoader.source_of` says it of the rows of a batch.
        """
        return np.array(self.names)[self._first.sources_at(positions)]

    def report(self, run: Any) -> dict[str, Seen]:  # noqa: ANN401 (a loader or its state)
        """Return how often a run has seen each source, up to the last batch handed out.

        Args:
            run: The loader, or its `state_dict()`. Epochs before the present one count as a whole,
                also where `drop_last` left out their last records. With a plan, only where an epoch
                begins.
        """
        state = run.state_dict() if hasattr(run, "state_dict") else run
        facts = dict(state["order"])
        if facts.pop("kind") != MixtureOrder.kind or facts["names"] != self.names:
            raise OptionError("this is the state of another run: give one over this mixture.")
        if "plan" in facts and state["position"]:
            raise OptionError(
                "the state counts batches of a plan, which mix positions of the epoch: a report is "
                "possible where an epoch begins."
            )
        skip = [(start, stop) for start, stop, *later in state["skip"] if not later]
        total = np.zeros(len(self.names), np.int64)
        for epoch in range(state["epoch"] + 1):
            order = MixtureOrder(
                state["length"], **facts, seed=state["seed"], epoch=epoch, skip=skip
            )
            total += order.counts(state["position"] if epoch == state["epoch"] else len(order))
        numbers = zip(self.names, total.tolist(), facts["lengths"], strict=True)
        whole = max(1, int(total.sum()))
        return {name: Seen(count, count / length, count / whole) for name, count, length in numbers}

    def facts(
        self, lengths: Sequence[int] | None = None, orders: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Return what the state of a run that begins holds of it, in plain JSON types."""
        return {
            "names": self.names,
            "lengths": list(lengths or self.lengths.values()),
            "orders": list(orders or ["full"] * len(self.names)),
            "stop": self.stop,
            "weights": _plain([Change(0, 0, self.phases)]),
        }

    def continued(self, facts: Mapping[str, Any], epoch: int, position: int) -> dict[str, Any]:
        """Return what the state of a run holds that goes on with this mixture at a place.

        The weights of this mixture hold from there on. Every source goes on where it was.
        """
        for what, own in (("names", self.names), ("stop", self.stop)):
            if facts[what] != own:
                raise OptionError(
                    f"the state is of a mixture with {what} {facts[what]!r}, and this one has "
                    f"{own!r}. Give that mixture: only its weights may change during a run."
                )
        changes = changes_in(facts["weights"], len(self.names))
        return {**facts, "weights": _plain(changed(changes, epoch, position, self.phases))}


class MixtureOrder:
    """The order of one epoch of a mixture; a `RecordOrder`."""

    VERSION: ClassVar[int] = Schedule.VERSION
    kind = "mixture"
    lanes = 1

    def __init__(  # noqa: PLR0913 (what the order depends on, as a state has it)
        self,
        length: int,
        *,
        names: Sequence[str],
        lengths: Sequence[int],
        orders: Sequence[Kind],
        stop: Stop,
        weights: Any,  # noqa: ANN401 (as a state has it)
        seed: int = 0,
        epoch: int = 0,
        skip: Skip = (),
        blocks: NDArray[np.int64] | None = None,
        **_: object,
    ) -> None:
        """Make the order of one epoch.

        Args:
            length: Records of all sources, with those that are skipped.
            names: Of the sources.
            lengths: Records of each source.
            orders: How each source is shuffled: `"full"` or `"block"`.
            stop: As for `Mixture`.
            weights: Phases, and where they changed: see `Change`.
            seed: Decides the order, with the epoch.
            epoch: A source has another order in each.
            skip: Records to leave out.
            blocks: Record offsets of the units of storage of all sources, where `orders` say so.
        """
        _check(length, names, lengths, orders, stop)
        self._names, self._orders, self._blocks = names, orders, blocks
        self._when = (seed, epoch)
        self._skips = Skips(skip, length)
        self._starts = np.cumsum([0, *lengths])
        self._ranks = self._skips.ranks(self._starts)
        """The rank of each source's first record among those kept, and how many are kept."""
        self._kept = np.diff(self._ranks).tolist()
        if 0 in self._kept:
            name = names[self._kept.index(0)]
            raise OptionError(f"skip leaves no record of the source {name!r} of the mixture.")
        changes = changes_in(weights, len(names))
        self._schedule = Schedule(stretches(changes, epoch), seed, epoch)
        self.repeats = stop != "first_exhausted"
        self._length = self._end(stop)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_order"}

    @cached_property
    def _order(self) -> Callable[[int, int], Order]:
        return lru_cache(_KEPT)(self._order_of)

    def _end(self, stop: Stop) -> int:
        kept = self._kept
        if stop == "repeat":
            return LONGEST
        if stop == "first_exhausted":
            return self._schedule.first(lambda counts: any(map(int.__gt__, counts, kept))) - 1
        end = self._schedule.first(lambda counts: all(map(int.__ge__, counts, kept)))
        if end == LONGEST:
            raise OptionError(
                "stop='all_exhausted': the epoch never ends, because the last phase leaves out a "
                "source whose records have not all come. Name it there, or stop otherwise."
            )
        return end

    def __len__(self) -> int:
        return self._length

    def counts(self, position: int) -> list[int]:
        """Return how many records of each source stand before a position."""
        return self._schedule.counts(position)

    def sources_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of the sources at positions (integers), int64 of the same shape."""
        array = checked_positions(positions, self._length)
        sources, _ = self._schedule.at(array.astype(np.int64).reshape(-1))
        return sources.reshape(array.shape)

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the record numbers that stand at `start` … `stop - 1`, int64[stop - start]."""
        return self._records(stretch_of(start, stop, self._length).view(np.int64))

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the record numbers that stand at positions (integers), int64 of the same shape."""
        array = checked_positions(positions, self._length)
        return self._records(array.astype(np.int64).reshape(-1)).reshape(array.shape)

    def _records(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        sources, counts = self._schedule.at(positions)
        found = np.empty_like(positions)
        for source, kept in enumerate(self._kept):
            rows = np.flatnonzero(sources == source)
            passes, places = np.divmod(counts[rows], kept)
            if kept < _FEW:
                places = self._shuffled(source, passes, places)
            else:
                for number in np.unique(passes).tolist():
                    own = passes == number
                    places[own] = self._order(source, number).at(places[own])
            found[rows] = places + self._ranks[source]
        return self._skips.records(found)

    def _shuffled(
        self, source: int, passes: NDArray[np.int64], places: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return what stands at places of many passes over a source of few records, int64[n]."""
        numbers, which = np.unique(passes, return_inverse=True)
        of_pass, of_record = keys(f"mixture {self._names[source]}", *self._when, count=2)
        rows = mixed(numbers.astype(np.uint64), of_pass)
        records = np.arange(self._kept[source], dtype=np.uint64)
        orders = np.argsort(mixed(np.add.outer(rows, records), of_record), axis=1, kind="stable")
        found: NDArray[np.int64] = orders[which, places]
        return found

    def _order_of(self, source: int, number: int) -> Order:
        """Return the order of the kept records of a source in one pass over it."""
        (seed,) = keys(f"mixture {self._names[source]}", *self._when)
        kind, blocks = self._orders[source], None
        if kind == "block" and self._blocks is not None:
            first, last = self._starts[source : source + 2]
            inside = self._blocks[(self._blocks >= first) & (self._blocks <= last)]
            blocks = self._skips.ranks(inside) - self._ranks[source]
        return Order(self._kept[source], seed=seed, epoch=number, kind=kind, blocks=blocks)


def _length(name: str, source: int | Sized) -> int:
    if not isinstance(name, str):
        raise OptionError(f"sources: {name!r} is no name; give a text.")
    if isinstance(source, str | bytes | os.PathLike):
        raise OptionError(f"source {name!r}: {source!r} is a path. Open it: penstock.open(…).")
    length: Any = source
    with suppress(TypeError):
        length = len(length)
    if isinstance(length, bool) or not isinstance(length, int | np.integer) or length < 0:
        raise OptionError(f"source {name!r}: {source!r} has no length. Give a source, or a number.")
    if not length:
        raise OptionError(f"source {name!r} is empty: leave it out.")
    return int(length)


def _check(length: int, *facts: Any) -> None:  # noqa: ANN401 (as a state has them)
    """Refuse facts of a state that no mixture has."""
    names, lengths, orders, stop = facts
    lists = all(isinstance(one, list) for one in facts[:-1])
    if not (
        lists
        and len({len(one) for one in facts[:-1]}) == 1
        and all(isinstance(name, str) for name in names)
        and all(type(one) is int and one > 0 for one in lengths)
        and sum(lengths) == length
        and all(order in _KINDS for order in orders)
        and stop in STOPS
    ):
        raise OptionError(
            f"state: order is not that of a mixture of {length:,} records: names {names!r}, "
            f"lengths {lengths!r}, orders {orders!r}, stop {stop!r}."
        )


def _plain(changes: Sequence[Change]) -> list[Any]:
    """Return changes in the plain types of a state."""
    return [
        [one.epoch, one.position, [[start, list(own)] for start, own in one.phases]]
        for one in changes
    ]
