"""A store in memory that tells what happens in it, and waits where a test says."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from penstock.errors import ObjectNotFoundError
from penstock.jsonl._text import TextFile, read_pieces
from penstock.storage import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.jsonl._text import TextPiece

SECONDS = 60
"""How long a test waits for what must happen before it fails."""


class Events:
    """What happened, in order, and a way to wait for it; shared by threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._seen: list[tuple[object, ...]] = []

    def add(self, *event: object) -> None:
        with self._changed:
            self._seen.append(event)
            self._changed.notify_all()

    def wait_for(self, *event: object) -> None:
        """Return when an event has happened; fail when it does not."""
        with self._changed:
            if not self._changed.wait_for(lambda: event in self._seen, SECONDS):
                raise AssertionError(f"{event} did not happen, only {self._seen}")

    def seen(self) -> list[tuple[object, ...]]:
        with self._changed:
            return list(self._seen)


class SlowStore:
    """Objects by name; `open` and `close` are events, and a gate holds up an object's reads."""

    def __init__(self, objects: dict[str, bytes], events: Events) -> None:
        self.objects = objects
        self.events = events
        self.gates: dict[str, threading.Event] = {}

    def openers(self) -> list[Callable[[int], Iterator[TextPiece]]]:
        """Return what opens each object as a shard."""
        return [
            lambda piece_bytes, name=name: read_pieces([TextFile(self, name)], piece_bytes)  # type: ignore[misc]
            for name in self.objects
        ]

    def path(self, name: str) -> str:
        return f"slow://{name}"

    def list(self, directory: str, *, recursive: bool = False) -> Iterator[Entry]:
        for name, data in self.objects.items():
            yield Entry(name, len(data), 0.0)

    def entry(self, name: str) -> Entry:
        return Entry(name, len(self.objects[name]), 0.0)

    def open(self, name: str, known: Entry | None = None) -> _SlowFile:
        self.events.add("open", name)
        if name not in self.objects:
            raise ObjectNotFoundError(f"there is no {name}")
        return _SlowFile(self, name)

    def draft(self, directory: str, label: str) -> object:
        raise NotImplementedError

    def clear_dead_drafts(self, directory: str) -> Sequence[Entry]:
        return []

    def delete(self, name: str) -> None:
        del self.objects[name]


class _SlowFile:
    def __init__(self, store: SlowStore, name: str) -> None:
        self.path = store.path(name)
        self.size = len(store.objects[name])
        self._store = store
        self._name = name

    def read_at(self, start: int, length: int) -> bytes:
        gate = self._store.gates.get(self._name)
        if gate is not None and not gate.wait(SECONDS):
            raise AssertionError(f"nobody opened the gate of {self._name}")
        data = self._store.objects[self._name][start : start + length]
        self._store.events.add("read", self._name)
        return data

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_at(*span) for span in ranges]

    def close(self) -> None:
        self._store.events.add("close", self._name)
