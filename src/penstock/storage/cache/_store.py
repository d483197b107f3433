"""An object store whose files are read through the host's cache, each range by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.storage._object import ObjectStore, RemoteFile
from penstock.storage.cache._blocks import Block, block_cache, block_key

if TYPE_CHECKING:
    from penstock.storage._store import Entry


class CachedStore(ObjectStore):
    """A bucket whose ranges this host fetches once: for parts that every process reads first."""

    __slots__ = ()

    def open(self, name: str, known: Entry | None = None) -> RemoteFile:
        """Open an object for reading; a range that was read before is on this host's disk."""
        return _CachedFile(self, known or self.entry(name))


class _CachedFile(RemoteFile):
    __slots__ = ()

    def read_at(self, start: int, length: int) -> bytes:
        read_at, stop = super().read_at, start + length
        key = block_key(self._store.options, self.path, self._entry, "bytes", start, stop)
        block = Block(self.path, start, stop, key, lambda: read_at(start, length))
        data: bytes = block_cache(self._store.options).get(block).data.to_pybytes()
        return data
