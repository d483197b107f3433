"""What a builder of tokens puts where others see it, noted first: so it can be taken back."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ObjectNotFoundError, StorageError
from penstock.index._fingerprint import digest
from penstock.index._names import META
from penstock.storage import LocalStore, join, locate

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.storage import StorageOptions

JOURNAL = "journal.ndjson"


class PutAside(msgspec.Struct, frozen=True, tag="aside"):
    """Something of the tokens that are replaced, moved into the builder's own folder."""

    path: str
    name: str
    """There."""


class PutIn(msgspec.Struct, frozen=True, tag="in"):
    """A file of tokens that appears."""

    path: str
    size: int
    inode: int = 0
    modified: int = 0
    """Nanoseconds; of an object only its size is known beforehand."""


class NotIn(msgspec.Struct, frozen=True, tag="not"):
    """A file that did not appear after all: another one of its name did."""

    path: str


class IndexIn(msgspec.Struct, frozen=True, tag="index"):
    """The index that appears last: when it is there, everything is."""

    folder: str
    meta: str
    """Of its `meta.json`."""


Entry = PutAside | PutIn | NotIn | IndexIn


def put_in(staged: Path, path: str) -> PutIn:
    """Return what is noted of a local file before it appears under another name."""
    status = staged.stat()
    return PutIn(path, status.st_size, status.st_ino, status.st_mtime_ns)


def note(folder: Path, entries: list[Entry]) -> None:
    """Write down what will be done; when this returns, it is on disk."""
    encoder = msgspec.json.Encoder()
    with (folder / JOURNAL).open("ab") as file:
        file.writelines(encoder.encode(entry) + b"\n" for entry in entries)
        file.flush()
        os.fsync(file.fileno())


def is_finished(folder: Path, options: StorageOptions) -> bool:
    """Whether everything that a builder noted has appeared."""
    return any(
        isinstance(entry, IndexIn) and _meta_in(entry.folder, options) == entry.meta
        for entry in _entries(folder)
    )


def take_back(folder: Path, options: StorageOptions) -> None:
    """Undo what a builder noted, as far as it was done, unless it was all done.

    Only the very files that it put there go away; what it had put aside is there again.
    """
    entries = _entries(folder)
    if not is_finished(folder, options):
        others = {entry.path for entry in entries if isinstance(entry, NotIn)}
        for entry in entries:
            if isinstance(entry, PutIn) and entry.path not in others:
                _remove(entry, options)
        for entry in reversed(entries):
            if isinstance(entry, PutAside) and not os.path.lexists(entry.path):
                with suppress(FileNotFoundError):
                    os.makedirs(os.path.dirname(entry.path), exist_ok=True)
                    os.rename(folder / entry.name, entry.path)
    (folder / JOURNAL).unlink(missing_ok=True)


def _entries(folder: Path) -> list[Entry]:
    decoder = msgspec.json.Decoder(Entry)
    entries: list[Entry] = []
    with suppress(FileNotFoundError):
        for line in (folder / JOURNAL).read_bytes().splitlines():
            with suppress(msgspec.DecodeError):  # Killed while it wrote: not done yet, then.
                entries.append(decoder.decode(line))
    return entries


def meta_digest(text: bytes) -> str:
    """Return what is noted of a `meta.json`."""
    return digest(text.decode())


def _meta_in(folder: str, options: StorageOptions) -> str | None:
    store, name = locate(folder, options)
    try:
        file = store.open(join(name, META))
    except ObjectNotFoundError:
        return None
    try:
        return meta_digest(file.read_at(0, file.size))
    finally:
        file.close()


def _remove(entry: PutIn, options: StorageOptions) -> None:
    store, name = locate(entry.path, options)
    if not isinstance(store, LocalStore):
        with suppress(ObjectNotFoundError):
            if store.entry(name).size == entry.size:
                store.delete(name)
        return
    with suppress(FileNotFoundError):
        status = os.stat(name)
        found = (status.st_size, status.st_ino, status.st_mtime_ns)
        if found == (entry.size, entry.inode, entry.modified):
            os.unlink(name)
    with suppress(OSError):  # Unless others lie there.
        os.removedirs(os.path.dirname(name))


def take_back_dead(folder: Path, options: StorageOptions) -> bool:
    """Undo what a dead builder noted; return whether its folder may be removed."""
    try:
        take_back(folder, options)
    except (OSError, StorageError):
        return False  # What it put aside lies there yet.
    return True
