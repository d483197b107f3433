"""Files on this machine's file systems."""

from __future__ import annotations

import heapq
import logging
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from penstock._words import warn_once
from penstock.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
    TruncatedFileError,
)
from penstock.storage._coalesce import read_coalesced
from penstock.storage._drafts import LocalDraft, clear_dead_drafts
from penstock.storage._local_errors import LEADS_NOWHERE, translated
from penstock.storage._network import is_network
from penstock.storage._store import Entry, OpenFile, Store

_log = logging.getLogger("penstock.storage")


@dataclass(frozen=True, slots=True)
class LocalStore:
    """The local file systems; names are absolute paths."""

    def path(self, name: str) -> str:
        return name

    def list(
        self,
        directory: str,
        *,
        recursive: bool = False,
        skip: Callable[[str], bool] | None = None,
    ) -> Iterator[Entry]:
        """Yield the files in a directory, hidden ones too.

        A link that leads nowhere is among them, without bytes: to read it is an error. Links to
        directories are followed, and each directory is entered once, by the way with the fewest
        links and then by the first name. Folders whose name `skip` is true of are not entered.
        """
        waiting = [(0, directory)]
        entered: set[tuple[int, int]] = set()
        while waiting:
            links, folder = heapq.heappop(waiting)
            with translated(folder, "list"):
                try:
                    status = os.stat(folder)
                    if (here := (status.st_dev, status.st_ino)) in entered:
                        tell_of_loop(folder)
                        continue
                    found = os.scandir(folder)
                except NotADirectoryError:
                    message = f"{directory} is a file, not a directory (JsonlFile reads one file)."
                    raise ObjectNotFoundError(message, path=directory) from None
                except FileNotFoundError:
                    if folder == directory:
                        raise
                    continue  # Removed since its parent was read.
                entered.add(here)
                with found:
                    for item in found:
                        entry = listed(item.path)
                        if entry is not None:
                            yield entry
                        elif not recursive or not item.is_dir():
                            continue
                        elif skip is None or not skip(item.name):
                            heapq.heappush(waiting, (links + item.is_symlink(), item.path))

    def entry(self, name: str) -> Entry:
        with translated(name, "read"):
            status = os.stat(name)
        if stat.S_ISDIR(status.st_mode):
            raise ObjectNotFoundError(f"{name} is a directory, not a file.", path=name)
        return _entry(name, status)

    def open(self, name: str, known: Entry | None = None) -> _LocalFile:
        """Open a file for reading; all reads see this file, even when it is replaced."""
        del known  # A stat of the open descriptor costs nothing and cannot be stale.
        with translated(name, "read"):
            return _LocalFile(name)

    def draft(self, directory: str, label: str) -> LocalDraft:
        return LocalDraft(directory, label)

    def clear_dead_drafts(self, directory: str) -> Sequence[Entry]:
        return clear_dead_drafts(directory)

    def delete(self, name: str) -> None:
        with translated(name, "delete"):
            os.unlink(name)


class _LocalFile:
    """A file read by position."""

    def __init__(self, path: str) -> None:
        self.path = path
        # A plain open of a named pipe would wait for a writer.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(self._descriptor)
        self.size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise _no_file(path, "read")

    def read_at(self, start: int, length: int) -> bytes:
        with translated(self.path, "read"):
            data = os.pread(self._descriptor, length, start)
            while len(data) < length:  # One call gives at most 2 GiB, and less on some systems.
                more = os.pread(self._descriptor, length - len(data), start + len(data))
                if not more:
                    at = start + len(data)
                    if os.fstat(self._descriptor).st_size >= self.size:
                        message = f"{self.path} has {self.size:,} bytes, and none at byte {at:,}."
                        raise TruncatedFileError(message, path=self.path)
                    message = (
                        f"{self.path} shrank while it was being read: {self.size:,} bytes when "
                        f"opened, nothing now at byte {at:,}."
                    )
                    raise ObjectChangedError(message, path=self.path)
                data += more
            return data

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return read_coalesced(self.read_at, ranges)

    @cached_property
    def map(self) -> mmap.mmap:
        with translated(self.path, "read"):
            return mmap.mmap(self._descriptor, self.size, access=mmap.ACCESS_READ)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # After a failed __init__ there is no descriptor; at the end of a program there is no `os`.
        if (descriptor := getattr(self, "_descriptor", -1)) >= 0:
            close(descriptor)


def map_of(file: OpenFile) -> mmap.mmap | None:
    """Return a map of a local file, which it keeps; None for other files and empty ones.

    To touch a page behind the end of a file that shrank ends the process: ask before for its size.
    """
    if not isinstance(file, _LocalFile) or not file.size or is_network(file.path):
        return None
    return file.map


def refuse_special_file(store: Store, name: str) -> None:
    """Raise where publishing under a name would replace a directory, a device or a pipe."""
    if isinstance(store, LocalStore) and os.path.lexists(name) and not os.path.isfile(name):
        raise _no_file(name, "write")


def _no_file(path: str, verb: str) -> StorageError:
    kind = "a directory" if os.path.isdir(path) else "not a regular file"
    return StorageError(f"cannot {verb} {path}: it is {kind}. Give the path of a file.", path=path)


def local_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a path on this machine; `~` and `~user` are home directories."""
    return os.path.abspath(os.path.expanduser(path))


def tell_of_loop(folder: str) -> None:
    """Warn, once a process, of a link back to a folder on the way to it: it is not followed."""
    real = os.path.realpath(folder)
    if any(os.path.realpath(one) == real for one in Path(folder).parents):
        warn_once(_log, f"{folder} is a link that leads back to {real}; it is not followed")


def listed(path: str) -> Entry | None:
    """Return the entry of a file; None for a directory, and for a file that is gone by now."""
    try:
        status = os.stat(path)
    except OSError as failure:
        with translated(path, "read"):
            if failure.errno not in LEADS_NOWHERE:
                raise
            try:
                status = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
        if stat.S_ISLNK(status.st_mode):
            return Entry(path, 0, status.st_mtime)
    return None if stat.S_ISDIR(status.st_mode) else _entry(path, status)


def _entry(path: str, status: os.stat_result) -> Entry:
    identity = (status.st_dev, status.st_ino)
    return Entry(path, status.st_size, status.st_mtime, identity=identity)
