"""Blocks as files: written under another name, mapped, and checked before use."""

from __future__ import annotations

import logging
import os
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

_log = logging.getLogger("penstock.storage")

_MAGIC = b"PENBLK01"
_HEADER = struct.Struct("<8s20sQI24x")
HEADER_BYTES = _HEADER.size
"""64, so that the data behind it is aligned as Arrow needs it."""
_MOST_VERIFIED = 1 << 16
_verified: set[tuple[str, int]] = set()
"""Names and inodes of files that this process has checked: once is enough."""


def write_block(descriptor: int, path: Path, key: bytes, data: memoryview) -> None:
    """Write a block into an open file that is going to be `path`."""
    header = _HEADER.pack(_MAGIC, key, len(data), zlib.crc32(data))
    with open(descriptor, "wb", closefd=False) as file:
        file.write(header)
        file.write(data)
    _remember(path, os.fstat(descriptor).st_ino)


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
    if magic != _MAGIC or of != key or length != data.size:
        _log.debug("%s is cut off or damaged and is fetched again", path)
        return None
    if (str(path), inode) not in _verified:
        if zlib.crc32(data) != checksum:
            _log.debug("%s is damaged and is fetched again", path)
            return None
        _remember(path, inode)
    return data


def _remember(path: Path, inode: int) -> None:
    if len(_verified) >= _MOST_VERIFIED:
        _verified.clear()
    _verified.add((str(path), inode))
