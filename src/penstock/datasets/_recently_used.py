"""A bounded cache of what was used last."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any, Generic, TypeVar
from weakref import WeakSet, ref

V = TypeVar("V")

_all: WeakSet[RecentlyUsed[Any]] = WeakSet()


class Owner:
    """Has values in caches: they go when it goes."""

    def __init__(self) -> None:
        self.values: dict[tuple[RecentlyUsed[Any], object], Any] = {}


class RecentlyUsed(Generic[V]):
    """Values used last, up to a total weight; the newest stays, whatever its weight.

    Any thread may use it. A forked child begins with an empty one: a thread of the parent may hold
    the lock.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._weights: OrderedDict[tuple[ref[Owner], object], int] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()
        _all.add(self)

    def clear(self) -> None:
        self._lock = threading.Lock()
        while self._weights:
            self._drop_oldest()

    def get(self, owner: Owner, key: object) -> V | None:
        with self._lock:
            if (ref(owner), key) not in self._weights:
                return None
            self._weights.move_to_end((ref(owner), key))
            value: V = owner.values[self, key]
            return value

    def put(self, owner: Owner, key: object, value: V, weight: int) -> None:
        """Keep a value, in place of those that were not used for longest."""
        with self._lock:
            self._weight += weight - self._weights.pop((ref(owner), key), 0)
            self._weights[ref(owner), key] = weight
            owner.values[self, key] = value
            while self._weight > self._limit and len(self._weights) > 1:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        (holder, key), weight = self._weights.popitem(last=False)
        self._weight -= weight
        if (owner := holder()) is not None:
            owner.values.pop((self, key), None)


def _clear_all() -> None:
    for cache in list(_all):
        cache.clear()


os.register_at_fork(after_in_child=_clear_all)
