"""The text of one file, any part of it: mapped, fetched, or decompressed around the place."""

from __future__ import annotations

import mmap
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

import numpy as np

from penstock.datasets._recently_used import Owner, RecentlyUsed
from penstock.errors import OptionError, StaleIndexError, StorageError
from penstock.index import LARGEST_FRAME
from penstock.jsonl import compression_of, decode_frame, decompressed
from penstock.storage import carried

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index import SampleIndex
    from penstock.storage import OpenFile

    Places = Sequence[int] | NDArray[np.integer]

CACHED_BYTES = 64 << 20
"""Decompressed frames that a process keeps."""
_MOST_REQUESTS = 16
_BLOCK = 1 << 20
_KEPT = 1 << 20
"""Text behind a head that can be asked for again, as is done to find a bad record in a batch."""
_HEADS = 2
"""Training and validation take turns without losing their places."""
_FREE_BEGINNINGS = 8
_CALLS_A_PASS = 8
"""A pass that begins where no other did goes forward in this many calls, on average. Records in
random order go back about every other time."""
REBUILD = "Build the index again: penstock index PATH --overwrite"


class FileText(Protocol):
    """A file's uncompressed text, read by position by any number of threads."""

    __slots__ = ()

    def read(self, offset: int, size: int) -> bytes:
        """Return one part."""
        return self.read_many([offset], [size])[0]

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        """Return parts in the order asked, with as few reads of the file as possible."""
        ...


