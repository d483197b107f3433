"""Files of datasets that other tools wrote: read as they were when the source was opened."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

import numpy as np

from penstock.datasets._network import is_network
from penstock.datasets._recently_used import RecentlyUsed
from penstock.datasets._source import Location, Source
from penstock.datasets.text._block_texts import BLOCK_BYTES
from penstock.datasets.text._texts import MappedText, RangedText
from penstock.errors import ObjectNotFoundError, StaleIndexError
from penstock.storage import Block, LocalStore, block_cache, block_key

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from numpy.typing import NDArray

    from penstock.datasets.text._texts import FileText, Places
    from penstock.index import Found
    from penstock.storage import StorageOptions

_KEPT_BYTES = 256 << 20
"""Mapped blocks, which are in the page cache and not in the process."""
_MEMORY_WEIGHT = 4
"""How much heavier a block weighs that could not be mapped: those take 64 MiB."""


class OpenedFiles(Protocol):
    """What a source holds while its files are open."""

    @property
    def fingerprint(self) -> str: ...


T = TypeVar("T", bound=OpenedFiles)


class Reopened(Source, Generic[T]):
    """A source whose files are opened at once, and by each process that it is pickled to.

    There they must be what they were.
    """

    _path: str
    """What was opened; absolute, because another process may have another working directory."""
    _options: StorageOptions
    _known: str | None = None
    """The fingerprint, where another process opened this first."""
    _files: T | None = None
    _is_by_blocks = False

    @abstractmethod
    def _open(self) -> T:
        """Open the files."""

    @abstractmethod
    def _places(self, ids: NDArray[np.int64]) -> Location:
        """Return where each of some records lies."""

    def _opened(self) -> T:
        files = self._files
        if files is None:
            files = self._open()
            if self._known not in (None, files.fingerprint):
                raise stale(self._path, "it changed since another process opened it")
            self._known, self._files = files.fingerprint, files
        return files

    def _by_blocks(self, files: T | None) -> Self:
        """Return the same records, read by blocks out of these files."""
        twin = copy(self)
        twin._is_by_blocks, twin._files = True, files  # noqa: SLF001 (of this class)
        return twin

    @property
    def fingerprint(self) -> str:
        return self._known or self._opened().fingerprint

    @property
    def storage_options(self) -> StorageOptions:
        """The options with which its files are read."""
        return self._options

    def location(self, which: Any) -> Location:
        """Return where a record lies, or each of an array of them."""
        if np.ndim(which):
            return self._places(self._numbers(which))
        place = self._places(np.array([self._number(which)], np.int64))
        return Location(self.files[int(place.file[0])], int(place.offset[0]), int(place.bytes[0]))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_files": None}


class MappedFile(MappedText):
    """A plain file on this machine, whose index another tool wrote."""

    __slots__ = ()

    def _fail(self, end: int) -> NoReturn:
        size = self._map.size() if self._map is not None else 0
        raise stale(self._path, f"a record ends at byte {end:,}, and the file has {size:,}")


def open_plain(found: Found) -> FileText:
    """Open an uncompressed file: mapped, or by ranges where it is remote."""
    check_unchanged(found)
    if isinstance(found.store, LocalStore) and not is_network(found.entry.name):
        return MappedFile(found.entry.name, found.path)
    return RangedText(found.store.open(found.entry.name, found.entry))


def check_unchanged(found: Found) -> None:
    """Raise when a local file was written to; remote reads ask for the version that was found."""
    if isinstance(found.store, LocalStore):
        try:
            now = found.store.entry(found.entry.name)
        except ObjectNotFoundError:
            raise stale(found.path, "it is gone") from None
        if (now.size, now.modified) != (found.entry.size, found.entry.modified):
            sizes = f"{found.entry.size:,} bytes then, {now.size:,} now"
            raise stale(found.path, f"it was written to ({sizes})")


def stale(path: str, why: str) -> StaleIndexError:
    """Return the error about a file that changed under a source."""
    return StaleIndexError(
        f"{path} is not what it was when this source was opened: {why}. Open the source again.",
        path=path,
    )


class CachedRanges:
    """Parts of a file out of whole blocks, numbered from its beginning; any thread may read."""

    def __init__(self, found: Found, options: StorageOptions) -> None:
        self._found = found
        self._options = options
        self._blocks: RecentlyUsed[memoryview] = RecentlyUsed(_KEPT_BYTES)

    def read(self, offset: int, size: int) -> bytes:
        return self.read_many([offset], [size])[0]

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        begins = np.asarray(offsets, np.int64)
        ends = begins + np.asarray(sizes, np.int64)
        spans = [
            range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES))
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
        held = self._hold({number for span in spans for number in span})
        texts = []
        for span, begin, end in zip(spans, begins.tolist(), ends.tolist(), strict=True):
            parts = [held[n][max(0, begin - n * BLOCK_BYTES) : end - n * BLOCK_BYTES] for n in span]
            texts.append(b"".join(parts))
        return texts

    def _hold(self, numbers: Iterable[int]) -> dict[int, memoryview]:
        found = {number: self._blocks.get(number) for number in numbers}
        missing = [number for number, text in found.items() if text is None]
        brought = block_cache(self._options).get_all([self._block(n) for n in missing])
        for number, kept in zip(missing, brought, strict=True):
            text = found[number] = memoryview(kept.data)
            self._blocks.put(number, text, len(text) * (1 if kept.is_mapped else _MEMORY_WEIGHT))
        return {number: text for number, text in found.items() if text is not None}

    def _block(self, number: int) -> Block:
        start = number * BLOCK_BYTES
        stop = min(start + BLOCK_BYTES, self._found.entry.size)
        return block_of(self._found, start, stop, self._options)


def block_of(found: Found, start: int, stop: int, options: StorageOptions) -> Block:
    """Return bytes of a file as a block, which all processes of a host share."""

    def make() -> bytes:
        with found.open() as file:
            return file.read_at(start, stop - start)

    key = block_key(options, found.path, found.entry, "bytes", start, stop)
    return Block(found.path, start, stop, key, make)
