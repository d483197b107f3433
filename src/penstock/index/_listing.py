"""The files of a source, in the order of their records, and where their index lies."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from natsort import natsorted, ns

from penstock.errors import ObjectNotFoundError, OptionError
from penstock.index._fingerprint import digest
from penstock.index._formats import format_by_name
from penstock.index._lakes import is_log
from penstock.index._names import TOKEN_FOLDER
from penstock.index._saved import leave_out_unsaved
from penstock.index._splits import files_of_split
from penstock.storage import (
    LocalStore,
    StorageOptions,
    cache_directory,
    carried,
    is_pattern,
    is_read_only,
    is_remote,
    join,
    locate,
    match,
    without_query,
)

if TYPE_CHECKING:
    from penstock.index._scan import Scanner
    from penstock.storage import Entry, OpenFile, Store

INDEX_FOLDER = "index"

_AT_ONCE = 16
_APART = frozenset({INDEX_FOLDER, TOKEN_FOLDER})
What = str | os.PathLike[str]


class Found(NamedTuple):
    """A file, and what a listing says of it."""

    store: Store
    entry: Entry

    @property
    def path(self) -> str:
        """The path or URL under which a user knows it."""
        return self.store.path(self.entry.name)

    def open(self) -> closing[OpenFile]:
        """Open it as it was listed, for a `with` block."""
        return closing(self.store.open(self.entry.name, self.entry))


@dataclass(frozen=True)
class Listing:
    """The files that a user named, found by one listing a folder."""

    named: tuple[str, ...]
    """What the user named, absolute: paths, URLs or patterns."""
    folder: str | None
    """The folder, if it is one folder that was named."""
    base: str
    """What relative paths are relative to."""
    files: list[Found]
    is_pattern: bool = False
    """Whether a pattern chose the files, so that what is no data among them was not meant."""
    top: frozenset[str] = frozenset()
    """The names of files in the folder itself, and of folders there that hold no data: an index,
    token files."""
    split: str | None = None
    """The split that was asked for, where names of files say which one they are of."""
    left_out: Sequence[Found] = ()
    """Files with the ending of data that are none, by what lies beside them."""
    logs: Sequence[str] = ()
    """Names of remote files below the folder that are logs of lake tables; see `_lakes.py`."""

    @cached_property
    def is_remote(self) -> bool:
        return is_remote(self.base)

    @cached_property
    def bytes(self) -> int:
        """Bytes of all files, as they are stored."""
        return sum(found.entry.size for found in self.files)

    def relative(self, found: Found) -> str:
        """Return a file's path below the base."""
        path, below = found.path, self.base.rstrip("/") + "/"
        if not path.startswith(below):
            raise OptionError(f"{path} does not lie below {self.base}.")
        return path.removeprefix(below)


def list_files(
    what: What | Sequence[What],
    suffixes: tuple[str, ...] = (),
    options: StorageOptions | None = None,
    split: str | None = None,
) -> Listing:
    """Return the files of a path, a folder (and all below it), a pattern, or a list of those.

    In a folder or behind a pattern only names with one of `suffixes` count, in natural order
    without regard to case; a file that is named itself is always taken. With `split`, of all these
    only the files of that split.
    """
    if isinstance(what, str | os.PathLike):
        return _of_split(_list_path(what, suffixes, options), split)
    return joined(list_each(what, suffixes, options), split)


def list_each(
    paths: Sequence[What],
    suffixes: tuple[str, ...],
    options: StorageOptions | None,
) -> list[Listing]:
    """Return the files of each path, for `joined`; remote ones are asked for side by side."""
    look = partial(_list_path, suffixes=suffixes, options=options)
    if len(paths) <= 1 or not any(map(is_remote, paths)):
        return [*map(look, paths)]
    with ThreadPoolExecutor(_AT_ONCE, "penstock-list") as pool:
        return [*pool.map(carried(look), paths)]


