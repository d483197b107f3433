"""The index of some files: where it lies, built on purpose, loaded, refused."""

from __future__ import annotations

import logging
import os
import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock._words import counted
from penstock.errors import (
    CorruptIndexError,
    IndexExistsError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
)
from penstock.index._build import BuildOptions, Mode, build_index, has_additions
from penstock.index._fingerprint import digest
from penstock.index._folder import (
    appears,
    bring_back,
    clear_dead_folders,
    only_builder,
    work_place,
)
from penstock.index._listing import IndexPlace, Listing, place_of
from penstock.index._load import kind_in, load_index
from penstock.index._names import FILES, META, rebuilding
from penstock.index._stale import changes, listing_of, refuse_stale
from penstock.storage import (
    HiddenFolder,
    StorageOptions,
    cache_directory,
    entry_at,
    fetch_files,
    is_plain_name,
    join,
    locate,
    publish_folder,
    refuse_read_only,
    trim_cache,
)

if TYPE_CHECKING:
    from penstock.index._meta import Meta
    from penstock.index._sample_index import SampleIndex
    from penstock.index._scan import Scanner

_log = logging.getLogger("penstock.index")
LARGEST_UNASKED = 10_000_000_000
"""Bytes of remote data that are indexed without being asked to."""


def make_index(  # noqa: PLR0913 (options, given by name)
    listing: Listing,
    scanner: Scanner,
    mode: Mode,
    *,
    options: StorageOptions | None = None,
    index: str | os.PathLike[str] | None = None,
    build: BuildOptions | None = None,
) -> Meta:
    """Build an index that a caller asks for; that of remote data goes beside it, if it can."""
    options = StorageOptions() if options is None else options
    place = place_of(listing, scanner, options, index, beside_remote=True)
    refuse_read_only(place.folder)
    build = build or BuildOptions()
    build.check()
    _refuse_no_files(listing)
    with only_builder(place.folder):
        bring_back(place)
        if not exists(place):
            refuse_other_folder(place)
            return build_index(listing, scanner, place, build)
        if mode == "new":
            raise IndexExistsError(
                f"there is an index in {place.folder} already. overwrite=True (--overwrite) builds "
                "it anew, update=True (--update) adds what is new."
            )
        refuse_other_kind(place, scanner.kind, unknown=scanner.kind)
        if mode == "overwrite":
            return build_index(listing, scanner, place, build, replacing=True)
        old = load_place(place)
        if old.meta is None:
            raise IndexExistsError(
                f"{place.folder} was made by another tool and cannot be updated, only built anew: "
                "--overwrite"
            )
        check_kind(old.meta, scanner, place.folder)
        build = build.on_top_of(old.meta, place.folder)
        if not has_additions(listing, old.meta, place.folder):
            clear_dead_folders(work_place(place))
            return old.meta
        return build_index(listing, scanner, place, build, old)


def load_beside(base: str, folder: str, options: StorageOptions) -> SampleIndex:
    """Return the index that lies beside remote data, checked against one listing."""
    place = IndexPlace(join(base, folder), base, options, beside=True)
    index = load_place(place)
    if index.meta is not None:
        listing = listing_of(index.meta, base, options)
        command = repairing(listing, place, None, index.meta)
        refuse_stale(changes(listing, index.meta), index.meta, command)
    return index


def exists(place: IndexPlace) -> bool:
    """Whether there is an index; waits where one is just being replaced."""
    if place.is_remote:
        return entry_at(*locate(join(place.folder, META), place.options)) is not None
    names = (f"{place.folder}/{FILES}", f"{place.folder}/{META}")
    return appears(place.folder, lambda: any(map(os.path.exists, names)))


def load_place(place: IndexPlace) -> SampleIndex:
    """Return the index in a place, fetched first where that is remote."""
    return load_index(replace(place, folder=local_folder(place)))


