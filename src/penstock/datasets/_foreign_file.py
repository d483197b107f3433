"""Files of datasets that other tools wrote: read as they were when the source was opened."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np

from penstock._words import counted
from penstock.datasets._source import Source
from penstock.datasets.text._block_texts import BLOCK_BYTES, BlockText, plain_parts
from penstock.datasets.text._texts import MappedText, RangedText
from penstock.errors import ObjectNotFoundError, StaleIndexError
from penstock.storage import LocalStore, is_network

if TYPE_CHECKING:
    from penstock.datasets.text._texts import FileText
    from penstock.index import Found
    from penstock.storage import StorageOptions

_REOPEN = "Open the source again."


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
        return self._options

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_files": None}


def open_plain(found: Found) -> FileText:
    """Open an uncompressed file: mapped, or by ranges where it is remote."""
    check_unchanged(found)
    if isinstance(found.store, LocalStore) and not is_network(found.entry.name):
        return MappedText(found.entry.name, found.path, _REOPEN)
    return RangedText(found.store.open(found.entry.name, found.entry))


def check_unchanged(found: Found) -> None:
    """Raise when a local file was written to; remote reads ask for the version that was found."""
    if isinstance(found.store, LocalStore):
        try:
            now = found.store.entry(found.entry.name)
        except ObjectNotFoundError:
            raise stale(found.path, "it is gone") from None
        if (now.size, now.modified) != (found.entry.size, found.entry.modified):
            sizes = f"{counted(found.entry.size, 'byte')} then, {now.size:,} now"
            raise stale(found.path, f"it was written to ({sizes})")


def stale(path: str, why: str) -> StaleIndexError:
    """Return the error about a file that changed under a source."""
    return StaleIndexError(
        f"{path} is not what it was when this source was opened: {why}. {_REOPEN}",
        path=path,
    )


def open_blocks_of(found: Found, options: StorageOptions) -> BlockText:
    """Open a plain file by blocks of one size, numbered from its beginning."""
    starts = np.arange(0, found.entry.size, BLOCK_BYTES, dtype=np.int64)
    return BlockText(found, options, plain_parts(starts, found.entry.size))
