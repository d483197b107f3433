"""Where a run stands: the few numbers that are kept in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.errors import OptionError
from penstock.order._order import KINDS, Kind, Order
from penstock.order._skips import Skips

_KEYS = ("version", "fingerprint", "length", "seed", "epoch", "order", "position", "skip")
_ORDER_KEYS = ("kind", "version", "lanes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A place in an epoch, as a state document holds it: nothing of ranks, workers or batches.

    >>> cursor = Cursor(fingerprint="ab12", length=100, seed=1, kind="full", position=40)
    >>> Cursor.from_dict(cursor.to_dict()) == cursor
    True
    >>> cursor.to_dict()["order"]
    {'kind': 'full', 'version': 1, 'lanes': 1}
    """

    VERSION: ClassVar[int] = 1
    """The version of the document; that of the order is `order_version`."""

    fingerprint: str
    """Of the source; it guards a resume and decides nothing."""
    length: int
    """Records of the source when the run began, with those that are skipped."""
    seed: int = 0
    epoch: int = 0
    kind: Kind = "full"
    order_version: int = Order.VERSION
    lanes: int = 1
    """`Order.lanes`."""
    position: int = 0
    """Positions of the epoch's order that were handed out."""
    skip: tuple[tuple[int, int], ...] = ()
    """Sorted (start, stop) ranges of records that are left out."""

    def __post_init__(self) -> None:
        if not isinstance(self.fingerprint, str):
            raise _wrong("fingerprint", self.fingerprint, "a string")
        if self.kind not in KINDS:
            raise _wrong("order.kind", self.kind, f"one of {', '.join(KINDS)}")
        _integer("length", self.length, least=0)
        _integer("seed", self.seed)
        _integer("epoch", self.epoch, least=0)
        _integer("order.lanes", self.lanes, least=1)
        _integer("position", self.position, least=0)
        _integer("order.version", self.order_version, least=1)
        if self.order_version > Order.VERSION:
            raise _newer("order.version", self.order_version, Order.VERSION)
        ranges = Skips(self.skip, self.length)
        object.__setattr__(self, "skip", ranges.ranges)
        if self.position > ranges.kept:
            raise _wrong("position", self.position, f"at most the {ranges.kept:,} records kept")

    def to_dict(self) -> dict[str, object]:
        """Return the state document, in plain JSON types."""
        return {
            "version": self.VERSION,
            "fingerprint": self.fingerprint,
            "length": self.length,
            "seed": self.seed,
            "epoch": self.epoch,
            "order": {"kind": self.kind, "version": self.order_version, "lanes": self.lanes},
            "position": self.position,
            "skip": [list(pair) for pair in self.skip],
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Cursor:
        """Read a state document, or say what is wrong with it."""
        _keys("", state, ("version",), exactly=False)
        _integer("version", state["version"], least=1)
        if (version := state["version"]) != cls.VERSION:
            raise _newer("version", version, cls.VERSION)
        _keys("", state, _KEYS)
        order = state["order"]
        _keys("order.", order, _ORDER_KEYS)
        skip = state["skip"]
        if not isinstance(skip, list | tuple):
            raise _wrong("skip", skip, "a list of [start, stop]")
        for pair in skip:
            if not isinstance(pair, list | tuple):
                raise _wrong("skip", pair, "a list of [start, stop]")
        return cls(
            fingerprint=state["fingerprint"],
            length=state["length"],
            seed=state["seed"],
            epoch=state["epoch"],
            kind=order["kind"],
            order_version=order["version"],
            lanes=order["lanes"],
            position=state["position"],
            skip=tuple(skip),
        )


def _keys(where: str, found: object, expected: tuple[str, ...], *, exactly: bool = True) -> None:
    if not isinstance(found, Mapping):
        raise _wrong(where.rstrip(".") or "the state", found, "a dict")
    missing = [where + key for key in expected if key not in found]
    unknown = [f"{where}{key}" for key in found if key not in expected] if exactly else []
    if missing or unknown:
        raise OptionError(
            "this is not the state of a run: "
            + "; ".join(
                f"{what} {', '.join(keys)}"
                for what, keys in (("missing", missing), ("unknown", unknown))
                if keys
            )
            + ". Give what `state_dict()` returned, unchanged."
        )


def _integer(name: str, value: object, least: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, value, "an integer")
    if least is not None and value < least:
        raise _wrong(name, value, f"at least {least}")


def _wrong(name: str, value: object, expected: str) -> OptionError:
    return OptionError(
        f"state: {name} is {value!r}, expected {expected}. Give what `state_dict()` returned, "
        "unchanged."
    )


def _newer(name: str, value: object, known: int) -> OptionError:
    return OptionError(
        f"state: {name} is {value}, and this release knows {known} at most. It was written by a "
        "newer Penstock; install that one or a later one."
    )
