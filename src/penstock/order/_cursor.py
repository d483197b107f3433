"""Where a run stands: the few numbers of a checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from penstock.errors import OptionError
from penstock.order._kinds import ORDERS
from penstock.order._order import Order, clip_blocks
from penstock.order._schedule import LONGEST
from penstock.order._skips import Skips

if TYPE_CHECKING:
    from penstock.order._order import RecordOrder
    from penstock.order._skips import Skip

Ranges: TypeAlias = tuple[tuple[int, int], ...]

_KEYS = ("version", "fingerprint", "length", "seed", "epoch", "order", "position", "skip")
_ORDER_KEYS = ("kind", "version", "lanes")
_PLAN_KEYS = ("name", "version")
_SAME = ("fingerprint", "length", "seed", "epoch", "position")
"""Keys of a state that are attributes of a cursor."""
_PAIR = 2
_REMEDY = "Give what `state_dict()` returned, unchanged."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A place in an epoch, as a state document holds it: without ranks, workers or batches.

    Records skipped in mid-epoch keep their places in that epoch, where they count as invalid; the
    next epoch leaves them out.

    >>> cursor = Cursor(fingerprint="ab12", length=100, position=40).with_skips([7, (20, 30)])
    >>> cursor.order_skip, cursor.masked, len(cursor.order())
    ((), ((7, 8), (20, 30)), 100)
    >>> cursor = cursor.at(epoch=1)
    >>> cursor.order_skip, cursor.masked, len(cursor.order())
    (((7, 8), (20, 30)), (), 89)
    """

    VERSION: ClassVar[int] = 1
    """The version of the document; that of the order is `order_version`."""

    fingerprint: str
    """Of the source; it guards a resume and does not decide the order."""
    length: int
    """Records of the source when the run began, with those that are skipped."""
    seed: int = 0
    epoch: int = 0
    kind: str = "full"
    """A key of `ORDERS`."""
    own: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The parameters of this kind of order alone, in plain JSON types; `OrderKind.own` names them.
    """
    order_version: int = Order.VERSION
    lanes: int = 1
    """`RecordOrder.lanes`."""
    plan: tuple[str, int] | None = None
    """Name and version of the plan that cuts the epoch into batches; None where they are equal."""
    position: int = 0
    """Positions of the epoch's order that were handed out; with a plan, batches."""
    skip: tuple[tuple[int, ...], ...] = ()
    """Sorted (start, stop) ranges of records that the order of this epoch leaves out, and
    (start, stop, epoch) ones that are invalid until that epoch, which leaves them out."""
    _left_out: Skips = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.fingerprint, str):
            raise _wrong("fingerprint", self.fingerprint, "a string")
        if str(self.kind) not in ORDERS:  # A state may hold what cannot be a key.
            raise _wrong("order.kind", self.kind, f"one of {', '.join(ORDERS)}")
        _integer("length", self.length, least=0)
        _integer("seed", self.seed)
        _integer("epoch", self.epoch, least=0)
        _integer("order.lanes", self.lanes, least=1)
        _version("order.version", self.order_version, ORDERS[self.kind].version)
        _keys("order.", self.own, ORDERS[self.kind].own)
        if self.plan is not None:
            if not isinstance(self.plan[0], str):
                raise _wrong("order.plan.name", self.plan[0], "a string")
            _integer("order.plan.version", self.plan[1], least=1)
        left_out, skip = _settled(self.skip, self.epoch, self.length)
        object.__setattr__(self, "skip", skip)
        object.__setattr__(self, "_left_out", left_out)
        self._check_position()

    def _check_position(self) -> None:
        _integer("position", self.position, least=0)
        # The length of other orders is looked at with the order, and not at every step.
        most = LONGEST if self.own else self._left_out.kept
        if self.position > most:
            raise _wrong("position", self.position, f"at most the {most:,} records kept")

    @property
    def order_skip(self) -> Ranges:
        """The ranges that the order of this epoch leaves out: it is shorter by them."""
        return self._left_out.ranges

    @property
    def masked(self) -> Ranges:
        """The ranges that have their place in this epoch but do not count: `valid` is False."""
        return tuple((entry[0], entry[1]) for entry in self.skip if len(entry) > _PAIR)

    @property
    def needs_blocks(self) -> bool:
        """Whether `order` needs the blocks of the source."""
        return "block" in (self.kind, *self.own.get("orders", ()))

    @property
    def order_length(self) -> int:
        """How many positions the order of this epoch has."""
        return len(self.order()) if self.own else self._left_out.kept

    def order(self, given: Any = None) -> RecordOrder:  # noqa: ANN401 (what the kind says)
        """Return the order of this epoch, given what its kind needs of the source.

        The source may have grown since: its blocks are cut off at `length`. Without what it needs,
        an order of a kind with parameters of its own has a length only.
        """
        row = ORDERS[self.kind]
        if row.needs == "blocks" and given is not None:
            given = clip_blocks(given, self.length)
        order = row.make(
            self.length,
            seed=self.seed,
            epoch=self.epoch,
            kind=self.kind,
            skip=self.order_skip,
            **({row.needs: given} if row.needs else {}),
            **self.own,
        )
        if self.position and order.lanes != self.lanes:
            raise OptionError(
                f"state: order.lanes is {self.lanes}, and the blocks of this source make "
                f"{order.lanes}: its order cannot be continued. Start the epoch again, or open the "
                "data as it was opened then."
            )
        if self.position > len(order):
            raise _wrong("position", self.position, f"at most the {len(order):,} of the order")
        return order

    def at(
        self, epoch: int | None = None, position: int = 0, *, lanes: int | None = None
    ) -> Cursor:
        """Return another place of the same run; in another epoch other skips may be due.

        `lanes` are those of that epoch's order, which a skip that has come due may change.
        """
        if epoch in (None, self.epoch) and lanes in (None, self.lanes):
            # The same epoch leaves out the same records: nothing is sorted again, at every step.
            moved = copy.copy(self)
            object.__setattr__(moved, "position", position)
            moved._check_position()  # noqa: SLF001 (of the same class)
            return moved
        epoch = self.epoch if epoch is None else epoch
        lanes = self.lanes if lanes is None else lanes
        return replace(self, epoch=epoch, position=position, lanes=lanes)

    def with_skips(self, more: Skip, *, available: int | None = None) -> Cursor:
        """Return the same place with more records skipped.

        At the beginning of an epoch its order is shorter by them at once. Later they are masked,
        and the next epoch is shorter. Earlier skips stay. `available` is how many records the
        source has by now: those beyond `length` are no part of this run.
        """
        length = self.length if available is None else max(available, self.length)
        due = (self.epoch + 1,) if self.position else ()
        added = [
            (start, min(stop, self.length), *due)
            for start, stop in Skips(more, length).ranges
            if start < self.length
        ]
        return replace(self, skip=(*self.skip, *added))

    def to_dict(self) -> dict[str, object]:
        parts = (self.kind, self.order_version, self.lanes)
        order = {**dict(zip(_ORDER_KEYS, parts, strict=True)), **copy.deepcopy(self.own)}
        if self.plan is not None:
            order["plan"] = dict(zip(_PLAN_KEYS, self.plan, strict=True))
        same = {name: getattr(self, name) for name in _SAME}
        skip = [list(entry) for entry in self.skip]
        found = {"version": self.VERSION, "order": order, "skip": skip, **same}
        return {name: found[name] for name in _KEYS}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Cursor:
        """Read a state document, or say what is wrong with it."""
        _keys("", state, ("version",), exactly=False)
        _version("version", state["version"], cls.VERSION)
        _keys("", state, _KEYS)
        order = state["order"]
        _keys("order.", order, _ORDER_KEYS, exactly=False)
        plan = order.get("plan")
        if plan is not None:
            _keys("order.plan.", plan, _PLAN_KEYS)
        own = {key: value for key, value in order.items() if key not in (*_ORDER_KEYS, "plan")}
        skip = state["skip"]
        for entry in skip if isinstance(skip, list | tuple) else [skip]:
            if not isinstance(entry, list | tuple):
                expected = "a list of [start, stop] and [start, stop, epoch]"
                raise _wrong("skip", entry, expected)
        return cls(
            **{name: state[name] for name in _SAME},
            kind=order["kind"],
            order_version=order["version"],
            lanes=order["lanes"],
            own=own,
            plan=None if plan is None else (plan["name"], plan["version"]),
            skip=tuple(skip),
        )


