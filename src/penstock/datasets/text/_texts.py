"""The text of one file, any part of it: mapped, fetched, or decompressed around the place."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from penstock.datasets._network import is_network
from penstock.datasets._recently_used import RecentlyUsed
from penstock.datasets.text._stream import StreamText
from penstock.errors import ObjectNotFoundError, StaleIndexError, StorageError
from penstock.index import LARGEST_FRAME, file_fingerprint
from penstock.jsonl import compression_of, decode_frame
from penstock.storage import Entry, LocalStore, locate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.index import FileMeta, SampleIndex
    from penstock.storage import OpenFile

    Places = Sequence[int] | NDArray[np.integer]

CACHED_BYTES = 64 << 20
"""Decompressed frames that a process keeps."""
_REBUILD = "Build the index again: penstock index PATH --overwrite"


class FileText(Protocol):
    """A file's uncompressed text, read by position by any number of threads."""

    def read(self, offset: int, size: int) -> bytes:
        """Return one part."""
        ...

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        """Return parts in the order asked, with as few reads of the file as possible."""
        ...


def open_text(index: SampleIndex, number: int) -> FileText:
    """Open one file of an index; a file that changed since raises."""
    path = index.file_locations[number]
    options = index.origin.options if index.origin is not None else None
    store, name = locate(path, options)
    meta = index.meta.files[number] if index.meta is not None else None
    compression = compression_of(path)
    if isinstance(store, LocalStore):
        _check_unchanged(path, store, name, meta, _remedy(index))
        if compression is None and not is_network(name):
            return MappedText(name, path, _remedy(index))
    known = Entry(name, meta.size, meta.modified, meta.version) if meta is not None else None
    file = store.open(name, known)
    if compression is None:
        return RangedText(file)
    places = index.frames_of(number)
    if compression == "gzip" or not len(places) or int(places[:, 4].max()) > LARGEST_FRAME:
        longest = None if meta is None else meta.bytes
        return StreamText(file, "gzip" if compression == "gzip" else "", longest)
    return FramedText(file, places)


def _remedy(index: SampleIndex) -> str:
    if index.meta is None:
        is_of_tokens = any(path.endswith(".bin") for path in index.file_locations[:1])
    else:
        is_of_tokens = index.meta.kind == "tokens"
    if is_of_tokens:
        return "Tokenise the text again: penstock tokenize SRC DST --overwrite"
    return _REBUILD


def _check_unchanged(
    path: str, store: LocalStore, name: str, meta: FileMeta | None, remedy: str
) -> None:
    try:
        entry = store.entry(name)
    except ObjectNotFoundError:
        raise StaleIndexError(
            f"{path} is gone since the index was built. Bring it back. {remedy}",
            path=path,
        ) from None
    if meta is None:
        return
    same = (entry.size, entry.modified) == (meta.size, meta.modified)
    if not same and entry.size >= meta.size:
        file = store.open(name)
        same = file_fingerprint(file, meta.size) == meta.fingerprint
        file.close()
    if not same:
        what = f"{meta.size:,} bytes then, {entry.size:,} now"
        if entry.size == meta.size:
            what = "other content at equal size"
        raise StaleIndexError(
            f"{path} changed since the index was built: {what}. {remedy}",
            path=path,
        )


