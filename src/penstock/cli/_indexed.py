"""The index of a PATH: where it lies, and what became of the files since."""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli._units import counted
from penstock.errors import CorruptIndexError, ObjectNotFoundError, StaleIndexError
from penstock.index import (
    Changes,
    Detected,
    Listing,
    changes,
    decode_meta,
    exists,
    format_named,
    list_files,
    place_of,
    read_meta,
    refuse_put_aside,
)
from penstock.storage import fetch_metadata, join, locate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.index import Format, IndexPlace, Meta
    from penstock.storage import Entry, StorageOptions

META, ROWS = "meta.json", "sample_locations.bin"
_ROW_BYTES = 24
_log = logging.getLogger("penstock.cli")


@dataclass(frozen=True, slots=True)
class Indexed:
    """An index that is there, and its files as they are now."""

    format: Format
    place: IndexPlace
    listing: Listing
    meta: Meta | None
    """None where another tool made it."""
    records: int
    created: float
    since: Changes
    """Empty for an index of another tool, which says nothing of its files."""

    @property
    def is_stale(self) -> bool:
        """Whether files changed; new ones alone do no harm."""
        return bool(self.since.changed or self.since.grown)

    @property
    def remedy(self) -> str:
        """The option that makes it fresh."""
        return "--overwrite" if self.since.changed else "--update"

    def found(self, options: StorageOptions) -> Detected:
        """Return what opens the records by this index."""
        what = self.listing.folder or self.listing.named[0]
        return Detected(what, self.format, self.listing, options, self.place.folder)


def index_of(path: str, found: Detected) -> Indexed | None:
    """Return the index of a PATH if it has one. Raises `CorruptIndexError` for a damaged one."""
    for place in places_of(found):
        if exists(place):
            return _looked_at(path, found, place)
        refuse_put_aside(place.folder)
    return None


def places_of(found: Detected) -> Iterator[IndexPlace]:
    """Yield where the index of what lies at a PATH may lie."""
    if found.format.scanner is None:
        return
    listing, options = found.listing, found.options
    # By its name a file may have tabs; an index of it may still be one of commas.
    scanners = [found.scanner(), found.format.scanner_for()]
    places = [place_of(listing, scanner, options, found.index) for scanner in scanners]
    yield from dict.fromkeys(places)
    if listing.is_remote and listing.folder is not None and found.index is None:
        yield place_of(listing, scanners[0], options, beside_remote=True)


def usable_index(path: str, found: Detected, *, is_needed: bool = False) -> Indexed | None:
    """Return the index of a PATH if it has one that is right; warn of one that is not.

    Where it is needed, or was chosen, one that is not right is an error.
    """
    is_needed = is_needed or found.index is not None
    try:
        indexed = index_of(path, found)
    except CorruptIndexError as failure:
        if is_needed:
            raise
        _log.warning("%s Read without it", failure)
        return None
    if indexed is None:
        if found.index is not None:
            raise missing_index(path, found.index)
        return None
    if indexed.is_stale:
        since = indexed.since
        names = [name for name, _ in since.changed] + [grown.path for grown in since.grown]
        what = (
            f"the index in {indexed.place.folder} is stale: {counted(len(names), 'file')} changed "
            f"since, first {names[0]}; penstock index {shlex.quote(path)} {indexed.remedy} repairs "
            "it"
        )
        if is_needed:
            raise StaleIndexError(what, path=names[0])
        _log.warning("%s. Read without it", what)
        return None
    if indexed.since.new:
        count = counted(len(indexed.since.new), "file")
        command = f"penstock index {shlex.quote(path)} --update"
        _log.warning("%s not in the index because newer; %s adds what is new", count, command)
    return indexed


def missing_index(path: str, chosen: str) -> ObjectNotFoundError:
    """Return the error about a folder of an index, named by the user, that holds none."""
    command = f"penstock index {shlex.quote(path)} --index {shlex.quote(chosen)}"
    return ObjectNotFoundError(f"there is no index in {chosen}. Build it: {command}", path=chosen)


def meta_of(place: IndexPlace) -> Meta | None:
    """Return what an index says of itself, wherever it lies; None where another tool made it."""
    if not place.is_remote:
        return read_meta(place.folder, place.base)
    path = join(place.folder, META)
    store, name = locate(path, place.options)
    return decode_meta(fetch_metadata(store, name), path, place.base)


def _looked_at(path: str, found: Detected, place: IndexPlace) -> Indexed | None:
    meta, row, listing = meta_of(place), found.format, found.listing
    rows = _entry(place, ROWS)
    if meta is None:
        records = rows.size // _ROW_BYTES
        return Indexed(row, place, listing, None, records, rows.modified, Changes([], [], []))
    if meta.kind != row.name:
        kind = format_named(meta.kind)
        if kind is None or kind.scanner is None:
            return None  # Of samples, which no verb here shows.
        row, listing = kind, list_files(path, kind.endings, found.options)
    if rows.size != meta.records * _ROW_BYTES:
        raise CorruptIndexError(
            f"the index in {place.folder} is damaged: {ROWS} has {rows.size:,} bytes, and "
            f"{meta.records:,} records need {meta.records * _ROW_BYTES:,}. Build it again: "
            f"penstock index {path} --overwrite",
            path=place.folder,
        )
    since = changes(listing, meta)
    return Indexed(row, place, listing, meta, meta.records, meta.created, since)


def _entry(place: IndexPlace, name: str) -> Entry:
    path = join(place.folder, name)
    store, found = locate(path, place.options)
    try:
        return store.entry(found)
    except FileNotFoundError:
        raise CorruptIndexError(
            f"the index in {place.folder} is damaged: {name} is missing. Build it again: "
            "penstock index PATH --overwrite",
            path=path,
        ) from None