def _settled(
    skip: Iterable[Any], epoch: int, length: int
) -> tuple[Skips, tuple[tuple[int, ...], ...]]:
    """Return the skips of an epoch, and all skips sorted, each record in one entry at most."""
    due: dict[int, list[Any]] = {epoch: []}
    for entry in skip:
        when = epoch
        pair = entry
        if isinstance(entry, list | tuple) and len(entry) > _PAIR:
            *pair, when = entry
            _integer("skip, the epoch of an entry,", when, least=0)
        due.setdefault(max(when, epoch), []).append(pair)
    left_out = Skips(due.pop(epoch), length)
    entries: list[tuple[int, ...]] = [*left_out.ranges]
    earlier = left_out
    for when, pairs in sorted(due.items()):
        later = Skips(pairs, length)
        entries += [(*pair, when) for pair in later.without(earlier)]
        earlier = Skips([*earlier.ranges, *later.ranges], length)
    return left_out, tuple(sorted(entries))


def _keys(where: str, found: object, expected: tuple[str, ...], *, exactly: bool = True) -> None:
    if not isinstance(found, Mapping):
        raise _wrong(where.rstrip(".") or "the state", found, "a dict")
    missing = [where + key for key in expected if key not in found]
    unknown = [f"{where}{key}" for key in found if key not in expected] if exactly else []
    faults = {"missing": missing, "unknown": unknown}
    if missing or unknown:
        faults_text = "; ".join(
            f"{what} {', '.join(keys)}" for what, keys in faults.items() if keys
        )
        raise OptionError(f"this is not the state of a run: {faults_text}. {_REMEDY}")


def _integer(name: str, value: object, least: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, value, "an integer")
    if least is not None and value < least:
        raise _wrong(name, value, f"at least {least}")


def _wrong(name: str, value: object, expected: str) -> OptionError:
    return OptionError(f"state: {name} is {value!r}, expected {expected}. {_REMEDY}")


def _version(name: str, value: Any, known: int) -> None:  # noqa: ANN401 (what a state has)
    _integer(name, value, least=1)
    if value > known:
        raise OptionError(
            f"state: {name} is {value}, and this release knows {known} at most. It was written by "
            "a newer Penstock; install that one or a later one."
        )