class MappedText:
    """A plain file on this machine: the page cache is the only copy."""

    __slots__ = ("_map", "_path", "_remedy")

    def __init__(self, name: str, path: str, remedy: str = _REBUILD) -> None:
        self._path = path
        self._remedy = remedy
        try:
            with open(name, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                # An empty file cannot be mapped, and holds no records.
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
        except OSError as failure:
            message = f"cannot read {path}: {failure.strerror or failure}."
            raise StorageError(message, path=path, errno=failure.errno) from failure

    def read(self, offset: int, size: int) -> bytes:
        end = offset + size
        mapped = self._map
        if not size:
            return b""  # The file may be empty, and without a map.
        # Touching a page behind the file's end would kill the process, so its size is asked.
        if mapped is None or end > len(mapped) or end > mapped.size():
            self._fail(end)
        return mapped[offset:end]

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        mapped = self._map
        starts = np.asarray(offsets, np.int64)
        ends = starts + np.asarray(sizes, np.int64)
        last = int(ends.max())
        if not last:
            return [b""] * len(starts)
        if mapped is None or last > len(mapped) or last > mapped.size():
            self._fail(last)
        places = zip(starts.tolist(), ends.tolist(), strict=True)
        return [mapped[start:end] for start, end in places]

    def items(
        self, kind: np.dtype[Any], begin: int, stop: int, step: int | None = None
    ) -> NDArray[Any]:
        """Return what lies between two bytes as items of a kind, one every `step` bytes.

        They are a read-only view of the map.
        """
        mapped = self._map
        if mapped is None or stop > len(mapped) or stop > mapped.size():
            self._fail(stop)
        step = step or kind.itemsize
        count = max(0, (stop - begin - kind.itemsize) // step + 1)
        return np.ndarray((count,), kind, mapped, begin, (step,))

    def _fail(self, end: int) -> NoReturn:
        size = self._map.size() if self._map is not None else 0
        raise StaleIndexError(
            f"{self._path} shrank: a record ends at byte {end:,}, and the file has {size:,} now. "
            f"{self._remedy}",
            path=self._path,
        )


def _refuse_behind(path: str, end: int, size: int) -> None:
    """Raise for a record that ends behind its text, before memory is allocated for it."""
    if end > size:
        raise StaleIndexError(
            f"{path} has {size:,} bytes of text, and its index speaks of a record that ends at "
            f"byte {end:,}. Copy both again, or build the index again.",
            path=path,
        )


class RangedText:
    """A plain file that is asked for by ranges: in an object store, or on a network file system."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file

    def read(self, offset: int, size: int) -> bytes:
        return self.read_many([offset], [size])[0]

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        ranges = list(zip(np.asarray(offsets).tolist(), np.asarray(sizes).tolist(), strict=True))
        end = max(offset + size for offset, size in ranges)
        _refuse_behind(self._file.path, end, self._file.size)
        return self._file.read_ranges(ranges)


_frames: RecentlyUsed[bytes] = RecentlyUsed(CACHED_BYTES)


class FramedText:
    """A zstd file with frames of a bearable size: those around a record are decompressed."""

    def __init__(self, file: OpenFile, places: NDArray[np.uint64]) -> None:
        self._file = file
        self._frames = places[:, 1:].astype(np.int64)
        self._starts = self._frames[:, 2]
        self._end = int(self._frames[-1, 2:].sum())
        self._name = object()  # Of its frames among those of all files.

    def read(self, offset: int, size: int) -> bytes:
        _refuse_behind(self._file.path, offset + size, self._end)
        return self.read_many([offset], [size])[0]

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        begin = np.asarray(offsets, np.int64)
        end = begin + np.asarray(sizes, np.int64)
        _refuse_behind(self._file.path, int(end.max()), self._end)
        first = np.searchsorted(self._starts, begin, "right") - 1
        last = np.searchsorted(self._starts, end, "left") - 1
        spans = map(range, first.tolist(), (last + 1).tolist())
        texts = self._texts(sorted({number for span in spans for number in span}))
        return [
            self._cut(texts, *where)
            for where in zip(
                begin.tolist(), end.tolist(), first.tolist(), last.tolist(), strict=True
            )
        ]

    def _cut(self, texts: dict[int, bytes], begin: int, end: int, first: int, last: int) -> bytes:
        start = int(self._starts[first])
        if first == last:
            return texts[first][begin - start : end - start]
        text = b"".join(texts[number] for number in range(first, last + 1))
        return text[begin - start : end - start]

    def _texts(self, wanted: list[int]) -> dict[int, bytes]:
        found = {number: _frames.get((self._name, number)) for number in wanted}
        texts = {number: text for number, text in found.items() if text is not None}
        missing = [number for number in wanted if number not in texts]
        if missing:
            ranges = [(int(self._frames[n, 0]), int(self._frames[n, 1])) for n in missing]
            for number, data in zip(missing, self._file.read_ranges(ranges), strict=True):
                offset, _, _, text_bytes = self._frames[number].tolist()
                text = texts[number] = decode_frame(data, text_bytes, self._file.path, offset)
                _frames.put((self._name, number), text, len(text))
        return texts
