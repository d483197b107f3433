"""Parts of remote files on local disk: fetched once for all processes of a host."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock._words import warn_once
from penstock.storage._coalesce import read_coalesced
from penstock.storage._environment import cache_directory, store_in_environment
from penstock.storage._local_errors import free_bytes
from penstock.storage._locks import locked
from penstock.storage._meter import carried, count, waiting
from penstock.storage._store import Entry, OpenFile
from penstock.storage.cache._room import NoRoomError, Room, private_folder, used_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.storage._options import StorageOptions

_log = logging.getLogger("penstock.storage")

_DEFAULT_LIMIT = 10 << 30
_DEFAULT_SHARE = 0.2
_KEY_BYTES = 20
_MAGIC = b"PENBLK01"
_HEADER = struct.Struct("<8s20sQI24x")
HEADER_BYTES = _HEADER.size
"""64, so that the data behind it is aligned as Arrow needs it."""
_MOST_VERIFIED = 1 << 16
_verified: set[tuple[str, int]] = set()
"""Names and inodes of files that this process has checked: once is enough."""
_caches: dict[tuple[str, int | None], BlockCache] = {}


@dataclass(frozen=True, slots=True)
class Block:
    """Something that is made from a part of a remote file, and how."""

    path: str
    start: int
    stop: int
    key: bytes
    """Of `block_key`: the same for the same bytes, different for different ones."""
    make: Callable[[], bytes | pa.Buffer]
    """Fetches the part; any thread may call it, and it uses no cache."""


class BlockBytes(NamedTuple):
    data: pa.Buffer
    is_mapped: bool
    """Whether they lie in a file that others share; else they take this process's memory."""


def block_key(options: StorageOptions, path: str, entry: Entry, *what: object) -> bytes:
    """Return the key of a part of one version of a remote file; `what` says which, and made how."""
    # What cannot be told from other content of that size is never taken from the cache.
    version = entry.version or (entry.size, entry.modified or secrets.token_hex(16))
    parts = (options.place, store_in_environment(), path, version, *what)
    return hashlib.blake2b(repr(parts).encode(), digest_size=_KEY_BYTES).digest()


def block_cache(options: StorageOptions) -> BlockCache:
    """Return this process's cache under the options `cache_dir` and `cache_limit`."""
    chosen = options.get("cache_dir")
    folder = Path(chosen).expanduser().absolute() if chosen else cache_directory() / "blocks"
    key = (str(folder), options.cache_limit)
    return _caches.setdefault(key, BlockCache(folder, options.cache_limit))


