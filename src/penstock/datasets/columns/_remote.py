"""Columns beside remote data: published for all hosts, and fetched once by each."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from penstock.datasets.columns._folder import META, decode_column, sizes_in
from penstock.datasets.columns._place import OTHER_FOLDER
from penstock.errors import (
    CorruptFileError,
    CorruptIndexError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from penstock.storage import (
    HiddenFolder,
    fetch_files,
    fetch_metadata,
    is_plain_name,
    locate,
    publish_folder,
    refuse_full_disk,
    upload_folder,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from penstock.datasets.columns._folder import ColumnMeta
    from penstock.datasets.columns._place import ColumnPlace, Freshness
    from penstock.storage import Entry, Store

_log = logging.getLogger("penstock.datasets")

Published: TypeAlias = "dict[str, dict[str, Entry]]"
"""For each folder in a remote place the files in it."""


def find_published(
    wanted: Sequence[tuple[str, int]], place: ColumnPlace, freshness: Freshness
) -> Published:
    """Return the folders of published columns that are of the present records.

    `wanted` names columns, each with the records that it must have to be worth it. The folders
    with the offsets of their lists come before them.
    """
    if place.beside is None or not wanted:
        return {}
    store, name = locate(place.beside, place.options)
    folders = _listed(store, name)
    found: Published = {}
    for column, least in wanted:
        meta = _meta_of(store, folders.get(column, {}))
        if meta is None or meta.length < least or not freshness.holds(meta):
            continue
        found |= _told_of(folders, column, meta) or {}
    return found


def _told_of(folders: Published, column: str, meta: ColumnMeta) -> Published | None:
    """Return the files that a column consists of; None where one is not there as it was written."""
    found: Published = {}
    for folder, sizes in meta.folders(column).items():
        there = folders.get(folder)
        if there is None or any(
            name not in there or there[name].size != size for name, size in sizes.items()
        ):
            return None
        found[folder] = {name: there[name] for name in sizes}
    found[column][META] = folders[column][META]
    return found


def fetch_columns(published: Published, place: ColumnPlace) -> None:
    """Bring published columns to this machine; the caller is the only builder there."""
    if place.beside is None or not published:
        return
    store, _ = locate(place.beside, place.options)
    wanted = {
        name: files
        for name, files in published.items()
        # A folder of offsets is named after what is in it, unless it is damaged.
        if META in files or sizes_in(place.root / name) != {n: e.size for n, e in files.items()}
    }
    needed = sum(e.size for files in wanted.values() for e in files.values())
    refuse_full_disk(needed, place.root, "fetching these columns", OTHER_FOLDER)
    try:
        for name, files in wanted.items():
            with HiddenFolder(place.root / name, "column") as hidden:
                fetch_files(store, files, hidden.path)
                publish_folder(hidden.path, hidden.final, "column", replace=True)
    except (ObjectChangedError, ObjectNotFoundError) as why:
        _log.warning("columns in %s are being replaced and are not used: %s", place.beside, why)


def _listed(store: Store, name: str) -> Published:
    folders: Published = {}
    with suppress(ObjectNotFoundError):
        for entry in store.list(name, recursive=True):
            folder, _, file = entry.name.removeprefix(f"{name}/").partition("/")
            # Whatever objects are called, nothing is written anywhere else.
            if all(is_plain_name(part) and part[0] != "." for part in (folder, file)):
                folders.setdefault(folder, {})[file] = entry
    return folders


def _meta_of(store: Store, files: dict[str, Entry]) -> ColumnMeta | None:
    if META not in files:
        return None
    try:
        text = fetch_metadata(store, files[META].name, files[META])
        return decode_column(text, store.path(files[META].name))
    except (CorruptFileError, CorruptIndexError, ObjectChangedError, ObjectNotFoundError) as why:
        _log.warning("%s cannot be used: %s", store.path(files[META].name), why)
        return None


def publish_columns(
    columns: Iterable[tuple[Path, ColumnMeta]], place: ColumnPlace, freshness: Freshness
) -> None:
    """Upload columns, each from its folder; it counts from when its `meta.json` is there."""
    assert place.beside is not None  # noqa: S101 (it is where they go)
    store, name = locate(place.beside, place.options)
    folders = _listed(store, name)
    for folder, meta in columns:
        there = _meta_of(store, folders.get(folder.name, {}))
        if (
            there is not None
            and freshness.holds(there)
            and there.length == meta.length
            and _told_of(folders, folder.name, there) is not None
        ):
            continue
        for one, sizes in meta.folders(folder.name).items():
            known = folders.get(one, {})
            # The name of a folder of offsets is a digest of what is in it.
            if one != folder.name and sizes == {file: e.size for file, e in known.items()}:
                continue
            files = [*sizes, META] if one == folder.name else [*sizes]
            local, remote = folder.parent / one, f"{name}/{one}"
            upload_folder(store, local, remote, files, META, obsolete=known.keys() - {*files})
            folders[one] = {}
