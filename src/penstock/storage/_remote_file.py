"""One version of one object, read by ranged requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.storage._coalesce import read_coalesced
from penstock.storage._meter import current_meter, waiting
from penstock.storage._object_errors import is_throttled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.storage._object import ObjectStore
    from penstock.storage._store import Entry

_CHUNK_BYTES = 256 << 10
_THREADS = 16
"""Ranges that are read at once, because each waits for the network."""


class RemoteFile:
    """An object read by ranged requests, all for one version; see `penstock.storage.OpenFile`."""

    __slots__ = ("_entry", "_store", "path", "size")

    def __init__(self, store: ObjectStore, entry: Entry) -> None:
        self._store = store
        self._entry = entry
        self.path = store.path(entry.name)
        self.size = entry.size

    def read_at(self, start: int, length: int) -> bytes:
        if not length:
            return b""
        what = f"{self.path} (bytes {start:,} to {start + length:,})"
        body = _Body(self._store, self._entry, start, start + length)
        with waiting(self.path, start, start + length):
            return self._store.request(
                "read", what, lambda: self._store.retry(what, body.fetch, body.count_repeat)
            )

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return read_coalesced(self.read_at, ranges, _THREADS)

    def close(self) -> None:
        """Nothing is open between two requests."""


class _Body:
    """A range on its way: a request that breaks off is followed by one for the rest.

    The client's own retries are off, since they could not be counted.
    """

    def __init__(self, store: ObjectStore, entry: Entry, start: int, stop: int) -> None:
        self._store = store
        self._entry = entry
        self._start = start
        self._stop = stop
        self._parts: list[Any] = []
        self._received = 0
        self._version = entry.version
        self._meter = current_meter()

    def fetch(self) -> bytes:
        """Ask for what is missing, and return the whole if that came."""
        self._count(requests=1)
        try:
            self._receive()
        except Exception as failure:
            if is_throttled(failure):
                self._count(throttled=1)
            raise
        length = self._stop - self._start
        if self._received != length:
            # The client takes a short answer for a whole one.
            received, self._received, self._parts = self._received, 0, []
            message = f"{length:,} bytes asked for, {received:,} received"
            raise ConnectionError(message)
        return b"".join(self._parts)

    def _receive(self) -> None:
        options: dict[str, Any] = {"range": (self._start + self._received, self._stop)}
        if self._version:
            # Also where the version is known from the first answer only: two must not be mixed.
            options["if_match"] = self._version
        answer = self._store.client(repeats=False).get(self._entry.name, options=options)
        self._version = self._version or answer.meta["e_tag"]
        for part in answer.stream(min_chunk_size=_CHUNK_BYTES):
            self._parts.append(part)
            self._received += len(part)
            self._count(bytes=len(part))

    def count_repeat(self) -> None:
        self._count(retries=1)

    def _count(self, **more: int) -> None:
        if self._meter is not None:
            self._meter.count(**more)