class BlockCache:
    """Blocks in files of one folder, which any number of processes and threads share.

    One process fetches a block; others that need it wait, and map the same file. At `limit` bytes
    the least recently used blocks are deleted; a deleted file that is still mapped stays readable
    until it is unmapped. A file that is cut off or damaged is fetched again. Only files with the
    name of a block are ever deleted. Where nothing can be kept, every process fetches blocks for
    itself, after one warning.

    Without `limit` it is 10 GiB, or a fifth of what is free on that disk; 0 keeps nothing.
    """

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self._folder = folder
        self._limit = limit

    def get(self, block: Block) -> BlockBytes:
        """Return the bytes of a block: mapped, or in memory where nothing can be kept."""
        return self._find(block) or self._bring(block)

    def get_all(self, blocks: Sequence[Block], at_once: int = 16) -> list[BlockBytes]:
        """Return the bytes of different blocks; some that are not there are fetched at once."""
        found = {block.key: data for block in blocks if (data := self._find(block)) is not None}
        missing = [block for block in blocks if block.key not in found]
        if len(missing) == 1 or at_once == 1:
            found.update((block.key, self._bring(block)) for block in missing)
        elif missing:
            with ThreadPoolExecutor(min(at_once, len(missing)), "penstock-block") as pool:
                brought = pool.map(carried(self._bring), missing)
                found.update(zip((block.key for block in missing), brought, strict=True))
        return [found[block.key] for block in blocks]

    @cached_property
    def room(self) -> Room | None:
        """Where blocks go; None where they cannot be kept."""
        if self._limit == 0:
            return None
        try:
            folder = private_folder(self._folder)
            limit = self._limit
            if limit is None:
                free = free_bytes(folder) + used_bytes(folder)
                limit = min(_DEFAULT_LIMIT, int(_DEFAULT_SHARE * free))
        except OSError as failure:
            self._tell(failure)
            return None
        return Room(folder, limit)

    def _find(self, block: Block) -> BlockBytes | None:
        if self.room is None:
            return None
        path = self.room.path(block.key)
        data = map_block(path, block.key)
        if data is None:
            return None
        with suppress(OSError):
            os.utime(path)  # By this it is known what was used last.
        count(cache_hits=1)
        return BlockBytes(data, is_mapped=True)

    def _bring(self, block: Block) -> BlockBytes:
        with ExitStack() as stack:
            room = self.room
            if room is not None:
                try:
                    with waiting(block.path, block.start, block.stop):
                        self._lock(stack, room.lock(block.key))
                except OSError as failure:
                    self._tell(failure)
                    room = None
                else:
                    # Another process may have fetched it in the meantime.
                    found = self._find(block)
                    if found is not None:
                        return found
            made = block.make()
            mapped = None if room is None else self._keep(room, block.key, made)
        if mapped is None:
            import pyarrow as pa  # noqa: PLC0415 (only when a block is read)

            return BlockBytes(pa.py_buffer(made), is_mapped=False)
        return BlockBytes(mapped, is_mapped=True)

    def _lock(self, stack: ExitStack, path: Path) -> None:
        try:
            stack.enter_context(locked(path))
        except FileNotFoundError:
            # The folder was deleted, which is allowed at any time.
            private_folder(self._folder)
            stack.enter_context(locked(path))

    def _keep(self, room: Room, key: bytes, made: bytes | pa.Buffer) -> pa.Buffer | None:
        """Write a block, and return it mapped if that worked."""
        data = memoryview(made)
        size = HEADER_BYTES + len(data)
        if size > room.limit:
            return None
        path = room.path(key)
        try:
            with room.reserved(key, size) as descriptor:
                with open(descriptor, "wb", closefd=False) as file:
                    file.write(_HEADER.pack(_MAGIC, key, len(data), zlib.crc32(data)))
                    file.write(data)
                _remember(path, os.fstat(descriptor).st_ino)
                os.replace(room.draft(key), path)
        except NoRoomError:
            return None  # The next who asks for it may find some.
        except OSError as failure:
            self._tell(failure)
            return None
        return map_block(path, key)

    def _tell(self, failure: OSError) -> None:
        warn_once(
            _log,
            f"blocks of remote files cannot be kept in {self._folder}, so each process fetches its "
            f"own: {failure}. Storage option cache_dir names another folder",
            ("blocks", str(self._folder)),
        )


class CachedFile(OpenFile):
    """A remote file whose ranges this host fetches once."""

    def __init__(self, file: OpenFile, entry: Entry, options: StorageOptions) -> None:
        self.path, self.size = file.path, file.size
        self._file, self._entry, self._options = file, entry, options

    def read_at(self, start: int, length: int) -> bytes:
        stop = start + length
        key = block_key(self._options, self.path, self._entry, "bytes", start, stop)
        block = Block(self.path, start, stop, key, lambda: self._file.read_at(start, length))
        data: bytes = block_cache(self._options).get(block).data.to_pybytes()
        return data

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return read_coalesced(self.read_at, ranges, threads=16)

    def close(self) -> None:
        self._file.close()


def map_block(path: Path, key: bytes) -> pa.Buffer | None:
    """Return the bytes of a block, mapped, or None for a file that is not there or not whole.

    The map needs no descriptor, and holds the bytes also when the file is deleted.
    """
    import pyarrow as pa  # noqa: PLC0415 (only when a block is read)

    try:
        inode = os.stat(path).st_ino
        with pa.memory_map(str(path)) as file:
            whole = file.read_buffer()
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as failure:
        _log.debug("%s cannot be read and is fetched again: %s", path, failure)
        return None
    if whole.size < HEADER_BYTES:
        return None
    magic, of, length, checksum = _HEADER.unpack_from(whole)
    data = whole.slice(HEADER_BYTES)
    is_whole = magic == _MAGIC and of == key and length == data.size
    is_known = (str(path), inode) in _verified
    if not is_whole or not (is_known or zlib.crc32(data) == checksum):
        _log.debug("%s is cut off or damaged and is fetched again", path)
        return None
    _remember(path, inode)
    return data


def _remember(path: Path, inode: int) -> None:
    if len(_verified) >= _MOST_VERIFIED:
        _verified.clear()
    _verified.add((str(path), inode))
