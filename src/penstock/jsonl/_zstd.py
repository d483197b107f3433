"""Zstandard in the public seekable format: independent frames and a table of them at the end.

The table is a skippable frame, so every zstd tool reads our files that reads more than one frame;
theirs, with one frame or many and without a table, are read as streams.
"""

from __future__ import annotations

import errno
import logging
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NoReturn

import zstandard

from penstock._cpus import usable_cpus
from penstock._words import counted
from penstock.errors import StorageError, TruncatedFileError, UnsupportedFileError
from penstock.jsonl._sequential import PlainEncoder, damaged_data

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.storage import OpenFile

_log = logging.getLogger("penstock.jsonl")

_SKIPPABLE_MAGIC = 0x184D2A5E
_SKIPPABLE_MARK = b"\x2a\x4d\x18"
"""The last three bytes of the magic number of any skippable frame."""
_SEEKABLE_MAGIC = 0x8F92EAB1
_CHECKSUM_FLAG = 0x80
_RESERVED_BITS = 0x7C
_FOOTER = struct.Struct("<IBI")
_HEADER = struct.Struct("<II")
_LARGEST_FRAME = (1 << 32) - 1
_MOST_THREADS = 4
_SLICE_BYTES = 2 << 10
"""Decompressed at a time in a stream: its text may turn out ten thousand times as long."""
_DENSE_SLICE_BYTES = 256
"""The same where it just has."""
_HELD_BYTES = 1 << 20
LARGEST_WHOLE_FRAME = 16 << 20
"""Bytes of text that may be held in memory; a file with a larger frame is read as a stream."""
_SMALLEST_FRAME = 9
"""Bytes: magic number, descriptor, size of the content, and the head of one block."""
_LARGEST_WINDOW = 1 << 31
"""What `zstd --long=31` asks for, and the most that libzstd takes. Only as much of it is used as
there is text."""
_TAIL_BYTES = 64 << 10
"""Read at once from the end of a file: holds the table of 2 GiB of text."""


class ZstdEncoder(PlainEncoder):
    """Text into frames, compressed on as many cores as there are; frames come out in order."""

    def __init__(self, level: int, frame_bytes: int) -> None:
        self._level = level
        self._frame_bytes = frame_bytes
        self._frames: list[tuple[int, int]] = []
        self._texts: list[bytes | bytearray] = []
        self._text_bytes = 0
        self._own = threading.local()
        self._running: deque[tuple[int, Future[bytes]]] = deque()
        self._threads = min(_MOST_THREADS, usable_cpus())
        self._pool = ThreadPoolExecutor(self._threads, "penstock-zstd")

    def add(self, text: bytes | bytearray) -> Iterator[bytes]:
        self._texts.append(text)
        self._text_bytes += len(text)
        if self._text_bytes < self._frame_bytes:
            return
        text = b"".join(self._texts)
        start = 0
        while len(text) - start >= self._frame_bytes:
            end = text.rfind(b"\n", start, start + self._frame_bytes) + 1
            end = end or text.index(b"\n", start) + 1
            yield from self._submit(text[start:end])
            start = end
        self._texts, self._text_bytes = [text[start:]], len(text) - start

    def flush(self) -> Iterator[bytes]:
        if self._text_bytes:
            yield from self._submit(b"".join(self._texts))
            self._texts, self._text_bytes = [], 0
        while self._running:
            yield self._finished()

    def finish(self) -> Iterator[bytes]:
        yield from self.flush()
        if all(max(sizes) <= _LARGEST_FRAME for sizes in self._frames):
            yield seek_table(self._frames)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _submit(self, text: bytes) -> Iterator[bytes]:
        self._running.append((len(text), self._pool.submit(self._compress, text)))
        if len(self._running) > 2 * self._threads:
            yield self._finished()

    def _finished(self) -> bytes:
        size, future = self._running.popleft()
        frame = future.result()
        self._frames.append((len(frame), size))
        return frame

    def _compress(self, text: bytes) -> bytes:
        compressor: zstandard.ZstdCompressor | None = getattr(self._own, "compressor", None)
        if compressor is None:
            compressor = zstandard.ZstdCompressor(self._level, write_checksum=True)
            self._own.compressor = compressor
        return compressor.compress(text)


