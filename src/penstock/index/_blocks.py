"""Blocks of a file's text for a scan, read ahead."""

from __future__ import annotations

import os
import threading
from array import array
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from penstock._cpus import usable_cpus
from penstock.errors import StaleIndexError
from penstock.index._scan import LineFinder, LineScan
from penstock.jsonl import compression_of, decompressed
from penstock.storage import LocalStore, MeteredFile, ReadAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from penstock.index._listing import Found
    from penstock.index._scan import FileScan, LineEnds
    from penstock.storage import OpenFile

_BLOCK_BYTES = 1 << 20
_REMOTE_BLOCK_BYTES = 8 << 20
_MOST_THREADS = 4
_AHEAD_BYTES = 32 << 20
LARGEST_FRAME = 16 << 20
"""Bytes of text; in a larger frame a record from the middle is slow to read."""


class ScannedFrames:
    """The zstd frames of a file, as its scan meets them."""

    def __init__(self) -> None:
        self._numbers = array("q")  # A file of 100 MB may have millions.
        self._text = 0

    def add(self, offset: int, size: int, text_bytes: int) -> None:
        self._numbers.extend((offset, size, self._text, text_bytes))
        self._text += text_bytes

    @property
    def rows(self) -> NDArray[np.int64]:
        """Offset, bytes, offset of the text, bytes of the text: int64[k, 4]."""
        return np.array(self._numbers, np.int64).reshape(-1, 4)


def scan_file(
    found: Found,
    scan: FileScan,
    start: int,
    on_read: Callable[[int], object],
    frames: ScannedFrames,
) -> Iterator[NDArray[np.int64]]:
    """Yield offset and bytes of a file's records, many at a time, from byte `start` on.

    `on_read` is called in this thread with the bytes read from storage since the last call.
    """
    with opened(found) as file:
        is_plain = compression_of(found.entry.name) is None
        if is_plain and isinstance(scan, LineScan) and isinstance(found.store, LocalStore):
            for ends in _line_ends(file, start):
                on_read(ends.size)
                yield scan.add_found(ends)
        else:
            for block in text_blocks(file, start, on_read, frames):
                yield scan.add(block)
        yield scan.finish()


@contextmanager
def opened(found: Found) -> Iterator[OpenFile]:
    """Open a file with the size of its listing: appended bytes are for the next update."""
    file = found.store.open(found.entry.name, found.entry)
    try:
        if file.size < found.entry.size:
            raise StaleIndexError(
                f"{found.path} shrank while it was being indexed.", path=found.path
            )
        file.size = found.entry.size
        yield file
    finally:
        file.close()


def text_blocks(
    file: OpenFile, start: int, on_read: Callable[[int], object], frames: ScannedFrames
) -> Iterator[bytes]:
    """Yield a file's text from a byte on, read ahead; the first block has three bytes or more."""
    counted = _Counted()
    if compression_of(file.path) is None:
        fetched = _fetched(MeteredFile(file, counted.add), start)
    else:
        fetched = decompressed(MeteredFile(file, counted.add), _BLOCK_BYTES, frames.add)
    ahead = ReadAhead(fetched, limit=_AHEAD_BYTES, weigh=len, name="scan")
    try:
        for block in _with_long_first(ahead):
            on_read(counted.take())
            yield block
        on_read(counted.take())
    finally:
        ahead.close()


class _Counted:
    """Bytes that one thread reads and another reports."""

    def __init__(self) -> None:
        self._read = self._reported = 0

    def add(self, count: int) -> None:
        self._read += count

    def take(self) -> int:
        count = self._read - self._reported
        self._reported += count
        return count


def _line_ends(file: OpenFile, start: int) -> Iterator[LineEnds]:
    """Yield the line ends of a local file's blocks, which threads read and search."""
    own = threading.local()

    def look(at: int) -> LineEnds:
        if not hasattr(own, "finder"):
            own.finder, own.buffer = LineFinder(), memoryview(bytearray(_BLOCK_BYTES))
        size = min(_BLOCK_BYTES, file.size - at)
        block = own.buffer[:size]
        done = os.preadv(raw.fileno(), [block], at)
        if done < size:  # A signal, or the file shrank: then this raises.
            block[done:] = file.read_at(at + done, size - done)
        found: LineEnds = own.finder.find(block)
        return found

    threads = min(_MOST_THREADS, usable_cpus())
    with (
        open(file.path, "rb", buffering=0) as raw,
        ThreadPoolExecutor(threads, "penstock-scan") as pool,
    ):
        coming: deque[Future[LineEnds]] = deque()
        try:
            for at in range(start, file.size, _BLOCK_BYTES):
                coming.append(pool.submit(look, at))
                if len(coming) > 2 * threads:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for future in coming:
                future.cancel()


def _fetched(file: OpenFile, start: int) -> Iterator[bytes]:
    for at in range(start, file.size, _REMOTE_BLOCK_BYTES):
        yield file.read_at(at, min(_REMOTE_BLOCK_BYTES, file.size - at))


def _with_long_first(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes, the first block with three or more, so that a mark is seen."""
    head = b""
    for block in blocks:
        head += block
        if len(head) >= 3:  # noqa: PLR2004 (bytes of a mark)
            break
    yield head
    yield from blocks
