"""Which records of a stream were handed out in an epoch: pure, and free of ranks and workers.

Units are counted by their place in the order of the epoch. Inside a unit, a record is known by the
number of the input that it was made of and by a key (see `_lane.py`). A *part* (start, stop, upto)
says that of the inputs from start to stop those records were handed out whose key is `upto` or
less: all of them for `WHOLE`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import msgspec
import numpy as np

from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

WHOLE = 2**64 - 1
Span: TypeAlias = tuple[int, int, int]
"""Which unit of a lane, and its inputs from start to stop."""
Parts: TypeAlias = "tuple[tuple[int, int, int], ...]"
"""Sorted parts of one unit, which do not overlap."""
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Units: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 28)]
_Part: TypeAlias = Annotated[list[_Count], msgspec.Meta(min_length=2, max_length=3)]


class LanePoint(NamedTuple):
    """How far the reader of a lane has come."""

    units: int
    """How many of its units, from its first on, were handed out whole."""
    spans: tuple[Span, ...]
    """The units of the present window with its inputs: what lies before was handed out."""
    upto: int
    """The key up to which the window was handed out."""


@dataclass(frozen=True, slots=True)
class Done:
    """What was handed out of an epoch of a stream.

    >>> epoch = Done(units=4).advanced([(np.array([1, 3]), LanePoint(1, ((1, 5, 9),), 77))])
    >>> epoch.to_dict()
    {'whole': [[1, 2]], 'parts': {'3': [[0, 5], [5, 9, 77]]}}
    """

    units: int
    whole: tuple[tuple[int, int], ...] = ()
    """Places (start, stop) of units that were handed out whole."""
    parts: Mapping[int, Parts] = field(default_factory=dict)
    """Other units, by place: of each rank first the one that it read longest ago."""

    def is_whole(self) -> NDArray[np.bool_]:
        """Return which units were handed out whole, by place, bool[units]."""
        found = np.zeros(self.units, np.bool_)
        for start, stop in self.whole:
            found[start:stop] = True
        return found

    def advanced(self, lanes: Iterable[tuple[NDArray[np.int64], LanePoint]]) -> Done:
        """Return this with what lanes, each with the places of its units, handed out since.

        The lane that was read longest ago comes first.
        """
        is_whole, parts = self.is_whole(), dict(self.parts)
        for places, (units, spans, upto) in lanes:
            is_whole[places[:units]] = True
            for number, start, stop in spans:
                place = int(places[number])
                own = ((0, start, WHOLE), (start, stop, upto))
                parts[place] = merged(parts.pop(place, ()), own)
        return Done.of(is_whole, parts)

    def joined(self, others: Iterable[Done]) -> Done:
        """Return all that was handed out by several ranks, which began with the same."""
        is_whole, parts = self.is_whole(), dict(self.parts)
        for other in others:
            is_whole |= other.is_whole()
            for place, own in other.parts.items():
                both = merged(parts.get(place, ()), own)
                if both != parts.get(place):  # Read by this rank since, so behind what was not.
                    parts.pop(place, None)
                    parts[place] = both
        return Done.of(is_whole, parts)

    def lanes(self, places: Sequence[NDArray[np.int64]]) -> list[int]:
        """Return lanes, given by the places of their units, in the order of their next batches.

        They take turns: first those that were not read yet, then the one that was read longest ago.
        """
        begun = np.array([*self.parts], np.int64)
        last = [int(np.flatnonzero(np.isin(begun, own)).max(initial=-1)) for own in places]
        return sorted(range(len(places)), key=last.__getitem__)

    def reordered(self, before: NDArray[np.int64], now: NDArray[np.int64]) -> Done:
        """Return this for another list of units; both orders are unit numbers by place."""
        places = np.full(max(len(before), len(now)), -1)
        places[now] = np.arange(len(now))
        is_whole = np.zeros(len(now), np.bool_)
        moved = places[before[self.is_whole()]]
        is_whole[moved[moved >= 0]] = True
        parts = {int(places[before[place]]): own for place, own in self.parts.items()}
        parts.pop(-1, None)
        return Done.of(is_whole, parts)

    @classmethod
    def of(cls, is_whole: NDArray[np.bool_], parts: Mapping[int, Parts]) -> Done:
        """Return what was handed out, from which units were whole, by place, and the others."""
        edges = np.flatnonzero(np.diff(is_whole, prepend=False, append=False)).reshape(-1, 2)
        whole = tuple((int(start), int(stop)) for start, stop in edges)
        left = {place: own for place, own in parts.items() if own and not is_whole[place]}
        return cls(len(is_whole), whole, left)

    def to_dict(self) -> dict[str, object]:
        parts = {
            str(place): [[*part[:2], *(part[2:] if part[2] != WHOLE else ())] for part in own]
            for place, own in sorted(self.parts.items())
        }
        return {"whole": [list(pair) for pair in self.whole], "parts": parts}


def merged(*several: Parts) -> Parts:
    """Return what was handed out of a unit according to any of several lists of parts.

    >>> merged(((0, 4, WHOLE), (4, 8, 20)), ((2, 6, 30),))[1:]
    ((4, 6, 30), (6, 8, 20))
    """
    parts = [part for parts in several for part in parts if part[0] < part[1]]
    edges = sorted({edge for start, stop, _ in parts for edge in (start, stop)})
    found: list[tuple[int, int, int]] = []
    for start, stop in pairwise(edges):
        upto = max((part[2] for part in parts if part[0] <= start < part[1]), default=None)
        if upto is None:
            continue
        if found and found[-1][1:] == (start, upto):
            start = found.pop()[0]  # noqa: PLW2901 (the same part goes on)
        found.append((start, stop, upto))
    return tuple(found)


class _DoneDocument(msgspec.Struct, forbid_unknown_fields=True):
    whole: list[tuple[_Count, _Count]]
    parts: dict[str, list[_Part]]


class _OrderDocument(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    version: _Count
    units: _Units
    buffer: _Count
    next: list[_Count]


class StreamDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The state document of a stream."""

    version: _Count
    fingerprint: str
    length: _Count | None
    seed: int
    epoch: _Count
    order: _OrderDocument
    done: _DoneDocument
    skip: list[int]
    part: tuple[_Count, _Count] | None = None

    @classmethod
    def of(cls, state: Mapping[str, Any], kind: str, version: int) -> StreamDocument:
        """Return a state as a document, or raise with what is wrong."""
        if "done" not in state and "position" in state:
            raise OptionError(
                "the state counts records by number, and a stream has none: give the source that "
                "the state was saved with."
            )
        try:
            found = msgspec.convert(dict(state), cls)
            found.check(kind, version)
        except (ValueError, TypeError) as why:
            raise OptionError(
                f"this is not the state of a stream that this release can continue: {why}. Give "
                "what `state_dict()` returned, unchanged."
            ) from None
        return found

    def check(self, kind: str, version: int) -> None:
        order = self.order
        if (self.version, order.kind) != (1, kind) or not 0 < order.version <= version:
            raise ValueError(f"its order is {order.kind!r}, version {order.version}")
        self.places()

    def places(self) -> Done:
        """Return what was handed out."""
        units = self.order.units
        parts = {
            int(place): merged(tuple((one[0], one[1], (*one, WHOLE)[2]) for one in own))
            for place, own in self.done.parts.items()
        }
        if any(place >= units for place in parts) or any(
            not start < stop <= units for start, stop in self.done.whole
        ):
            raise ValueError(f"done has more than {units} units")
        if sorted(self.order.next) != sorted(parts):
            raise ValueError("next and done name different units")
        return Done(
            units, tuple(self.done.whole), {place: parts[place] for place in self.order.next}
        )