def _list_path(what: What, suffixes: tuple[str, ...], options: StorageOptions | None) -> Listing:
    listing = _listed(os.fspath(what), options)
    if suffixes and (listing.folder is not None or listing.is_pattern):
        files = [found for found in listing.files if found.entry.name.lower().endswith(suffixes)]
        listing = replace(listing, files=files)
    if listing.is_pattern and not listing.files:
        kinds = f" with a name in {', '.join(suffixes)}" if suffixes else " that is data"
        raise ObjectNotFoundError(f"no file{kinds} matches {what}.", path=os.fspath(what))
    return listing


def _of_split(listing: Listing, split: str | None) -> Listing:
    if split is None:
        return listing
    # As behind a pattern, other files are not meant, and the index is not that of the folder.
    files = files_of_split(listing, split)
    return replace(listing, files=files, folder=None, is_pattern=True, split=split)


def list_again(
    listing: Listing, endings: Sequence[tuple[str, ...]], options: StorageOptions
) -> Listing:
    """Return the same files as they are now, without those that are gone and with new ones.

    The first of `endings` that all names have chooses among the files of a folder or a pattern.
    """
    named = frozenset(listing.named)
    below = [found.entry.name for found in listing.files if found.path not in named]
    names = [without_query(name).lower() for name in below]
    fitting = (ends for ends in endings if all(name.endswith(ends) for name in names))
    chosen = next(fitting, ())  # Else the first bytes said what they are.
    now = list_files(listing.named, chosen, options, listing.split)
    return replace(listing, files=now.files, left_out=now.left_out)


def joined(parts: Sequence[Listing], split: str | None = None) -> Listing:
    """Return the files of several listings, in their order, each once."""
    if not parts:
        raise OptionError("an empty list of paths names no data.")
    files = [found for part in parts for found in part.files]
    counts = Counter(found.path for found in files)
    if len(counts) < len(files):
        twice = counts.most_common(1)[0][0]
        raise OptionError(f"{twice} is named more than once; each file is read once.")
    if len({found.store for found in files}) > 1:
        raise OptionError("a list of paths must be all local, in one bucket or on one server.")
    named = tuple(named for part in parts for named in part.named)
    around = os.path.commonprefix([part.base.split("/") for part in parts])  # noqa: RUF071 (parts)
    base = "/".join(around) or "/"
    left_out = [found for part in parts for found in part.left_out]
    logs = [log for part in parts for log in part.logs]
    listing = Listing(named, None, base, files, left_out=left_out, logs=logs)
    return _of_split(listing, split)


def _listed(path: str, options: StorageOptions | None) -> Listing:
    store, name = locate(path, options)
    if is_pattern(path):
        # What stands before the first wildcard: matches may come and go, it does not change.
        root = re.split(r"[*?[]", name, maxsplit=1)[0].rpartition("/")[0]
        found = match(path, options)[1]
        entries = [e for e in found if _is_data(e.name.removeprefix(root).lstrip("/"))]
        files, left_out = _of_saved(_in_order(store, entries), is_folder=False)
        base = folder_path(store, root)
        return Listing((store.path(name),), None, base, files, is_pattern=True, left_out=left_out)
    if isinstance(store, LocalStore):
        ways = [_folder if os.path.isdir(name) else _file]
    elif format_by_name(name) is not None:
        ways = [_file, _folder]
    else:
        ways = [_folder, _file] if name else [_folder]  # A bucket is no file.
    try:
        return ways[0](store, name)
    except ObjectNotFoundError as missing:
        try:
            return ways[-1](store, name)
        except ObjectNotFoundError:
            raise missing from None


