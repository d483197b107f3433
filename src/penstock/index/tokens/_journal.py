"""The journal of a builder of tokens: steps that others see are noted, so that they can be undone.

Token files and their index lie in several folders, so that no single rename publishes them. The
builder notes each step in its hidden folder. The index appears last: when it is there, all is.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.errors import CorruptFileError, CorruptIndexError, ObjectNotFoundError, StorageError
from penstock.index._fingerprint import digest
from penstock.index._names import BAD_LINES, META, PUT_ASIDE
from penstock.storage import (
    StorageOptions,
    cache_directory,
    fetch_metadata,
    hidden_of,
    is_below,
    is_remote,
    join,
    leads_through_link,
    locate,
    read_metadata,
)

_log = logging.getLogger("penstock.index")
JOURNAL = "journal.ndjson"
_OLD = re.compile(r"old-[0-9]+")
_SHOWN = 4


class PutAside(msgspec.Struct, frozen=True, tag="aside"):
    """A token file or the index that is replaced, moved into the builder's hidden folder."""

    path: str
    name: str
    """In the hidden folder."""


class MadeFolder(msgspec.Struct, frozen=True, tag="folder"):
    """A folder that was not there before."""

    path: str


class PutIn(msgspec.Struct, frozen=True, tag="in"):
    """A token file, noted before it appears: its inode sets it apart from others of its name."""

    path: str
    size: int
    inode: int
    modified: int
    """Nanoseconds."""


class Uploaded(msgspec.Struct, frozen=True, tag="object"):
    """A token object, noted after it appeared: before, nothing sets it apart from others."""

    path: str
    size: int
    version: str | None
    index: str | None
    """The folder of the index that will name it, where that is ours."""


class IndexIn(msgspec.Struct, frozen=True, tag="index"):
    """The index, which appears last."""

    folder: str
    meta: str
    """Of its `meta.json`."""


Entry = PutAside | MadeFolder | PutIn | Uploaded | IndexIn


@dataclass(frozen=True, slots=True)
class Reach:
    """What a builder of tokens may change. A journal that names anything else is forged."""

    index: str
    """The folder of the index."""
    bases: tuple[str, ...]
    """The folders below which token files lie."""
    options: StorageOptions = StorageOptions()  # noqa: RUF009 (a value that never changes)

    @property
    def local(self) -> set[str]:
        """The bases on this machine, without links."""
        return {os.path.realpath(base) for base in self.bases if not is_remote(base)}


def put_in(staged: Path, path: str) -> PutIn:
    """Return the note of a local file that is about to appear under another name."""
    status = staged.stat()
    return PutIn(path, status.st_size, status.st_ino, status.st_mtime_ns)


def note(folder: Path, entries: Sequence[Entry]) -> None:
    """Append notes to the journal; when this returns, they are on disk."""
    encoder = msgspec.json.Encoder()
    with (folder / JOURNAL).open("ab") as file:
        file.writelines(encoder.encode(entry) + b"\n" for entry in entries)
        file.flush()
        os.fsync(file.fileno())


def is_finished(folder: Path, reach: Reach) -> bool:
    """Whether all that a builder noted has appeared."""
    return any(
        isinstance(entry, IndexIn) and _meta_in(entry.folder, reach.options) == entry.meta
        for entry in _checked(folder, reach)
    )


def take_back(folder: Path, reach: Reach) -> list[str]:
    """Undo what a builder noted, as far as it was done, unless it was all done.

    Only the very files that it put there go away; what it had put aside is there again. Returns
    sentences about what could not be put back: that is kept, with the notes. The whole journal is
    checked before anything is undone; one that names what lies elsewhere raises.
    """
    kept: list[str] = []
    if not is_finished(folder, reach):
        for entry in reversed(_checked(folder, reach)):
            if not _is_ours(entry, reach):  # What is undone may put a link where there was nothing.
                kept.append(f"{folder / JOURNAL} leads through a link: {entry} is not undone.")
            elif isinstance(entry, PutIn):
                _remove_file(entry)
            elif isinstance(entry, Uploaded):
                _remove_object(entry, reach.options)
            elif isinstance(entry, MadeFolder):
                with suppress(OSError):  # Others lie there.
                    os.rmdir(entry.path)
            elif isinstance(entry, PutAside):
                kept += _put_back(folder / entry.name, entry.path)
    if not kept:
        (folder / JOURNAL).unlink(missing_ok=True)
    return kept


def journal_problem(folder: Path, options: StorageOptions) -> str | None:
    """Return why a dead builder's journal cannot be undone; None where it can."""
    try:
        _checked(folder, _reach_of(folder, options))
    except CorruptIndexError as why:
        return str(why)
    return None


def _reach_of(folder: Path, options: StorageOptions) -> Reach:
    """Return what the builder of a hidden folder may have changed.

    For a folder beside an index that is all that lies around the index. A builder of remote tokens
    works under the cache directory, in a folder named after the digest of the index's URL.
    """
    name = hidden_of(folder.name, "tmp") or ""
    if os.path.abspath(folder.parent) == os.path.abspath(cache_directory() / "indexes"):
        for entry in _entries(folder):
            index = getattr(entry, "folder", None) or getattr(entry, "index", None)
            if index is not None and is_remote(index) and digest(index) == name:
                return Reach(index, (os.path.dirname(index),), options)
    return Reach(str(folder.with_name(name)), (str(folder.parent),), options)


