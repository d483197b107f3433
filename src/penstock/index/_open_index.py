"""The index of some files: opened, or built on the way."""

from __future__ import annotations

import logging
import os
import shlex
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from penstock.errors import (
    CorruptIndexError,
    IndexExistsError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
)
from penstock.index._build import BuildOptions, build_index, has_additions
from penstock.index._fingerprint import digest
from penstock.index._folder import (
    appears,
    bring_back,
    bring_back_records,
    only_builder,
    refuse_put_aside,
)
from penstock.index._formats import format_named
from penstock.index._listing import IndexPlace, cached_place, list_again, place_of
from penstock.index._load import kind_in, load_index, meta_of
from penstock.index._names import FILES, META, rebuilding
from penstock.index._stale import changes, listing_of, refuse_stale
from penstock.storage import (
    HiddenFolder,
    StorageOptions,
    cache_directory,
    fetch_files,
    is_below,
    is_plain_name,
    join,
    locate,
    publish_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.index._build import Mode
    from penstock.index._listing import Listing
    from penstock.index._meta import Meta
    from penstock.index._sample_index import SampleIndex
    from penstock.index._scan import Scanner
    from penstock.work import View

_log = logging.getLogger("penstock.index")
LARGEST_UNASKED = 10_000_000_000
"""Bytes of remote data that are indexed without being asked to."""
_BUILD_SECONDS = 3600.0
_OPEN = "open"
Refresh = Literal["auto", "update", "rebuild", "never"]


def open_or_build(  # noqa: PLR0913 (options, given by name)
    listing: Listing,
    scanner: Scanner,
    *,
    options: StorageOptions | None = None,
    index: str | os.PathLike[str] | None = None,
    progress: bool | View | None = None,
    refresh: Refresh = "auto",
) -> SampleIndex:
    """Return the index of files, fresh; build it first where there is none.

    Of many processes one builds or refreshes; the others wait for it, an hour at most.
    """
    if refresh not in get_args(Refresh):
        expected = ", ".join(map(repr, get_args(Refresh)))
        raise OptionError(f"refresh={refresh!r}: expected one of {expected}.")
    options = options or StorageOptions()
    places = [place_of(listing, scanner, options, index)]
    if index is None and listing.is_remote:
        places.append(place_of(listing, scanner, options, beside_remote=True))
    there = next(filter(exists, places), None)
    place = there or places[0]
    if there is None:
        with only_builder(place.folder, _BUILD_SECONDS, lambda: exists(place)) as mine:
            bring_back_records(place.folder)
            if mine and not exists(place):
                _refuse_unasked(listing, listing.bytes)
                refuse_put_aside(place.folder)
                refuse_other_folder(place)
                with suppress(IndexExistsError):  # Another machine was quicker.
                    build_index(listing, scanner, place, BuildOptions(progress, made_by=_OPEN))
    elif refresh == "rebuild":
        return _Refreshing(listing, scanner, place, progress).rebuilt()
    opened = load_place(place)
    meta = opened.meta
    if meta is None:
        return opened
    _check_kind(meta, scanner, place.folder)
    found = changes(listing, meta)
    if refresh == "update" or (refresh == "auto" and is_own(meta, place)):
        if not any(found):
            return opened
        return _Refreshing(listing, scanner, place, progress).refreshed(opened, refresh)
    command = _repairing(listing, place, index, meta)
    refuse_stale(found, meta, command)
    if found.new:
        _log.warning(
            "%d new files are not in the index; %s --update adds them", len(found.new), command
        )
    return opened


def is_own(meta: Meta, place: IndexPlace) -> bool:
    """Whether `penstock.open` made an index by itself, so that it keeps the index fresh."""
    if meta.made_by is not None:
        return meta.made_by == _OPEN
    # Release 0.1.0 did not say so. What it built on purpose mostly lies beside the data.
    return not place.is_remote and is_below(str(cache_directory()), place.folder)


@dataclass(frozen=True, slots=True)
class _Refreshing:
    """Brings an index up to date, under the lock of its builders."""

    listing: Listing
    scanner: Scanner
    place: IndexPlace
    progress: bool | View | None

    def rebuilt(self) -> SampleIndex:
        """Return the index, built anew by this process or by one that it waited for."""
        place = self.target
        before = _version_of(place)
        with self._only_builder() as listing:
            if _version_of(place) == before:
                refuse_other_kind(place, self.scanner.kind, unknown=self.scanner.kind)
                build = BuildOptions(self.progress, made_by=_OPEN)
                with suppress(CorruptIndexError, ObjectNotFoundError):
                    old = meta_of(place)
                    build = build if old is None else build.on_top_of(old, place.folder)
                self._build(place, listing, build, f"{_shown(listing)} is indexed anew")
            return load_place(place)

    def refreshed(self, opened: SampleIndex, refresh: Refresh) -> SampleIndex:
        """Return the index with what is new; built anew where a file changed."""
        place = self.target
        with self._only_builder() as listing:
            old = load_place(place) if exists(place) else opened
            if old.meta is None:
                return old
            _check_kind(old.meta, self.scanner, place.folder)
            if refresh == "update":
                has_additions(listing, old.meta, place.folder)  # Raises what would renumber.
            found = changes(listing, old.meta)
            if not any(found):
                return old
            build = BuildOptions(self.progress).on_top_of(old.meta, place.folder)
            build = build if place == self.place else replace(build, made_by=_OPEN)
            base = None if found.changed else old
            self._build(place, listing, build, f"{_shown(listing)}: {found.text()}", base)
            return load_place(place)

    def _build(
        self,
        place: IndexPlace,
        listing: Listing,
        build: BuildOptions,
        why: str,
        old: SampleIndex | None = None,
    ) -> None:
        known = 0 if old is None or old.meta is None else old.meta.stored
        _refuse_unasked(listing, listing.bytes - known)
        is_there = exists(place)
        with suppress(IndexExistsError):  # Another machine was quicker.
            build_index(listing, self.scanner, place, build, old, replacing=is_there)
        if old is None:
            _log.warning("%s; its records are numbered anew", why)
        else:
            _log.info("%s; what is new has the numbers from %d on", why, len(old))

    @property
    def target(self) -> IndexPlace:
        """Where the new index goes: in the cache directory if the old one is read-only."""
        place, folder = self.place, os.path.dirname(self.place.folder)
        if place.is_remote or not os.path.exists(folder) or os.access(folder, os.W_OK | os.X_OK):
            return place
        return cached_place(self.listing, self.scanner, place.options)

    @contextmanager
    def _only_builder(self) -> Iterator[Listing]:
        """Yield the files as they are now, while no other process builds."""
        row, folder = format_named(self.scanner.kind), self.target.folder
        with only_builder(folder, _BUILD_SECONDS):
            bring_back_records(folder)
            # Since the first listing another process may have indexed later files.
            yield list_again(self.listing, row.endings if row else (), self.place.options)


def _version_of(place: IndexPlace) -> object:
    """Return what tells one index in a place from the next; None where there is none."""
    store, name = locate(join(place.folder, META), place.options)
    with suppress(ObjectNotFoundError):
        entry = store.entry(name)
        return entry.modified, entry.version, entry.size
    return None


def make_index(  # noqa: PLR0913 (options, given by name)
    listing: Listing,
    scanner: Scanner,
    mode: Mode,
    *,
    options: StorageOptions | None = None,
    index: str | os.PathLike[str] | None = None,
    build: BuildOptions | None = None,
) -> Meta:
    """Build an index that a caller asks for; that of remote data lies beside the data."""
    options = options or StorageOptions()
    place = place_of(listing, scanner, options, index, beside_remote=True)
    build = build or BuildOptions()
    build.check()
    _refuse_no_files(listing)
    with only_builder(place.folder, _BUILD_SECONDS):
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
        build = build.on_top_of(old.meta, place.folder)
        if not has_additions(listing, old.meta, place.folder):
            return old.meta
        return build_index(listing, scanner, place, build, old)


def load_beside(base: str, folder: str, options: StorageOptions) -> SampleIndex:
    """Return the index that lies beside remote data, checked against one listing."""
    place = IndexPlace(join(base, folder), base, options, beside=True)
    index = load_place(place)
    if index.meta is not None:
        listing = listing_of(index.meta, base, options)
        command = _repairing(listing, place, None, index.meta)
        refuse_stale(changes(listing, index.meta), index.meta, command)
    return index


def exists(place: IndexPlace) -> bool:
    """Whether there is an index; waits where one is just being replaced."""
    if place.is_remote:
        store, name = locate(place.folder, place.options)
        with suppress(ObjectNotFoundError):
            store.entry(f"{name}/{META}")
            return True
        return False
    names = [join(place.folder, name) for name in (FILES, META)]
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
    with only_builder(str(final), _BUILD_SECONDS, final.exists) as mine:
        if mine:
            final.parent.mkdir(parents=True, exist_ok=True)
            # A machine that shares the cache may be quicker.
            with HiddenFolder(final, key=key) as hidden, suppress(ObjectExistsError):
                fetch_files(store, entries, hidden.path)
                publish_folder(hidden.path, final, replace=False)
    return str(final)


def _refuse_no_files(listing: Listing) -> None:
    if not listing.files:
        raise ObjectNotFoundError(
            f"{_shown(listing)} holds no files that can be read as records.", path=listing.base
        )


def _refuse_unasked(listing: Listing, to_read: int) -> None:
    _refuse_no_files(listing)
    if listing.is_remote and to_read > LARGEST_UNASKED:
        requests = sum(-(-found.entry.size // (8 << 20)) for found in listing.files)
        requests = requests * to_read // listing.bytes
        raise OptionError(
            f"{_shown(listing)} holds {listing.bytes / 1e9:,.1f} GB in {len(listing.files):,} "
            f"objects, and {to_read / 1e9:,.1f} GB of them have no index; building one reads all "
            f"of that, about {requests:,} requests. Do that once, where it is cheap: penstock "
            f"index {_shown(listing)}"
        )


def _check_kind(meta: Meta, scanner: Scanner, folder: str) -> None:
    there, wanted = (meta.kind, meta.options), (scanner.kind, scanner.options())
    if there != wanted:
        raise CorruptIndexError(
            f"the index in {folder} is one of {there[0]} with the options {there[1]}, not of "
            f"{wanted[0]} with {wanted[1]}. Open it with the same options, name the files by a "
            "pattern, or give index= another folder.",
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


def _repairing(
    listing: Listing, place: IndexPlace, index: str | os.PathLike[str] | None, meta: Meta
) -> str:
    """Return the command that repairs an index, as far as one command can."""
    if meta.kind == "tokens":
        return rebuilding(listing.base, tokens=True)
    if len(listing.named) > 1:
        return f"remove {shlex.quote(place.folder)} and open the files again, or: penstock index"
    chosen = f" --index {shlex.quote(os.fspath(index))}" if index is not None else ""
    checks = " --validate" * meta.validated + " --profile" * meta.profiled
    return f"penstock index {_shown(listing)}{chosen}{checks}"


def _shown(listing: Listing) -> str:
    """Return what the user named, as a shell takes it."""
    return shlex.quote(listing.folder or listing.named[0])
