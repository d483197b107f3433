"""The contract between Penstock and a place where bytes lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from penstock.errors import ObjectNotFoundError
from penstock.storage._coalesce import read_coalesced


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or object of a listing."""

    name: str
    """Its name in the store."""
    size: int
    """Bytes."""
    modified: float
    """Seconds since the epoch; 0 where the store does not say."""
    version: str | None = None
    """Changes whenever the content does (an ETag), where the store has such a thing."""
    identity: tuple[int, int] | None = field(default=None, compare=False)
    """Equal for two names of one local file: its device and inode."""


def is_same_version(one: Entry, other: Entry) -> bool:
    """Whether two looks at a file saw the same content, as far as they tell."""
    if one.size != other.size:
        return False
    if one.version and other.version:
        # A weak ETag is of the same content, too.
        return one.version.removeprefix("W/") == other.version.removeprefix("W/")
    return one.modified == other.modified or not (one.modified and other.modified)


class OpenFile(Protocol):
    """One version of one file, open for positional reads.

    Reads never move an offset, so threads may share it; it is not pickled and not used after
    a fork. All reads see the version that was opened, or raise `ObjectChangedError`.
    """

    path: str
    size: int

    def read_at(self, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start`; both must lie inside the file."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each `(start, length)`, in the order asked, in few requests."""
        return read_coalesced(self.read_at, ranges)

    def close(self) -> None:
        """Let go of what is open; by default nothing is."""
        return


class Draft(Protocol):
    """Bytes on their way: invisible to every reader until published, gone if not.

    Used by one thread at a time, in the process that made it.
    """

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""

    def publish(self, name: str, *, exclusive: bool) -> None:
        """Make everything written visible under `name`, durably and at once.

        With `exclusive` a taken name raises `ObjectExistsError` and the draft may be published
        under another one; else it replaces what is there.
        """

    def discard(self) -> None:
        """Leave nothing behind; does nothing after `publish`."""


class Store(Protocol):
    """A place where bytes lie: a file system or a bucket.

    A store is a small picklable value without anything open. It is used by any number of threads
    and processes; after a fork a used object store refuses with `UnsafeForkError`.
    """

    def path(self, name: str) -> str:
        """Return the path or URL under which a user knows `name`."""

    def list(self, directory: str, *, recursive: bool = False) -> Iterator[Entry]:
        """Yield the files in a directory, in no particular order, hidden ones too.

        Raises `ObjectNotFoundError` when there is no such directory.
        """

    def entry(self, name: str) -> Entry:
        """Return what a listing would say of one file, or raise `ObjectNotFoundError`."""

    def open(self, name: str, known: Entry | None = None) -> OpenFile:
        """Open a file for reading; `known` (from a listing) saves asking for it again."""

    def draft(self, directory: str, label: str) -> Draft:
        """Begin to write what will be published in `directory`; `label` names leftovers."""

    def clear_dead_drafts(self, directory: str) -> Sequence[Entry]:
        """Remove what killed writers left in a directory; return what was removed."""

    def delete(self, name: str) -> None:
        """Remove a file, or raise `ObjectNotFoundError`."""


def entry_at(store: Store, name: str) -> Entry | None:
    """Return what a listing would say of one file; None where there is none."""
    with suppress(ObjectNotFoundError):
        return store.entry(name)
    return None
