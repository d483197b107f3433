"""Facts of the files of a source, which show later whether they are still the same."""

# ruff: noqa: SLF001 (facts come from the source itself)

from __future__ import annotations

import os
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from penstock.datasets._views import origins_of
from penstock.index import digest
from penstock.storage import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.datasets._source import Source
    from penstock.index import FileMeta
    from penstock.storage import Entry

_GONE = -1


class FileFacts(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """A file as it was at some time."""

    path: str
    """As the index has it, or absolute."""
    size: int
    """Bytes; -1 where the file is gone, or another than the source was opened with."""
    modified: int
    """Nanoseconds since the epoch."""
    version: str | None = None
    """An ETag, where the file has one."""

    def has_become(self, now: FileFacts) -> bool:
        """Whether a file that was this may be that now, its first bytes unchanged.

        One that grew was appended to: whether it was, the index of the source says.

        >>> FileFacts("a", 9, 5).has_become(FileFacts("a", 9, 6))
        False
        """
        if now.size != self.size:
            return now.size > self.size >= 0
        if now.size == _GONE:
            return False
        if self.version is not None and now.version is not None:
            return self.version == now.version
        return self.modified == now.modified


def state_of(source: Source) -> str:
    """Return a text that changes whenever a file of a source, or of a view, is written to.

    Its fingerprint does not see what changed in the middle of a file of the same size. The same
    for all records in memory.
    """
    files = (origin._bare.file_facts() for origin in origins_of(source))
    return digest(as_lists(chain.from_iterable(files)))


def are_unchanged(before: Iterable[FileFacts], now: Iterable[FileFacts]) -> bool:
    """Whether all files of a source are what they were, or only longer; others may have come."""
    was, here = [*before], [*now]
    if was == here and _GONE not in map(attrgetter("size"), here):
        return True
    known = {file.path: file for file in here}
    # A column without files is one of a source without files.
    return bool(was) == bool(known) and all(
        file.path in known and file.has_become(known[file.path]) for file in was
    )


def as_lists(files: Iterable[FileFacts]) -> list[tuple[object, ...]]:
    """Return the facts as plain values, for a key."""
    return [*map(msgspec.structs.astuple, files)]


def looked_at(path: str, name: str) -> FileFacts:
    """Return the state of a local file; `name` is its path in the index."""
    try:
        found = os.stat(path)
    except OSError:
        return FileFacts(name, _GONE, 0)
    return FileFacts(name, found.st_size, found.st_mtime_ns)


def noted(name: str, file: FileMeta | Entry) -> FileFacts:
    """Return the state of a file as an index or a listing notes it."""
    return FileFacts(name, file.size, round(file.modified * 1e9), file.version)


def listed_facts(path: str, entry: Entry) -> FileFacts:
    """Return the state of a file that was opened when a listing found it so."""
    if is_remote(path):
        return noted(path, entry)
    with suppress(OSError):
        found = os.stat(path)
        # Its footer, and columns of it, are kept since it was opened.
        if (found.st_size, found.st_mtime) == (entry.size, entry.modified):
            return FileFacts(path, found.st_size, found.st_mtime_ns)
    return FileFacts(path, _GONE, 0)