def _folder(store: Store, name: str) -> Listing:
    begin = len(name) + (not name.endswith("/") and bool(name))
    below, top, logs = [], set(), list[str]()
    entries: Iterable[Entry]
    if isinstance(store, LocalStore):
        entries = store.list(name, recursive=True, skip=_is_apart)
        top = {one for one in _APART if os.path.isdir(f"{name}/{one}")}
    else:
        entries = [*store.list(name, recursive=True)]
        logs = [entry.name for entry in entries if is_log(entry.name)]
    for entry in entries:  # Of which there may be millions.
        relative = entry.name[begin:].lstrip("/")
        first, slash, _ = relative.partition("/")
        if not slash or first in _APART:
            top.add(first)
        if _is_data(relative):
            below.append(entry)
    path = folder_path(store, name)
    files, left_out = _of_saved(_in_order(store, below), is_folder=True)
    return Listing((path,), path, path, files, top=frozenset(top), left_out=left_out, logs=logs)


def _of_saved(files: list[Found], *, is_folder: bool) -> tuple[list[Found], list[Found]]:
    """Return the files without those that a saved dataset does not name, and these."""
    left_out = leave_out_unsaved(files, is_folder=is_folder)
    paths = {found.entry.name for found in left_out}
    return [found for found in files if found.entry.name not in paths] if paths else files, left_out


def _file(store: Store, name: str) -> Listing:
    file = Found(store, store.entry(name))
    return Listing((file.path,), None, folder_path(store, name.rpartition("/")[0]), [file])


def _is_data(relative: str) -> bool:
    """Whether a file below a folder may be data: nothing hidden, set apart or made by us."""
    if relative[:1] in "._" or "/." in relative or "/_" in relative or "//" in relative:
        return False
    return "/" not in relative or _APART.isdisjoint(relative.split("/")[:-1])


def _is_apart(folder: str) -> bool:
    return folder[:1] in "._" or folder in _APART


def _in_order(store: Store, entries: list[Entry]) -> list[Found]:
    ordered = natsorted(entries, key=attrgetter("name"), alg=ns.IGNORECASE)
    return [Found(store, entry) for entry in ordered]


def folder_path(store: Store, name: str) -> str:
    return store.path(name).rstrip("/") or "/"


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """The folder of an index, local or remote."""

    folder: str
    base: str
    """The folder that its paths are relative to."""
    options: StorageOptions
    beside: bool
    """Whether it lies in the folder that it describes, so that `meta.json` needs no base."""

    @property
    def is_remote(self) -> bool:
        return is_remote(self.folder)


def place_of(
    listing: Listing,
    scanner: Scanner,
    options: StorageOptions,
    chosen: str | os.PathLike[str] | None = None,
    *,
    beside_remote: bool = False,
) -> IndexPlace:
    """Return where the index of these files lies, or would lie.

    A writable folder holds its own index; others are in the cache directory, under a hash of the
    names that the user gave. With `beside_remote` remote data that may be written to holds its own,
    too. `chosen` overrides all that.
    """
    if chosen is not None:
        store, name = locate(chosen, options)
        folder = store.path(name)
        beside = folder == join(listing.base, INDEX_FOLDER)
        return IndexPlace(folder, listing.base, options, beside)
    if listing.folder is not None:
        own = place_beside(listing.folder, options)
        if listing.is_remote:
            is_own = beside_remote and not is_read_only(listing.folder)
        else:  # Read-only data may come with its index.
            is_own = os.access(listing.folder, os.W_OK | os.X_OK) or os.path.isdir(own.folder)
        if is_own:
            return own
    return cached_place(listing, scanner, options)


def place_beside(folder: str, options: StorageOptions) -> IndexPlace:
    """Return where a folder, local or remote, has the index of its files."""
    return IndexPlace(join(folder, INDEX_FOLDER), folder, options, beside=True)


def cached_place(listing: Listing, scanner: Scanner, options: StorageOptions) -> IndexPlace:
    """Return where the index of these files lies if it is in the cache directory."""
    own = [] if listing.split is None else [listing.split]
    key = digest([scanner.kind, scanner.options(), listing.named, *own])
    folder = str(cache_directory() / "indexes" / key)
    return IndexPlace(folder, listing.base, options, beside=False)
