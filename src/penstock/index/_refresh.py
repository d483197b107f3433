"""The index of some files as they are now: opened, built on the way, or brought up to date."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from penstock._words import counted, warn_once
from penstock.errors import (
    CorruptIndexError,
    IndexExistsError,
    ObjectNotFoundError,
    OptionError,
    StaleIndexError,
)
from penstock.index._build import BuildOptions, build_index, has_additions
from penstock.index._folder import (
    bring_back_records,
    clear_replaced,
    only_builder,
    refuse_put_aside,
)
from penstock.index._formats import format_named
from penstock.index._listing import cached_place, list_again, places_of
from penstock.index._load import meta_of
from penstock.index._names import META
from penstock.index._open_index import (
    check_kind,
    exists,
    load_place,
    refuse_other_folder,
    refuse_other_kind,
    refuse_unasked,
    repairing,
    shown,
)
from penstock.index._stale import changes, refuse_stale
from penstock.storage import cache_directory, entry_at, is_below, is_read_only, join, locate

if TYPE_CHECKING:
    from penstock.index._listing import IndexPlace, Listing
    from penstock.index._meta import Meta
    from penstock.index._sample_index import SampleIndex
    from penstock.index._scan import Scanner
    from penstock.storage import StorageOptions
    from penstock.work import View

_log = logging.getLogger("penstock.index")
_OPEN = "open"
Refresh = Literal["auto", "update", "rebuild", "never"]


def open_or_build(  # noqa: PLR0913 (options, given by name)
    listing: Listing,
    scanner: Scanner,
    *,
    options: StorageOptions,
    index: str | os.PathLike[str] | None = None,
    progress: bool | View | None = None,
    refresh: Refresh = "auto",
    given: Mapping[str, object] | None = None,
) -> SampleIndex:
    """Return the index of files, fresh; build it first where there is none.

    `given` are the options of the scanner that an index must have; by default all of them.
    Of many processes one builds or refreshes; the others wait for it, an hour at most.
    """
    if refresh not in get_args(Refresh):
        expected = ", ".join(map(repr, get_args(Refresh)))
        raise OptionError(f"refresh={refresh!r}: expected one of {expected}.")
    places = places_of(listing, scanner, options, index)
    there = next(filter(exists, places), None)
    place, build = there or places[0], BuildOptions(progress, made_by=_OPEN)
    if there is not None and given is not None:
        scanner = _as_made(there, scanner, given)
    if there is None:
        _build_missing(listing, scanner, place, build)
    elif refresh == "rebuild":
        return _Refreshing(listing, scanner, place, progress).rebuilt()
    opened = _loaded(listing, scanner, place, build)
    meta = opened.meta
    if meta is None:
        return opened
    check_kind(meta, scanner, place.folder)
    found = changes(listing, meta)
    if not any(found):
        clear_replaced(place)
        return opened
    if refresh == "update" or (refresh == "auto" and is_own(meta, place)):
        return _Refreshing(listing, scanner, place, progress).refreshed(opened, refresh)
    command = repairing(listing, place, index, meta)
    refuse_stale(found, meta, command)
    if found.new:
        new = counted(len(found.new), "new file", ("is", "are"))
        warn_once(_log, f"{new} not in the index; {command} --update adds what is new")
    return opened


def _as_made(place: IndexPlace, scanner: Scanner, given: Mapping[str, object]) -> Scanner:
    """Return the scanner with the options of an index that is there, except for given ones."""
    row = format_named(scanner.kind) if scanner.options() else None
    if row is None:
        return scanner
    with suppress(CorruptIndexError, ObjectNotFoundError):  # Loading it says more.
        meta = meta_of(place)
        if meta is not None and meta.kind == scanner.kind:
            return row.scanner_for({**meta.options, **given})
    return scanner


def _build_missing(
    listing: Listing, scanner: Scanner, place: IndexPlace, build: BuildOptions
) -> None:
    with only_builder(place.folder):
        bring_back_records(place.folder)
        if not exists(place):
            refuse_unasked(listing, listing.bytes)
            refuse_put_aside(place.folder)
            refuse_other_folder(place)
            with suppress(IndexExistsError):  # Another machine was quicker.
                build_index(listing, scanner, place, build)


def _loaded(
    listing: Listing, scanner: Scanner, place: IndexPlace, build: BuildOptions
) -> SampleIndex:
    try:
        return load_place(place)
    except ObjectNotFoundError:
        if place.is_remote or exists(place):
            raise
        # Another process has just made room in the cache.
        _build_missing(listing, scanner, place, build)
        return load_place(place)


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
        meta_file = locate(join(place.folder, META), place.options)
        before = entry_at(*meta_file)
        with self._only_builder() as listing:
            if entry_at(*meta_file) == before:
                refuse_other_kind(place, self.scanner.kind, unknown=self.scanner.kind)
                build = BuildOptions(self.progress, made_by=_OPEN)
                with suppress(CorruptIndexError, ObjectNotFoundError):
                    old = meta_of(place)
                    build = build if old is None else build.on_top_of(old, place.folder)
                self._build(place, listing, build, f"{shown(listing)} is indexed anew")
            return load_place(place)

    def refreshed(self, opened: SampleIndex, refresh: Refresh) -> SampleIndex:
        """Return the index with what is new; built anew where a file changed."""
        place = self.target
        with self._only_builder() as listing:
            old = load_place(place) if exists(place) else opened
            if old.meta is None:
                return old
            check_kind(old.meta, self.scanner, place.folder)
            if refresh == "update":
                has_additions(listing, old.meta, place.folder)  # Raises what would renumber.
            found = changes(listing, old.meta)
            if not any(found):
                return old
            build = BuildOptions(self.progress).on_top_of(old.meta, place.folder)
            build = build if place == self.place else replace(build, made_by=_OPEN)
            base, why = None if found.changed else old, f"{shown(listing)}: {found.text()}"
            try:
                self._build(place, listing, build, why, base)
            except StaleIndexError:
                if base is None or refresh == "update":
                    raise
                self._build(place, listing, build, why)  # A last record went on and is none now.
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
        refuse_unasked(listing, listing.bytes - known)
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
        is_elsewhere = place.is_remote or not os.path.exists(folder)
        if not is_read_only(folder) and (is_elsewhere or os.access(folder, os.W_OK | os.X_OK)):
            return place
        return cached_place(self.listing, self.scanner, place.options)

    @contextmanager
    def _only_builder(self) -> Iterator[Listing]:
        """Yield the files as they are now, while no other process builds."""
        row, folder = format_named(self.scanner.kind), self.target.folder
        with only_builder(folder):
            bring_back_records(folder)
            # Since the first listing another process may have indexed later files.
            endings = (row.sure_endings, row.endings) if row else ()
            yield list_again(self.listing, endings, self.place.options)