def grouped(files: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the places at which each file stands.

    >>> [here.tolist() for here in grouped(np.array([7, 5, 7]))]
    [[1], [0, 2]]
    """
    if not len(files) or (files == files[0]).all():
        return [np.arange(len(files))] if len(files) else []
    order = np.argsort(files, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(files[order])) + 1)


def read_grouped(
    files: NDArray[np.int64],
    read: Callable[[NDArray[np.int64]], list[bytes]],
    *,
    at_once: bool,
) -> list[bytes]:
    """Return what `read` returns for the places of each file, in the order of the places.

    Several files are read at once, where each waits for a network.
    """
    groups = grouped(files)
    if at_once and len(groups) > 1:
        with ThreadPoolExecutor(min(_MOST_REQUESTS, len(groups)), "penstock-read") as pool:
            texts = list(pool.map(carried(read), groups))
    else:
        texts = [read(here) for here in groups]
    found: list[bytes] = [b""] * len(files)
    for here, some in zip(groups, texts, strict=True):
        for at, text in zip(here.tolist(), some, strict=True):
            found[at] = text
    return found


def is_stream(index: SampleIndex, file: int) -> bool:
    """Whether a file of an index can only be decompressed from its beginning."""
    compression = compression_of(index.file_locations[file])
    if compression != "zstd":
        return compression is not None
    frames = index.frames_of(file)
    return not len(frames) or int(frames[:, 4].max()) > LARGEST_FRAME


class MappedText(FileText):
    """A plain file on this machine: the page cache is the only copy."""

    __slots__ = ("_map", "_path", "_remedy")

    def __init__(self, name: str, path: str, remedy: str = REBUILD) -> None:
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


class RangedText(FileText):
    """A plain file that is asked for by ranges: in an object store, or on a network file system."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        ranges = list(zip(np.asarray(offsets).tolist(), np.asarray(sizes).tolist(), strict=True))
        end = max(offset + size for offset, size in ranges)
        _refuse_behind(self._file.path, end, self._file.size)
        return self._file.read_ranges(ranges)


class PartedText(FileText):
    """A text in parts that follow each other: those around a record are brought.

    `parts` are int64[parts, 4]: offset and bytes in the file, offset and bytes in the text.
    """

    _held: ClassVar[RecentlyUsed[Any]]
    """Parts of all files of the class that this process has at hand."""

    def __init__(self, path: str, parts: NDArray[np.int64]) -> None:
        self._path, self._parts = path, parts
        self._starts = parts[:, 2]
        self._end = int(parts[-1, 2:].sum()) if len(parts) else 0
        self._owner = Owner()

    @abstractmethod
    def _bring(self, numbers: list[int]) -> Iterator[tuple[bytes | memoryview, int]]:
        """Yield the text of each of some parts, and its weight among those at hand."""

    def _texts(self, numbers: list[int]) -> dict[int, bytes | memoryview]:
        held = {number: self._held.get(self._owner, number) for number in numbers}
        missing = [number for number, text in held.items() if text is None]
        if missing:
            for number, (text, weight) in zip(missing, self._bring(missing), strict=True):
                held[number] = text
                self._held.put(self._owner, number, text, weight)
        return {number: text for number, text in held.items() if text is not None}

    def read(self, offset: int, size: int) -> bytes:
        # A forged offset may be more than int64 holds.
        _refuse_behind(self._path, offset + size, self._end)
        number = int(self._starts.searchsorted(offset, "right")) - 1
        low = offset - int(self._starts[number])
        if number < 0 or low + size > self._parts[number, 3]:
            return super().read(offset, size)
        return bytes(self._texts([number])[number][low : low + size])

    def _spans(
        self, begin: NDArray[np.int64], end: NDArray[np.int64]
    ) -> tuple[list[int], list[int], list[int]]:
        """Return the first and the last part of each record, and the parts of all of them."""
        _refuse_behind(self._path, int(end.max()), self._end)
        first = np.searchsorted(self._starts, begin, "right") - 1
        if first.min() < 0:
            raise StaleIndexError(
                f"the index of {self._path} speaks of a record at byte {begin.min():,}, before the "
                f"first one. {REBUILD}",
                path=self._path,
            )
        last = np.maximum(first, np.searchsorted(self._starts, end, "left") - 1)
        ones, others = first.tolist(), last.tolist()
        spans = map(range, ones, (last + 1).tolist())
        return ones, others, sorted({number for span in spans for number in span})

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        begin = np.asarray(offsets, np.int64)
        end = begin + np.asarray(sizes, np.int64)
        ones, others, numbers = self._spans(begin, end)
        texts, bases = self._texts(numbers), self._starts[ones]
        found = []
        for one, other, low, high in zip(
            ones, others, (begin - bases).tolist(), (end - bases).tolist(), strict=True
        ):
            text = texts[one]
            if one != other:
                text = b"".join([texts[number] for number in range(one, other + 1)])
            found.append(bytes(text[low:high]))
        return found


class FramedText(PartedText):
    """A zstd file with frames of a bearable size, which are decompressed in this process."""

    _held = RecentlyUsed(CACHED_BYTES)

    def __init__(self, file: OpenFile, frames: NDArray[np.uint64]) -> None:
        super().__init__(file.path, frames[:, 1:].astype(np.int64))
        self._file = file

    def _bring(self, numbers: list[int]) -> Iterator[tuple[bytes, int]]:
        frames = self._parts[numbers].tolist()
        data = self._file.read_ranges([(offset, size) for offset, size, *_ in frames])
        for (offset, *_, text_bytes), frame in zip(frames, data, strict=True):
            text = decode_frame(frame, text_bytes, self._path, offset)
            yield text, len(text)


class StreamText(FileText):
    """A file that can only be decompressed from its beginning; goes on where it stands.

    To go back is to decompress from the beginning again, as another epoch does, a resume, or an
    earlier state. `once` names a compression for which records in random order are refused, since
    that would be done for each of them.
    """

    def __init__(self, file: OpenFile, once: str = "", longest: int | None = None) -> None:
        self._file = file
        self._once = once
        self._longest = longest
        """Bytes of all records of the file, where that is known: one has no more."""
        self._lock = threading.Lock()
        self._heads: list[_Head] = []
        """The one used last stands last."""
        self._calls = 0
        self._beginnings = {0}
        """First places of all passes; that of another epoch is among them."""

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        texts: dict[tuple[int, int], bytes] = {}
        places = list(zip(np.asarray(offsets).tolist(), np.asarray(sizes).tolist(), strict=True))
        with self._lock:
            self._calls += 1
            for offset, size in sorted(set(places)):
                texts[offset, size] = self._read(offset, size)
        return [texts[place] for place in places]

    def _read(self, offset: int, size: int) -> bytes:
        if self._longest is not None and size > self._longest:
            raise StaleIndexError(
                f"the index speaks of a record of {size:,} bytes in {self._file.path}, and of "
                f"{self._longest:,} in all its records. {REBUILD}",
                path=self._file.path,
            )
        head = self._head(offset)
        text = head.read(offset, size)
        # A head that failed is not put back: it stands nowhere.
        self._heads.append(head)
        return text

    def _head(self, offset: int) -> _Head:
        """Take the head that comes to a place with the least work, or a new one."""
        behind = [head for head in self._heads if head.start <= offset]
        if behind:
            nearest = max(behind, key=lambda head: head.end)
            self._heads.remove(nearest)
            return nearest
        if self._once and offset not in self._beginnings:
            self._count_beginning(offset)
        del self._heads[: len(self._heads) + 1 - _HEADS]
        return _Head(self._file)

    def _count_beginning(self, offset: int) -> None:
        known = len(self._beginnings)
        if known >= _FREE_BEGINNINGS + self._calls // _CALLS_A_PASS:
            raise OptionError(
                f"{self._file.path} is compressed with {self._once}, which can only be read from "
                f"its beginning, and was begun for {known:,} places in {self._calls:,} reads. Ask "
                "for records in rising order; for any order write it with small zstd frames: "
                f"penstock convert {self._file.path} DST"
            )
        self._beginnings.add(offset)


class _Head:
    """A place that goes forward through the text of a file; what lies far behind is let go of."""

    def __init__(self, file: OpenFile) -> None:
        self._path = file.path
        self._blocks = decompressed(file, _BLOCK)
        self._held = b""
        self.start = self.end = 0
        """Of what is held."""

    def read(self, offset: int, size: int) -> bytes:
        """Return text from `start` on."""
        while self.end < offset + size:
            block = next(self._blocks, None)
            if block is None:
                raise StaleIndexError(
                    f"{self._path} ends at byte {self.end:,} of its text, before a record "
                    f"that its index names. {REBUILD}",
                    path=self._path,
                )
            let_go = min(max(0, offset - _KEPT - self.start), len(self._held))
            self._held = self._held[let_go:] + block
            self.start += let_go
            self.end += len(block)
        at = offset - self.start
        return self._held[at : at + size]
