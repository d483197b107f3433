"""Profiles of records: every field with its types, bounds and examples; merged, saved, loaded."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.index.profile._distinct import Distinct
from penstock.index.profile._document import document_of
from penstock.index.profile._histogram import Histogram
from penstock.index.profile._tree import FieldNode
from penstock.index.profile._values import WHOLE, ValueStats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray


_FORMAT = "penstock-profile-state"
_VERSION = 1


class _DistinctState(msgspec.Struct, array_like=True):
    hashes: bytes
    examples: list[Any]


class _HistogramState(msgspec.Struct, array_like=True):
    low: float
    high: float
    shift: int
    keys: bytes
    counts: bytes


class _StatsState(msgspec.Struct, array_like=True):
    count: int
    first: int
    last: int
    low: Any
    high: Any
    distinct: _DistinctState | None
    numbers: _HistogramState | None
    lengths: _HistogramState | None
    trues: int
    nans: int
    infinite: int


class _NodeState(msgspec.Struct, array_like=True):
    birth: int | None
    types: dict[str, _StatsState]
    names: list[tuple[bytes, _NodeState]]
    any_name: _NodeState | None
    items: _NodeState | None


class _State(msgspec.Struct):
    format: str
    version: int
    records: int
    is_text: bool
    root: _NodeState


class Profile:
    """The facts of some records; profiles of parts merge into the profile of all.

    `is_text`: types were read from plain text (CSV), where a number among words is a word.

    >>> profile = Profile()
    >>> profile.add([{"price": 1, "tags": ["a"]}, {"price": None, "tags": []}], 0)
    >>> [(field["path"], field["type"], field["nulls"]) for field in profile.document()["fields"]]
    [('price', 'int', 1), ('tags', 'list', 0), ('tags[]', 'string', 0)]
    """

    def __init__(self, *, is_text: bool = False) -> None:
        self.is_text = is_text
        self.records = 0
        self._root = FieldNode()

    def add(self, records: Sequence[object], first: int) -> None:
        """Add records, numbered from `first` on.

        They are plain values as JSON or Arrow gives them, or `UNREADABLE`.
        """
        if len(records):
            where = np.arange(first, first + len(records))
            self._root.add(records, where)
            self.records += len(records)

    def add_columns(
        self, columns: Mapping[str, Sequence[object]], numbers: NDArray[np.int64]
    ) -> None:
        """Add records of these numbers as columns: each has all the fields, in this order."""
        if len(numbers):
            stats = self._root.types.setdefault("object", ValueStats())
            stats.add_count(len(numbers), int(numbers.min()), int(numbers.max()))
            self._root.add_columns(dict(columns), numbers, 0)
            self.records += len(numbers)

    def merge(self, other: Profile, shift: int = 0) -> None:
        """Add the profile of other records, whose numbers are `shift` higher here."""
        self._root.merge(other._root, shift)
        self.records += other.records
        self.is_text = self.is_text or other.is_text

    def document(self) -> dict[str, Any]:
        """Return the content of `profile.json`: plain JSON."""
        return document_of(self._root, self.records, is_text=self.is_text)

    def to_bytes(self) -> bytes:
        """Return the state of the profile, to continue it later: equal bytes for equal facts."""
        state = _State(_FORMAT, _VERSION, self.records, self.is_text, _of_node(self._root))
        return msgspec.msgpack.encode(state)

    @classmethod
    def from_bytes(cls, data: bytes) -> Profile:
        """Return the profile of a state; raise `ValueError` for other bytes."""
        state = msgspec.msgpack.decode(data, type=_State)
        if state.format != _FORMAT or state.version > _VERSION:
            raise ValueError(f"format {state.format!r}, version {state.version}")
        profile = cls(is_text=state.is_text)
        profile._root, profile.records = _node(state.root), state.records
        return profile


def _of_node(node: FieldNode) -> _NodeState:
    return _NodeState(
        node.birth,
        {kind: _of_stats(kind, stats) for kind, stats in sorted(node.types.items())},
        # A name may hold half a surrogate pair, which UTF-8 cannot.
        [(_bytes(name), _of_node(inside)) for name, inside in sorted(node.names.items())],
        None if node.any_name is None else _of_node(node.any_name),
        None if node.items is None else _of_node(node.items),
    )


def _node(state: _NodeState) -> FieldNode:
    node = FieldNode()
    node.birth = state.birth
    node.types = {kind: _stats(kind, stats) for kind, stats in state.types.items()}
    for name, inside in state.names:
        named = node.names[_text(name)] = _node(inside)
        named.is_named = True
    node.any_name = None if state.any_name is None else _node(state.any_name)
    node.items = None if state.items is None else _node(state.items)
    return node


def _of_stats(kind: str, stats: ValueStats) -> _StatsState:
    encode = _codec(kind)[0]
    distinct = None
    if stats.distinct is not None:
        examples = [encode(value) for value in stats.distinct.examples]
        distinct = _DistinctState(stats.distinct.hashes.astype("<u8").tobytes(), examples)
    return _StatsState(
        stats.count,
        stats.first,
        stats.last,
        None if stats.low is None else encode(stats.low),
        None if stats.high is None else encode(stats.high),
        distinct,
        _of_histogram(stats.numbers),
        _of_histogram(stats.lengths),
        stats.trues,
        stats.nans,
        stats.infinite,
    )


def _stats(kind: str, state: _StatsState) -> ValueStats:
    decode = _codec(kind)[1]
    distinct = None
    if state.distinct is not None:
        hashes = np.frombuffer(state.distinct.hashes, "<u8").astype(np.uint64)
        distinct = Distinct(hashes, [decode(value) for value in state.distinct.examples])
    return ValueStats(
        state.count,
        state.first,
        state.last,
        None if state.low is None else decode(state.low),
        None if state.high is None else decode(state.high),
        distinct,
        _histogram(state.numbers),
        _histogram(state.lengths),
        state.trues,
        state.nans,
        state.infinite,
    )


def _of_histogram(histogram: Histogram | None) -> _HistogramState | None:
    if histogram is None:
        return None
    keys, counts = histogram.keys.astype("<i8").tobytes(), histogram.counts.astype("<i8").tobytes()
    return _HistogramState(histogram.low, histogram.high, histogram.shift, keys, counts)


def _histogram(state: _HistogramState | None) -> Histogram | None:
    if state is None:
        return None
    histogram = Histogram()
    histogram.low, histogram.high, histogram.shift = state.low, state.high, state.shift
    histogram.keys = np.frombuffer(state.keys, "<i8").astype(np.int64)
    histogram.counts = np.frombuffer(state.counts, "<i8").astype(np.int64)
    return histogram


def _codec(kind: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return how values of a kind are encoded in a state, and how they are decoded."""
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
