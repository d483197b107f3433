"""Records taken apart into columns, place by place, and what is known of each place."""

from __future__ import annotations

from itertools import chain, compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.index.profile._seen import Seen
from penstock.index.profile._seen_kinds import kind_of, look_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Values = Sequence[Any]

MOST_NAMES = 2000
"""Names of one object that are told apart; where there are more, they are keys and no names."""
DEEPEST = 32
"""How far into values of values anybody looks."""
_POSITION_BITS = 20
_LAST_POSITION = (1 << _POSITION_BITS) - 1


class Place:
    """One place in records: the values there by their types, and the places inside of them.

    Where values came in parts, in whatever order, the same is known in the end.
    """

    def __init__(self) -> None:
        self.birth: int | None = None
        """The first record that has it, and its position there, in one number: to order places as
        records do."""
        self.is_named = False
        """Whether it is the place of one name of objects, which others may not have."""
        self.types: dict[str, Seen] = {}
        self.names: dict[str, Place] = {}
        """Of objects: the places of their values."""
        self.any_name: Place | None = None
        """Stands for all names, where there are too many."""
        self.items: Place | None = None
        """Of lists: the place of their items."""

    @property
    def objects(self) -> int:
        """How many values are objects, and so could have each of the names."""
        seen = self.types.get("object")
        return 0 if seen is None else seen.count

    def add(self, values: Values, where: NDArray[np.int64], depth: int = 0) -> None:
        """Take values, and for each the number of the record that holds it: int64[values]."""
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
            self._add_moments(values, where)
            return
        self._look_at(kind, values, where)
        if depth < DEEPEST and kind == "object":
            self._add_objects(values, where, depth)
        elif depth < DEEPEST and kind == "list":
            lengths = np.fromiter(map(len, values), np.int64, len(values))
            items = list(chain.from_iterable(values))
            if items:
                self.items = self.items or Place()
                self.items.add(items, np.repeat(where, lengths), depth + 1)

    def _add_moments(self, values: Values, where: NDArray[np.int64]) -> None:
        zoned = np.array([value.tzinfo is not None for value in values])
        for kind, mask in (("timestamp", ~zoned), ("timestamp[tz]", zoned)):
            if mask.any():
                self._look_at(kind, list(compress(values, mask)), where[mask])

    def _look_at(self, kind: str, values: Values, where: NDArray[np.int64]) -> None:
        look_at(self.types.setdefault(kind, Seen()), kind, values, where)

    def _add_objects(self, objects: Values, where: NDArray[np.int64], depth: int) -> None:
        """Take the values of objects, each to the place that its name has."""
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
            self.any_name.be_born(int(where.min()) << _POSITION_BITS)
            return
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        positions = np.minimum(np.arange(len(values)) - starts, _LAST_POSITION)
        births = (where << _POSITION_BITS) | positions
        self._add_by_name(list(chain.from_iterable(objects)), values, where, births, depth)

    def _add_by_name(
        self,
        names: list[str],
        values: Values,
        where: NDArray[np.int64],
        births: NDArray[np.int64],
        depth: int,
    ) -> None:
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        of_values = np.fromiter(map(numbers.__getitem__, names), np.int32, len(names))
        order = np.argsort(of_values, kind="stable")
        borders = np.searchsorted(of_values[order], np.arange(len(numbers) + 1))
        for name, number in numbers.items():
            chosen = order[borders[number] : borders[number + 1]]
            some = itemgetter(*chosen.tolist())(values) if len(chosen) > 1 else [values[chosen[0]]]
            place = self._named(name)
            place.add(some, where[chosen], depth + 1)
            place.be_born(int(births[chosen].min()))

    def add_columns(self, columns: dict[str, Values], where: NDArray[np.int64], depth: int) -> None:
        """Take columns of values; each row is one object, and has all of them in this order."""
        first = int(where.min()) << _POSITION_BITS
        self._make_room(columns)
        for position, (name, values) in enumerate(columns.items()):
            place = self.any_name or self._named(name)
            place.add(values, where, depth + 1)
            place.be_born(first | min(position, _LAST_POSITION))

    def _make_room(self, names: Iterable[str]) -> None:
        """Take all names together, from now on and those that were seen, if these are too many."""
        if self.any_name is None and len(self.names.keys() | set(names)) > MOST_NAMES:
            self._forget_names()

    def _forget_names(self) -> None:
        if self.any_name is None:
            self.any_name = Place()
            for place in self.names.values():
                self.any_name.merge(place, 0)
            self.names = {}

    def _named(self, name: str) -> Place:
        place = self.names.get(name)
        if place is None:
            place = self.names[name] = Place()
            place.is_named = True
        return place

    def be_born(self, birth: int | None) -> None:
        """Note a record that has this place."""
        if birth is not None:
            self.birth = birth if self.birth is None else min(self.birth, birth)

    def merge(self, other: Place, shift: int) -> None:
        """Take what another knows of records that are numbered from `shift` on."""
        if other.birth is not None:
            self.be_born(other.birth + (shift << _POSITION_BITS))
        for kind, seen in other.types.items():
            self.types.setdefault(kind, Seen()).merge(seen, shift)
        if other.items is not None:
            self.items = self.items or Place()
            self.items.merge(other.items, shift)
        if other.any_name is not None:
            self._forget_names()
        self._make_room(other.names)
        for name, place in other.names.items():
            (self.any_name or self._named(name)).merge(place, shift)
        if self.any_name is not None and other.any_name is not None:
            self.any_name.merge(other.any_name, shift)
