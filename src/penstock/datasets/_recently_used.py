"""What was used last, up to a weight."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")


class Kept(Generic[V]):
    """What was used last, up to a weight; the newest stays, however heavy. Used by any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.clear()

    def clear(self) -> None:
        """Forget everything; after a fork also who held the lock."""
        self._items: OrderedDict[object, tuple[V, int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: object) -> V | None:
        """Return what is kept under a key."""
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
