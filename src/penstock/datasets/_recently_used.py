"""A bounded cache of what was used last."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any, Generic, TypeVar
from weakref import WeakSet

V = TypeVar("V")

_all: WeakSet[RecentlyUsed[Any]] = WeakSet()


class RecentlyUsed(Generic[V]):
    """Values used last, up to a total weight; the newest stays, whatever its weight.

    Any thread may use it. A forked child begins with an empty one: a thread of the parent may hold
    the lock.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.clear()
        _all.add(self)

    def clear(self) -> None:
        self._items: OrderedDict[object, tuple[V, int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: object) -> V | None:
        with self._lock:
            found = self._items.get(key)
            if found is None:
                return None
            self._items.move_to_end(key)
            return found[0]

    def put(self, key: object, value: V, weight: int) -> None:
        """Keep a value, in place of those that were not used for longest."""
        with self._lock:
            _, old = self._items.pop(key, (None, 0))
            self._items[key] = value, weight
            self._weight += weight - old
            while self._weight > self._limit and len(self._items) > 1:
                _, (_, lighter) = self._items.popitem(last=False)
                self._weight -= lighter


def _clear_all() -> None:
    for cache in list(_all):
        cache.clear()


os.register_at_fork(after_in_child=_clear_all)
