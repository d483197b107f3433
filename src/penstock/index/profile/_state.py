"""A profile as bytes, to go on with where it ended."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.index.profile._distinct import Distinct
from penstock.index.profile._seen import Seen
from penstock.index.profile._seen_kinds import WHOLE
from penstock.index.profile._spread import Spread
from penstock.index.profile._tree import Place

if TYPE_CHECKING:
    from collections.abc import Callable

_FORMAT = "penstock-profile-state"
_VERSION = 1


class _DistinctState(msgspec.Struct, array_like=True):
    hashes: bytes
    examples: list[Any]


class _SpreadState(msgspec.Struct, array_like=True):
    low: float
    high: float
    shift: int
    keys: bytes
    counts: bytes


class _SeenState(msgspec.Struct, array_like=True):
    count: int
    first: int
    last: int
    low: Any
    high: Any
    distinct: _DistinctState | None
    spread: _SpreadState | None
    lengths: _SpreadState | None
    trues: int
    nans: int
    infinite: int


class _PlaceState(msgspec.Struct, array_like=True):
    birth: int | None
    types: dict[str, _SeenState]
    names: list[tuple[bytes, _PlaceState]]
    any_name: _PlaceState | None
    items: _PlaceState | None


class _State(msgspec.Struct):
    format: str
    version: int
    records: int
    is_text: bool
    root: _PlaceState


def encode_state(root: Place, records: int, *, is_text: bool) -> bytes:
    """Return everything as bytes: equal ones, if what is known is equal."""
    state = _State(_FORMAT, _VERSION, records, is_text, _of_place(root))
    return msgspec.msgpack.encode(state)


def decode_state(data: bytes) -> tuple[Place, int, bool]:
    """Return the root, how many records there are, and whether their types are read from text."""
    state = msgspec.msgpack.decode(data, type=_State)
    if state.format != _FORMAT or state.version > _VERSION:
        raise ValueError(f"format {state.format!r}, version {state.version}")
    return _place(state.root), state.records, state.is_text


def _of_place(place: Place) -> _PlaceState:
    return _PlaceState(
        place.birth,
        {kind: _of_seen(kind, seen) for kind, seen in sorted(place.types.items())},
        # A name may hold half a character, which no UTF-8 can.
        [(_bytes(name), _of_place(inside)) for name, inside in sorted(place.names.items())],
        None if place.any_name is None else _of_place(place.any_name),
        None if place.items is None else _of_place(place.items),
    )


def _place(state: _PlaceState) -> Place:
    place = Place()
    place.birth = state.birth
    place.types = {kind: _seen(kind, seen) for kind, seen in state.types.items()}
    for name, inside in state.names:
        named = place.names[_text(name)] = _place(inside)
        named.is_named = True
    place.any_name = None if state.any_name is None else _place(state.any_name)
    place.items = None if state.items is None else _place(state.items)
    return place


def _of_seen(kind: str, seen: Seen) -> _SeenState:
    encode = _codec(kind)[0]
    distinct = None
    if seen.distinct is not None:
        examples = [encode(value) for value in seen.distinct.examples]
        distinct = _DistinctState(seen.distinct.hashes.astype("<u8").tobytes(), examples)
    return _SeenState(
        seen.count,
        seen.first,
        seen.last,
        None if seen.low is None else encode(seen.low),
        None if seen.high is None else encode(seen.high),
        distinct,
        _of_spread(seen.spread),
        _of_spread(seen.lengths),
        seen.trues,
        seen.nans,
        seen.infinite,
    )


def _seen(kind: str, state: _SeenState) -> Seen:
    decode = _codec(kind)[1]
    distinct = None
    if state.distinct is not None:
        hashes = np.frombuffer(state.distinct.hashes, "<u8").astype(np.uint64)
        distinct = Distinct(hashes, [decode(value) for value in state.distinct.examples])
    return Seen(
        state.count,
        state.first,
        state.last,
        None if state.low is None else decode(state.low),
        None if state.high is None else decode(state.high),
        distinct,
        _spread(state.spread),
        _spread(state.lengths),
        state.trues,
        state.nans,
        state.infinite,
    )


def _of_spread(spread: Spread | None) -> _SpreadState | None:
    if spread is None:
        return None
    keys, counts = spread.keys.astype("<i8").tobytes(), spread.counts.astype("<i8").tobytes()
    return _SpreadState(spread.low, spread.high, spread.shift, keys, counts)


def _spread(state: _SpreadState | None) -> Spread | None:
    if state is None:
        return None
    spread = Spread()
    spread.low, spread.high, spread.shift = state.low, state.high, state.shift
    spread.keys = np.frombuffer(state.keys, "<i8").astype(np.int64)
    spread.counts = np.frombuffer(state.counts, "<i8").astype(np.int64)
    return spread


def _codec(kind: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return how values of a kind become what the format holds, and how they come back."""
    if kind in WHOLE:
        return hex, lambda text: int(text, 16)  # Of any size.
    if kind == "string":
        return _bytes, _text
    if kind == "decimal":
        return str, Decimal
    return lambda value: value, lambda value: value


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
