"""What a builder of tokens puts where others see it, noted first: so it can be taken back."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ObjectNotFoundError, StorageError
from penstock.index._fingerprint import digest
from penstock.index._names import META
from penstock.storage import join, locate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.storage import StorageOptions

_log = logging.getLogger("penstock.index")
JOURNAL = "journal.ndjson"


class PutAside(msgspec.Struct, frozen=True, tag="aside"):
    """Something of the tokens that are replaced, moved into the builder's own folder."""

    path: str
    name: str
    """There."""


class MadeFolder(msgspec.Struct, frozen=True, tag="folder"):
    """A folder that was not there before."""

    path: str


class PutIn(msgspec.Struct, frozen=True, tag="in"):
    """A file of tokens that appears, noted before: its inode tells it from others of its name."""

    path: str
    size: int
    inode: int
    modified: int
    """Nanoseconds."""


class Uploaded(msgspec.Struct, frozen=True, tag="object"):
    """An object of tokens that appeared, noted behind: before, nothing tells it from others."""

    path: str
    size: int
    version: str | None
    index: str | None
    """The folder of the index that will name it, where that is ours."""


class IndexIn(msgspec.Struct, frozen=True, tag="index"):
    """The index that appears last: when it is there, everything is."""

    folder: str
    meta: str
    """Of its `meta.json`."""


Entry = PutAside | MadeFolder | PutIn | Uploaded | IndexIn


def put_in(staged: Path, path: str) -> PutIn:
    """Return what is noted of a local file before it appears under another name."""
    status = staged.stat()
    return PutIn(path, status.st_size, status.st_ino, status.st_mtime_ns)


def note(folder: Path, entries: Sequence[Entry]) -> None:
    """Write something down; when this returns, it is on disk."""
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


def take_back(folder: Path, options: StorageOptions) -> list[str]:
    """Undo what a builder noted, as far as it was done, unless it was all done.

    Only the very files that it put there go away; what it had put aside is there again. Returns
    sentences about what could not be put back: that is kept, with the notes.
    """
    entries = _entries(folder)
    kept: list[str] = []
    if not is_finished(folder, options):
        for entry in reversed(entries):
            if isinstance(entry, PutIn):
                _remove_file(entry)
            elif isinstance(entry, Uploaded):
                _remove_object(entry, options)
            elif isinstance(entry, MadeFolder):
                with suppress(OSError):  # Others lie there.
                    os.rmdir(entry.path)
            elif isinstance(entry, PutAside):
                kept += _put_back(folder / entry.name, entry.path)
    if not kept:
        (folder / JOURNAL).unlink(missing_ok=True)
    return kept


def _put_back(aside: Path, path: str) -> list[str]:
    """Give what was put aside its place again; return what is to be said where that fails."""
    if not os.path.lexists(aside):
        return []
    try:
        if not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(aside, path)
            return []
        why = "something else has its name by now"
    except OSError as failure:
        why = str(failure)
    said = f"{path} was put aside to be replaced and cannot be put back: {why}."
    return [f"{said} It is kept as {aside}; move one of the two elsewhere."]


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


def _remove_file(entry: PutIn) -> None:
    with suppress(FileNotFoundError):
        status = os.stat(entry.path)
        found = (status.st_size, status.st_ino, status.st_mtime_ns)
        if found == (entry.size, entry.inode, entry.modified):
            os.unlink(entry.path)


def _remove_object(entry: Uploaded, options: StorageOptions) -> None:
    if entry.index is not None and _meta_in(entry.index, options) is not None:
        return  # Not ours, or all would be done: it may be what names this object.
    store, name = locate(entry.path, options)
    with suppress(ObjectNotFoundError):
        found = store.entry(name)
        if (found.size, found.version) == (entry.size, entry.version):
            store.delete(name)


def take_back_dead(folder: Path, options: StorageOptions) -> bool:
    """Undo what a dead builder noted; return whether its folder may be removed."""
    try:
        kept = take_back(folder, options)
    except (OSError, StorageError):
        return False  # What it put aside lies there yet.
    for said in kept:
        _log.warning("%s", said)
    return not kept
