"""Files as Python knows them, over any store."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.storage._local import refuse_special_file
from penstock.storage._store import Draft, OpenFile, Store

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_BUFFER_BYTES = 1 << 20


def read_blocks(file: OpenFile, block_bytes: int, first: int = 0) -> Iterator[bytes]:
    """Yield a file's bytes from one on to the last, in blocks."""
    for start in range(first, file.size, block_bytes):
        yield file.read_at(start, min(block_bytes, file.size - start))


def open_for_reading(store: Store, name: str) -> io.BufferedReader:
    """Return a seekable binary file with a large buffer, as pyarrow and zstandard take it."""
    return io.BufferedReader(SeekableFile(store.open(name)), _BUFFER_BYTES)


def open_for_writing(store: Store, directory: str, name: str) -> PublishingFile:
    """Return a binary file that appears under `name` when its `with` block ends well."""
    refuse_special_file(store, name)
    store.clear_dead_drafts(directory)
    return PublishingFile(store.draft(directory, name.rpartition("/")[2]), name)


class HeldFile(OpenFile):
    """A small file, read once and held in memory."""

    def __init__(self, file: OpenFile) -> None:
        self.path = file.path
        self.size = file.size
        self._data = file.read_at(0, file.size) if file.size else b""

    def read_at(self, start: int, length: int) -> bytes:
        return self._data[start : start + length]


class MeteredFile(OpenFile):
    """A file that reports the bytes of each read."""

    def __init__(self, file: OpenFile, on_read: Callable[[int], object]) -> None:
        self.path = file.path
        self.size = file.size
        self._file = file
        self._on_read = on_read

    def read_at(self, start: int, length: int) -> bytes:
        data = self._file.read_at(start, length)
        self._on_read(len(data))
        return data

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        parts = self._file.read_ranges(ranges)
        self._on_read(sum(map(len, parts)))
        return parts

    def close(self) -> None:
        self._file.close()


class SeekableFile(io.RawIOBase):
    """An open file as Python and pyarrow know one: it has an offset, and is for one thread."""

    def __init__(self, file: OpenFile) -> None:
        super().__init__()
        self._file = file
        self._position = 0
        self.name = file.path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset} in {self._file.path}")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        # `io.RawIOBase` would copy what is read twice.
        rest = max(0, self._file.size - self._position)
        length = rest if size is None or size < 0 else min(size, rest)
        data = self._file.read_at(self._position, length) if length else b""
        self._position += length
        return data

    def readinto(self, buffer: WriteableBuffer) -> int:
        with memoryview(buffer).cast("B") as view:
            data = self.read(len(view))
            view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class PublishingFile(io.RawIOBase):
    """A write-only file: `close` publishes, leaving a `with` block by an exception discards."""

    def __init__(self, draft: Draft, name: str) -> None:
        super().__init__()
        self._draft = draft
        self.name = name

    def writable(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        if self.closed:
            raise ValueError(f"write to {self.name} after it was closed")
        self._draft.write(data)
        return memoryview(data).nbytes

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        try:
            self._draft.publish(self.name, exclusive=False)
        finally:
            self._draft.discard()

    def discard(self) -> None:
        """Close without publishing anything."""
        super().close()
        self._draft.discard()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        # Never closed means never finished: publish nothing.
        self.discard()