def local_folder(place: IndexPlace) -> str:
    """Return the folder of an index on this machine, fetched where it is remote: once a version."""
    if not place.is_remote:
        return place.folder
    store, name = locate(place.folder, place.options)
    entries = {e.name.rpartition("/")[2]: e for e in store.list(name)}
    entries = {name: entry for name, entry in entries.items() if is_plain_name(name)}
    if META not in entries:
        message = f"there is no index in {place.folder}. Build it: penstock index {place.base}"
        raise ObjectNotFoundError(message, path=place.folder)
    meta = entries[META]
    key = digest([place.folder, meta.version, meta.modified, meta.size])
    final = cache_directory() / "fetched-indexes" / key
    with only_builder(str(final)):
        if not final.exists():
            final.parent.mkdir(parents=True, exist_ok=True)
            # A machine that shares the cache may be quicker.
            with HiddenFolder(final, key=key) as hidden, suppress(ObjectExistsError):
                fetch_files(store, entries, hidden.path)
                publish_folder(hidden.path, final, replace=False)
            trim_cache(final)
    return str(final)


def _refuse_no_files(listing: Listing) -> None:
    if not listing.files:
        raise ObjectNotFoundError(
            f"{shown(listing)} holds no files that can be read as records.", path=listing.base
        )


def refuse_unasked(listing: Listing, to_read: int) -> None:
    _refuse_no_files(listing)
    if listing.is_remote and to_read > LARGEST_UNASKED:
        requests = sum(-(-found.entry.size // (8 << 20)) for found in listing.files)
        requests = requests * to_read // listing.bytes
        raise OptionError(
            f"{shown(listing)} holds {listing.bytes / 1e9:,.1f} GB in "
            f"{counted(len(listing.files), 'object')}, and {to_read / 1e9:,.1f} GB of that have no "
            f"index; building one reads all of them, about {requests:,} requests. Do that once, "
            f"where it is cheap: penstock index {shown(listing)}"
        )


def check_kind(meta: Meta, scanner: Scanner, folder: str) -> None:
    there, wanted = (meta.kind, meta.options), (scanner.kind, scanner.options())
    if there != wanted:
        raise CorruptIndexError(
            f"the index in {folder} is one of {there[0]} with the options {there[1]}, not of "
            f"{wanted[0]} with {wanted[1]}. Open it with the same options, build it anew with "
            "these (refresh='rebuild'), name the files by a pattern, or give index= another "
            "folder.",
            path=folder,
        )


def refuse_other_kind(place: IndexPlace, kind: str, unknown: str) -> None:
    """Raise where an index of another kind lies; one that does not say its kind is `unknown`."""
    found = kind
    with suppress(CorruptIndexError, ObjectNotFoundError):  # What is damaged may be replaced.
        found = kind_in(local_folder(place)) or unknown
    if found != kind:
        raise IndexExistsError(
            f"{place.folder} holds an index of {found}, and is not overwritten by one of {kind}.",
            remedy="Give another folder: index=, or output_base_path= for tokens.",
        )


def refuse_other_folder(place: IndexPlace) -> None:
    """Raise where the folder's name is taken by something that is no index."""
    folder = Path(place.folder)
    if place.is_remote:
        return
    if folder.is_symlink() and not folder.exists():
        raise IndexExistsError(
            f"{folder} is a link to {folder.readlink()}, and nothing is there. Bring that back, "
            "remove the link, or give the index another place: index= (--index)."
        )
    if folder.exists() and not (folder.is_dir() and not [*folder.iterdir()]):
        raise IndexExistsError(
            f"{place.folder} is there and is no index; it is not touched. Give the index another "
            "place: index= (--index)."
        )


def repairing(
    listing: Listing, place: IndexPlace, index: str | os.PathLike[str] | None, meta: Meta
) -> str:
    """Return the command that repairs an index, as far as one command can."""
    if meta.is_of_tokens:
        return rebuilding(listing.base, tokens=True)
    if len(listing.named) > 1:
        return f"remove {shlex.quote(place.folder)} and open the files again, or: penstock index"
    chosen = f" --index {shlex.quote(os.fspath(index))}" if index is not None else ""
    checks = " --validate" * meta.validated + " --profile" * meta.profiled
    return f"penstock index {shown(listing)}{chosen}{checks}"


def shown(listing: Listing) -> str:
    """Return what the user named, as a shell takes it."""
    split = "" if listing.split is None else f" --split {shlex.quote(listing.split)}"
    return shlex.quote(listing.folder or listing.named[0]) + split