def _checked(folder: Path, reach: Reach) -> list[Entry]:
    """Return all notes, or raise for a journal that no builder of ours has written."""
    entries = _entries(folder)
    for entry in entries:
        if not _is_ours(entry, reach):
            raise _refused(folder, f"it names {entry}, which is no part of {reach.index}")
        name = entry.name if isinstance(entry, PutAside) else PUT_ASIDE
        if name != PUT_ASIDE and os.path.isdir(folder / name):
            raise _refused(folder, f"{name} is a folder, and no token file")
    return entries


def _is_within(path: str, reach: Reach) -> bool:
    """Whether a path lies below a base, however that is spelt, with no link on the way."""
    if is_remote(path):
        return any(is_below(base, path) for base in reach.bases)
    around = [str(part) for part in Path(path).parents if os.path.realpath(part) in reach.local]
    return any(
        is_below(part, path) and not leads_through_link(part, os.path.dirname(path))
        for part in around
    )


def _is_same(path: str, index: str) -> bool:
    """Whether a path is that of the index, however the folder around that is spelt."""
    if is_remote(index):
        return path == index
    (around, name), (parent, own) = os.path.split(path), os.path.split(index)
    return name == own and os.path.realpath(around) == os.path.realpath(parent)


def _is_ours(entry: Entry, reach: Reach) -> bool:
    path = entry.folder if isinstance(entry, IndexIn) else entry.path
    is_object = isinstance(entry, Uploaded)
    if "\0" in path or not (is_remote(path) or os.path.isabs(path)):
        return False
    if isinstance(entry, IndexIn) or (isinstance(entry, PutAside) and entry.name == PUT_ASIDE):
        return _is_same(path, reach.index)
    if isinstance(entry, MadeFolder):  # Above token files, where all of these were missing.
        around = f"{os.path.realpath(path)}/"
        return any(f"{base}/".startswith(around) for base in reach.local) or _is_within(path, reach)
    if isinstance(entry, PutAside) and not _OLD.fullmatch(entry.name):
        return False
    if isinstance(entry, Uploaded) and entry.index not in {None, reach.index}:
        return False
    is_token_file = path.endswith(".bin") or os.path.basename(path) == BAD_LINES
    return is_token_file and is_remote(path) == is_object and _is_within(path, reach)


def _refused(folder: Path, why: str) -> CorruptIndexError:
    return CorruptIndexError(
        f"{folder / JOURNAL} was not written by a builder of these tokens: {why}. Nothing is "
        f"undone, and the folder stays as it is. {_remedy(folder)}",
        path=str(folder),
    )


def _remedy(folder: Path) -> str:
    """Return what a user can do with a folder that is left alone, without losing data."""
    held = sorted(path.name for path in folder.glob("old-*"))
    if not held:
        return (
            "If a penstock tokenize was killed here, run the same command again; else remove the "
            f"folder: rm -r {shlex.quote(str(folder))}"
        )
    final = folder.with_name(hidden_of(folder.name, "tmp") or "index")
    shown = ", ".join(held[:_SHOWN]) + " …" * (len(held) > _SHOWN)
    return (
        f"{folder} holds {shown}, which may be the only copy of what a killed penstock tokenize "
        f"had put aside: move it back before you remove the folder. {PUT_ASIDE} lay in {final}; "
        f"of token files {JOURNAL} names the places."
    )


def _put_back(aside: Path, path: str) -> list[str]:
    """Move a file or folder that was put aside to its place; return why that failed, if it did."""
    why = "something else has its name by now"
    try:
        if not os.path.lexists(aside):
            return []
        if not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(aside, path)
            return []
    except OSError as failure:
        why = str(failure)
    said = f"{path} was put aside to be replaced and cannot be put back: {why}."
    return [f"{said} It is kept as {aside}; move one of the two elsewhere."]


def _entries(folder: Path) -> list[Entry]:
    decoder = msgspec.json.Decoder(Entry)
    try:
        # What no newline ends was being written when its builder was killed: not done yet, then.
        *lines, _ = read_metadata(folder / JOURNAL).split(b"\n")
        return [decoder.decode(line) for line in lines]
    except FileNotFoundError:
        return []
    except (CorruptFileError, ValueError, RecursionError) as why:
        raise _refused(folder, str(why).rstrip(".")) from None


def meta_digest(text: bytes) -> str:
    """Return the digest of a `meta.json` for the journal."""
    return digest(text.decode(errors="replace"))


def _meta_in(folder: str, options: StorageOptions) -> str | None:
    store, name = locate(folder, options)
    try:
        return meta_digest(fetch_metadata(store, join(name, META)))
    except ObjectNotFoundError:
        return None


def _remove_file(entry: PutIn) -> None:
    with suppress(FileNotFoundError):
        status = os.lstat(entry.path)
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


def take_back_dead(folder: Path, options: StorageOptions, reach: Reach | None = None) -> bool:
    """Undo what a dead builder noted; return whether its folder may be removed."""
    try:
        kept = take_back(folder, reach or _reach_of(folder, options))
    except (OSError, StorageError):
        return False  # What it put aside lies there yet.
    except CorruptIndexError as why:
        kept = [str(why)]
    for said in kept:
        _log.warning("%s", said)
    return not kept
