"""Profiles of records: every field with its types, bounds and examples; merged, saved, loaded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import numpy as np

from penstock._words import counted
from penstock.index._names import PROFILE_STATE
from penstock.index.profile._document import damaged, document_of
from penstock.index.profile._sketches import Distinct
from penstock.index.profile._values import EXACT, WHOLE, ValueStats, add_values, kind_of
from penstock.storage import join, read_metadata

if TYPE_CHECKING:
    from decimal import Decimal

    from numpy.typing import NDArray

    from penstock.index._sample_index import SampleIndex

    Values = Sequence[Any]

MOST_NAMES = 2000
"""Names of an object, at most; if there are more, they are keys, and count as one field."""
DEEPEST = 32
"""Levels of nested values that are looked at."""
_POSITION_BITS = 20
_LAST_POSITION = (1 << _POSITION_BITS) - 1
_FORMAT = "penstock-profile-state"
_VERSION = 1


class FieldNode:
    """A field: its values by their types, and the fields inside of them.

    The result depends neither on the order of the records nor on how they are parted.
    """

    def __init__(self) -> None:
        self.birth: int | None = None
        """The first record that has the field, and its position there, in one number: fields are
        shown in this order."""
        self.types: dict[str, ValueStats] = {}
        self.names: dict[str, FieldNode] = {}
        """Of objects: their fields."""
        self.any_name: FieldNode | None = None
        """Of objects with too many names: one field for all."""
        self.items: FieldNode | None = None
        """Of lists: the field of their items."""

    @property
    def objects(self) -> int:
        stats = self.types.get("object")
        return 0 if stats is None else stats.count

    def add(self, values: Values, where: NDArray[np.int64], depth: int = 0) -> None:
        """Add values, and for each the number of the record that holds it: int64[values]."""
        types = set(map(type, values))
        if len(types) == 1:
            self._add_kind(kind_of(types.pop()), values, where, depth)
            return
        of_values = list(map(type, values))
        for type_ in types:
            mask = [one is type_ for one in of_values]
            self._add_kind(kind_of(type_), list(compress(values, mask)), where[mask], depth)

    def _add_kind(self, kind: str, values: Values, where: NDArray[np.int64], depth: int) -> None:
        if kind == "timestamp":
            zoned = np.array([value.tzinfo is not None for value in values])
            for moments, mask in (("timestamp", ~zoned), ("timestamp[tz]", zoned)):
                if mask.any():
                    self._add_values(moments, list(compress(values, mask)), where[mask])
            return
        self._add_values(kind, values, where)
        if depth < DEEPEST and kind == "object":
            self._add_objects(values, where, depth)
        elif depth < DEEPEST and kind == "list":
            lengths = np.fromiter(map(len, values), np.int64, len(values))
            items = list(chain.from_iterable(values))
            if items:
                self.items = self.items or FieldNode()
                self.items.add(items, np.repeat(where, lengths), depth + 1)

    def _add_values(self, kind: str, values: Values, where: NDArray[np.int64]) -> None:
        add_values(self.types.setdefault(kind, ValueStats()), kind, values, where)

    def _add_objects(self, objects: Values, where: NDArray[np.int64], depth: int) -> None:
        """Add the values of objects to the fields of their names."""
        shapes = set(map(tuple, objects))
        if any(type(name) is not str for shape in shapes for name in shape):
            objects = [{str(name): value for name, value in one.items()} for one in objects]
            shapes = set(map(tuple, objects))
        if len(shapes) == 1:
            # All have the same names in the same order, as nearly always.
            columns = zip(*map(dict.values, objects), strict=True)
            self.add_columns(dict(zip(*shapes, columns, strict=True)), where, depth)
            return
        lengths = np.fromiter(map(len, objects), np.int64, len(objects))
        values = list(chain.from_iterable(map(dict.values, objects)))
        where = np.repeat(where, lengths)
        if not values:
            return
        self._make_room(chain.from_iterable(shapes))
        if self.any_name is not None:
            self.any_name.add(values, where, depth + 1)
            self.any_name.note_birth(int(where.min()) << _POSITION_BITS)
            return
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        positions = np.minimum(np.arange(len(values)) - starts, _LAST_POSITION)
        births = (where << _POSITION_BITS) | positions
        names = list(chain.from_iterable(objects))
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        of_values = np.fromiter(map(numbers.__getitem__, names), np.int32, len(names))
        order = np.argsort(of_values, kind="stable")
        borders = np.searchsorted(of_values[order], np.arange(len(numbers) + 1))
        for name, number in numbers.items():
            chosen = order[borders[number] : borders[number + 1]]
            some = itemgetter(*chosen.tolist())(values) if len(chosen) > 1 else [values[chosen[0]]]
            field = self._named(name)
            field.add(some, where[chosen], depth + 1)
            field.note_birth(int(births[chosen].min()))

    def add_columns(self, columns: dict[str, Values], where: NDArray[np.int64], depth: int) -> None:
        """Add columns of values; each row is one object, which has all of them in this order."""
        first = int(where.min()) << _POSITION_BITS
        self._make_room(columns)
        for position, (name, values) in enumerate(columns.items()):
            field = self._named(name)
            field.add(values, where, depth + 1)
            field.note_birth(first | min(position, _LAST_POSITION))

    def _make_room(self, names: Iterable[str]) -> None:
        """Use one field for all names if these are too many."""
        if self.any_name is None and len(self.names.keys() | set(names)) > MOST_NAMES:
            self._forget_names()

    def _forget_names(self) -> None:
        if self.any_name is None:
            self.any_name = FieldNode()
            for field in self.names.values():
                self.any_name.merge(field, 0)
            self.names = {}

    def _named(self, name: str) -> FieldNode:
        return self.any_name or self.names.setdefault(name, FieldNode())

    def note_birth(self, birth: int) -> None:
        self.birth = birth if self.birth is None else min(self.birth, birth)

    def merge(self, other: FieldNode, shift: int) -> None:
        """Add the facts of other records, whose numbers are `shift` higher here."""
        if other.birth is not None:
            self.note_birth(other.birth + (shift << _POSITION_BITS))
        for kind, stats in other.types.items():
            self.types.setdefault(kind, ValueStats()).merge(stats, shift)
        if other.items is not None:
            self.items = self.items or FieldNode()
            self.items.merge(other.items, shift)
        if other.any_name is not None:
            self._forget_names()
        self._make_room(other.names)
        for name, field in other.names.items():
            self._named(name).merge(field, shift)
        if self.any_name is not None and other.any_name is not None:
            self.any_name.merge(other.any_name, shift)


class _NodeState(msgspec.Struct, array_like=True):
    birth: int | None
    types: dict[str, ValueStats]
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

    @property
    def end(self) -> int:
        """The number behind that of the last record."""
        return max((stats.last + 1 for stats in self._root.types.values()), default=0)

    def document(self) -> dict[str, Any]:
        """Return the content of `profile.json`: plain JSON."""
        return document_of(self._root, self.records, is_text=self.is_text)

    def to_bytes(self) -> bytes:
        """Return the state of the profile, to continue it later: equal bytes for equal facts."""
        state = _State(_FORMAT, _VERSION, self.records, self.is_text, _of_node(self._root))
        return msgspec.msgpack.encode(state, enc_hook=_array_bytes)

    @classmethod
    def from_bytes(cls, data: bytes) -> Profile:
        """Return the profile of a state; raise `ValueError` for other bytes."""
        state = msgspec.msgpack.decode(data, type=_State, dec_hook=_array)
        if state.format != _FORMAT or state.version > _VERSION:
            raise ValueError(f"format {state.format!r}, version {state.version}")
        profile = cls(is_text=state.is_text)
        profile._root, profile.records = _node(state.root), state.records
        return profile


def old_profile(old: SampleIndex) -> Profile:
    """Return the profile of an index, to continue it with an update."""
    folder = "" if old.origin is None else old.origin.folder
    path = join(folder, PROFILE_STATE)
    try:
        profile = Profile.from_bytes(read_metadata(path))
    except (OSError, ValueError, RecursionError) as why:
        raise damaged(path, why) from None
    if not profile.records == profile.end == len(old):
        of = f"{counted(profile.records, 'record')} below number {profile.end:,}"
        raise damaged(path, f"it is of {of}, the index has {len(old):,}")
    return profile


def _of_node(node: FieldNode) -> _NodeState:
    return _NodeState(
        node.birth,
        {kind: _recoded(stats, kind, 0) for kind, stats in sorted(node.types.items())},
        # A name may hold half a surrogate pair, which UTF-8 cannot.
        [(_bytes(name), _of_node(inside)) for name, inside in sorted(node.names.items())],
        None if node.any_name is None else _of_node(node.any_name),
        None if node.items is None else _of_node(node.items),
    )


def _node(state: _NodeState, around: Sequence[ValueStats] = ()) -> FieldNode:
    """Return the field of a state; its values lie in the objects or lists `around` them."""
    node = FieldNode()
    node.birth = state.birth
    node.types = {kind: _recoded(stats, kind, 1) for kind, stats in state.types.items()}
    is_sound = all(stats.is_sound(kind) for kind, stats in node.types.items())
    if not is_sound or (around and not _is_inside(node.types.values(), around)):
        raise ValueError(f"the facts about {', '.join(node.types) or 'a field'} cannot be true")
    holders = [node.types[kind] for kind in ("object", "list") if kind in node.types]
    if not holders and (state.names or state.any_name or state.items):
        raise ValueError(f"there are fields inside of {', '.join(node.types) or 'nothing'}")
    node.names = {_text(name): _node(inside, holders) for name, inside in state.names}
    for name, inside in node.names.items():
        count = sum(stats.count for stats in inside.types.values())
        if inside.birth is None or count > node.objects:
            raise ValueError(f"{name!r:.80} is in {count:,} of {node.objects:,} objects")
    node.any_name = None if state.any_name is None else _node(state.any_name, holders)
    node.items = None if state.items is None else _node(state.items, holders)
    return node


def _is_inside(types: Collection[ValueStats], around: Sequence[ValueStats]) -> bool:
    first, last = min(one.first for one in around), max(one.last for one in around)
    return bool(types) and all(first <= one.first and one.last <= last for one in types)


def _recoded(stats: ValueStats, kind: str, back: int) -> ValueStats:
    """Return the same facts with every value in its form for a state, or back."""
    code, distinct = _CODECS.get(kind, _NO_VALUES)[back], stats.distinct
    classes = stats.classes and (stats.classes if back else dict(sorted(stats.classes.items())))
    return msgspec.structs.replace(
        stats,
        low=None if stats.low is None else code(stats.low),
        high=None if stats.high is None else code(stats.high),
        distinct=distinct and Distinct(distinct.hashes, list(map(code, distinct.examples))),
        classes=classes and {code(one): count for one, count in classes.items()},
    )


def _array_bytes(array: NDArray[Any]) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _array(type_: type, data: bytes) -> NDArray[Any]:
    (dtype,) = get_args(get_args(type_)[1])  # Of `NDArray[dtype]`.
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).astype(dtype)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _decimal(text: str) -> Decimal:
    value = EXACT.create_decimal(text)
    if not value.is_finite():
        raise ValueError(f"{text!r:.80} is no decimal")
    return value


def _decoded(stored: type | None, code: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: code(msgspec.convert(value, stored))


_CODECS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    **dict.fromkeys(WHOLE, (hex, _decoded(str, lambda text: int(text, 16)))),  # Of any size.
    "string": (_bytes, _decoded(bytes, _text)),
    "decimal": (str, _decoded(str, _decimal)),
    "float": (float, _decoded(float, float)),
    "binary": (bytes, _decoded(bytes, bytes)),
}
"""How values of a kind are encoded in a state, and decoded; other kinds keep no values."""
_NO_VALUES = (_decoded(None, str), _decoded(None, str))