class OneFrameEncoder(PlainEncoder):
    """Text as one frame that states its size, and no table, for readers that stop at its end."""

    def __init__(self, level: int) -> None:
        self._level = level
        self._text = bytearray()

    def add(self, text: bytes | bytearray) -> Iterator[bytes]:
        self._text += text
        yield from ()

    def finish(self) -> Iterator[bytes]:
        yield zstandard.ZstdCompressor(self._level, write_checksum=True).compress(self._text)


def seek_table(frames: Iterable[tuple[int, int]]) -> bytes:
    """Return the skippable frame that lists each frame's compressed and uncompressed size."""
    entries = b"".join(_HEADER.pack(*sizes) for sizes in frames)
    body = entries + _FOOTER.pack(len(entries) // _HEADER.size, 0, _SEEKABLE_MAGIC)
    return _HEADER.pack(_SKIPPABLE_MAGIC, len(body)) + body


def read_seek_table(file: OpenFile) -> NDArray[np.uint32] | None:
    """Return each frame's compressed and uncompressed size (k × 2), None without a fitting table.

    A table that does not account for every byte (concatenated files, a foreign skippable
    frame) is no table: such a file is read as a stream.
    """
    tail = file.read_at(max(0, file.size - _TAIL_BYTES), min(file.size, _TAIL_BYTES))
    if len(tail) < _FOOTER.size + _HEADER.size:
        return None
    count, flags, magic = _FOOTER.unpack_from(tail, len(tail) - _FOOTER.size)
    if magic != _SEEKABLE_MAGIC or flags & _RESERVED_BITS:
        return None
    entry_bytes = _HEADER.size + (4 if flags & _CHECKSUM_FLAG else 0)
    table_bytes = _HEADER.size + count * entry_bytes + _FOOTER.size
    if table_bytes + count * _SMALLEST_FRAME > file.size:
        return None
    if table_bytes > len(tail):
        tail = file.read_at(file.size - table_bytes, table_bytes)
    table = memoryview(tail)[-table_bytes:]
    if _HEADER.unpack_from(table) != (_SKIPPABLE_MAGIC, table_bytes - _HEADER.size):
        return None
    import numpy as np  # noqa: PLC0415 (plain text is read without)

    entries = np.frombuffer(table[_HEADER.size : -_FOOTER.size], "<u4")
    frames = entries.reshape(count, entry_bytes // 4)[:, :2]
    if int(frames[:, 0].sum(dtype=np.int64)) + table_bytes != file.size:
        return None
    return frames


def decode_frames(
    file: OpenFile,
    frames: NDArray[np.uint32],
    block_bytes: int,
    on_frame: Callable[[int, int, int], object] | None = None,
) -> Iterator[bytes]:
    """Yield the text of each frame that a table lists."""
    decompressor = _decompressor()
    ends = frames[:, 0].cumsum(dtype="i8")
    first = at = 0
    while first < len(frames):
        # As many frames as are worth one read.
        behind = max(first + 1, int(ends.searchsorted(at + block_bytes, "right")))
        start, block = at, memoryview(file.read_at(at, int(ends[behind - 1]) - at))
        for compressed, text_bytes in frames[first:behind].tolist():
            frame = block[at - start : at - start + compressed]
            text = decode_frame(frame, text_bytes, file.path, at, decompressor)
            if on_frame is not None and text_bytes:
                on_frame(at, compressed, text_bytes)
            yield text
            at += compressed
        first = behind


def decode_stream(  # noqa: C901 (one state machine, with nothing to share between two halves)
    blocks: Iterable[bytes], path: str, on_frame: Callable[[int, int, int], object] | None = None
) -> Iterator[bytes]:
    """Yield the text of any sequence of zstd frames, skippable ones passed over.

    The text of a frame is held back until its checksum is seen, as far as a frame is no larger
    than what may be held; so a damaged one gives an error and no wrong records.
    """
    decompressor = _decompressor()
    frame = None
    held: list[bytes] = []
    step = _DENSE_SLICE_BYTES
    at = 0
    frames = tables = 0
    begun = text_bytes = 0  # Of the present frame.
    for block in blocks:
        start = 0
        while start < len(block):
            if frame is None:
                frame = decompressor.decompressobj()
                frames += 1
                begun, text_bytes = at + start, 0
                tables += block[start + 1 : start + 4] == _SKIPPABLE_MARK
            part = block[start : start + step]
            try:
                text = frame.decompress(part)
            except zstandard.ZstdError as failure:
                _fail(path, at + start, failure, part)
            start += len(part)
            step = _SLICE_BYTES if len(text) < _HELD_BYTES else _DENSE_SLICE_BYTES
            if text:
                held.append(text)
                text_bytes += len(text)
            if frame.eof:
                start -= len(frame.unused_data)
                frame = None
                if on_frame is not None and text_bytes:
                    on_frame(begun, at + start - begun, text_bytes)
            if held and (frame is None or sum(map(len, held)) >= _HELD_BYTES):
                yield b"".join(held)
                held.clear()
        at += len(block)
    if frame is not None or not frames:
        what = f"its last zstd frame is incomplete after {counted(at, 'byte')}"
        if not frames:
            what = "it has 0 bytes, and zstd writes a frame even for no text"
        raise TruncatedFileError(f"{path} is cut off: {what}. Get the file again.", path=path)
    if frames > 1 and not tables:
        _log.warning(
            "%s: %d zstd frames and no table of them at its end. Files of other tools are so; one "
            "that Penstock wrote has lost its end",
            path,
            frames,
        )


def decode_frame(
    data: bytes | memoryview,
    text_bytes: int,
    path: str,
    offset: int,
    decompressor: zstandard.ZstdDecompressor | None = None,
) -> bytes:
    """Return the text of bytes that an index says are one frame with so much text.

    Small frames one after the other share a decompressor; it is their seek table that says so.
    """
    parts, size, at = list[bytes](), 0, 0
    frame = (decompressor or _decompressor()).decompressobj()
    try:
        stated = zstandard.frame_content_size(data)
        # Without a size of its own its text might be endless, and is looked at on the way.
        step = _SLICE_BYTES if stated < 0 else len(data)
        may_fit = stated in (-1, text_bytes)
        while may_fit and at < len(data) and not frame.eof:
            parts.append(frame.decompress(data[at : at + step]))
            size += len(parts[-1])
            at += step
            may_fit = size <= text_bytes
    except zstandard.ZstdError as failure:
        _fail(path, offset, failure)
    if size != text_bytes or not frame.eof or frame.unused_data or at < len(data):
        source_name = "index" if decompressor is None else "seek table"
        why = f"it is not one frame with {text_bytes:,} bytes of text, as the {source_name} says"
        _fail(path, offset, why)
    return b"".join(parts)


def _decompressor() -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)


def _fail(
    path: str, offset: int, why: str | zstandard.ZstdError, part: bytes | None = None
) -> NoReturn:
    if "not enough memory" in str(why):
        message = (
            f"{path}: there is not enough memory for the zstd frame near byte {offset:,} (one of "
            "zstd --long=31 takes up to 2 GiB). Allow this process more, or write the file anew "
            f"with a smaller window: zstd -dc --long=31 {path} | zstd > FILE"
        )
        raise StorageError(message, path=path, errno=errno.ENOMEM)
    if "Dictionary mismatch" in str(why):
        raise UnsupportedFileError(
            f"{path} is compressed with a dictionary, which is not supported. Write it anew "
            f"without: zstd -D DICTIONARY -dc {path} | zstd > FILE",
            path=path,
        )
    raise damaged_data(path, "zstd", offset, why, None if offset else part)
