"""The index of a PATH: where it lies, and what became of the files since."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli._formats import ENDINGS, kind_by_name, scanner_of
from penstock.errors import CorruptIndexError
from penstock.index import (
    Changes,
    Listing,
    changes,
    decode_meta,
    exists,
    list_files,
    place_of,
    read_meta,
    refuse_put_aside,
)
from penstock.storage import fetch_metadata, is_pattern, is_remote, join, locate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cli._formats import Kind
    from penstock.index import IndexPlace, Meta
    from penstock.storage import Entry, StorageOptions

META, ROWS = "meta.json", "sample_locations.bin"
_ROW_BYTES = 24
_KINDS: tuple[Kind, ...] = ("jsonl", "csv")
"""What has an index; Parquet needs none."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """An index that is there, and its files as they are now."""

    kind: Kind
    place: IndexPlace
    listing: Listing
    meta: Meta | None
    """None where another tool made it."""
    records: int
    created: float
    since: Changes
    """Of an index of another tool nothing is known."""

    @property
    def is_stale(self) -> bool:
        """Whether files are not what they were; new ones alone do no harm."""
        return bool(self.since.changed or self.since.grown)

    @property
    def remedy(self) -> str:
        """The option that makes it fresh."""
        return "--overwrite" if self.since.changed else "--update"


def index_of(path: str, options: StorageOptions, chosen: str | None = None) -> Indexed | None:
    """Return the index of a PATH if it has one, with one listing of its files.

    Nothing is listed where there is none. Raises `CorruptIndexError` for one that is damaged.
    """
    for kind, place in places_of(path, options, chosen):
        if exists(place):
            return _looked_at(path, kind, place, options)
        refuse_put_aside(place.folder)
    return None


def places_of(
    path: str, options: StorageOptions, chosen: str | None = None
) -> Iterator[tuple[Kind, IndexPlace]]:
    """Yield where the index of a PATH may lie, if its files are of a kind."""
    named = kind_by_name(path)
    kinds = _KINDS if named is None else [named] if named in _KINDS else []
    unlisted = _unlisted(path, options)
    for kind in kinds:
        # By its name a file has tabs; an index of it may still be one of commas.
        for scanner in (scanner_of(kind, names=[path]), scanner_of(kind)):
            place = place_of(unlisted, scanner, options, chosen)
            yield kind, place
            if place.beside or chosen is not None:
                return  # The same place for every kind.
            if not path.lower().endswith(".tsv"):
                break
    if kinds and unlisted.is_remote and unlisted.folder is not None:
        yield kinds[0], place_of(unlisted, scanner_of(kinds[0]), options, beside_remote=True)


def meta_of(place: IndexPlace) -> Meta | None:
    """Return what an index says of itself, wherever it lies; None where another tool made it."""
    if not place.is_remote:
        return read_meta(place.folder, place.base)
    path = join(place.folder, META)
    store, name = locate(path, place.options)
    return decode_meta(fetch_metadata(store, name), path, place.base)


def _looked_at(path: str, kind: Kind, place: IndexPlace, options: StorageOptions) -> Indexed | None:
    meta = meta_of(place)
    if meta is None:
        listing = list_files(path, ENDINGS[kind], options)
        rows = _entry(place, ROWS)
        records, since = rows.size // _ROW_BYTES, Changes([], [], [])
        return Indexed(kind, place, listing, None, records, rows.modified, since)
    if meta.kind not in _KINDS:
        return None  # Of samples, which no verb here shows.
    kind = meta.kind
    listing = list_files(path, ENDINGS[kind], options)
    row_bytes = _entry(place, ROWS).size
    if row_bytes != meta.records * _ROW_BYTES:
        raise CorruptIndexError(
            f"the index in {place.folder} is damaged: {ROWS} has {row_bytes:,} bytes, and "
            f"{meta.records:,} records need {meta.records * _ROW_BYTES:,}. Build it again: "
            f"penstock index {path} --overwrite",
            path=place.folder,
        )
    since = changes(listing, meta)
    return Indexed(kind, place, listing, meta, meta.records, meta.created, since)


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


def _unlisted(path: str, options: StorageOptions) -> Listing:
    """Return a listing of nothing, which is enough to say where an index lies."""
    store, name = locate(path, options)
    named = store.path(name)
    if is_pattern(path):
        is_folder = False
    elif is_remote(path):
        is_folder = kind_by_name(path) is None
    else:
        is_folder = Path(name).is_dir()
    return Listing((named,), named if is_folder else None, named, [])
