"""Columns beside remote data: published for everybody, and fetched once a host."""

from __future__ import annotations

import logging
import secrets
import shutil
from contextlib import closing, suppress
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from penstock.datasets._column_folder import HIDDEN, META, ColumnMeta
from penstock.datasets._materialize_estimate import refuse_full_disk
from penstock.errors import ObjectChangedError, ObjectNotFoundError
from penstock.storage import locate, read_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from penstock.datasets._column_place import ColumnPlace, Freshness
    from penstock.storage import Entry, Store

_log = logging.getLogger("penstock.datasets")
_COPY_BYTES = 8 << 20

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
        if set(meta.lists) <= folders.keys():
            found |= {one: folders[one] for one in (*meta.lists, column)}
    return found


def fetch_columns(published: Published, place: ColumnPlace) -> None:
    """Bring published columns to this machine; the caller is the only builder there."""
    if place.beside is None or not published:
        return
    store, _ = locate(place.beside, place.options)
    wanted = {
        name: files
        for name, files in published.items()
        # The name of offsets tells what is in them.
        if META in files or not (place.root / name).is_dir()
    }
    refuse_full_disk(sum(e.size for files in wanted.values() for e in files.values()), place.root)
    try:
        for name, files in wanted.items():
            _fetch(store, files, place.root / name)
    except (ObjectChangedError, ObjectNotFoundError) as why:
        _log.warning("columns in %s are being replaced and are not used: %s", place.beside, why)


def _listed(store: Store, name: str) -> Published:
    folders: Published = {}
    with suppress(ObjectNotFoundError):
        for entry in store.list(name, recursive=True):
            folder, _, file = entry.name.removeprefix(f"{name}/").partition("/")
            # Nobody makes us write anywhere else, whatever objects are called.
            if file and "/" not in file and folder[:1] != "." and file[:1] != ".":
                folders.setdefault(folder, {})[file] = entry
    return folders


def _meta_of(store: Store, files: dict[str, Entry]) -> ColumnMeta | None:
    if META not in files:
        return None
    try:
        with closing(store.open(files[META].name, files[META])) as file:
            return msgspec.json.decode(file.read_at(0, file.size), type=ColumnMeta)
    except (msgspec.DecodeError, ObjectChangedError, ObjectNotFoundError) as why:
        _log.warning("%s cannot be used: %s", store.path(files[META].name), why)
        return None


def _fetch(store: Store, files: dict[str, Entry], final: Path) -> None:
    folder = final.with_name(f".{secrets.token_hex(8)}{HIDDEN}tmp")
    folder.mkdir()
    try:
        for name, entry in files.items():
            with closing(store.open(entry.name, entry)) as file, (folder / name).open("wb") as out:
                for block in read_blocks(file, _COPY_BYTES):
                    out.write(block)
        if final.exists():
            shutil.rmtree(final)  # Of other records, or it would not be fetched.
        folder.rename(final)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish_columns(
    columns: Iterable[tuple[Path, ColumnMeta]], place: ColumnPlace, freshness: Freshness
) -> None:
    """Upload columns, each from its folder; it counts from when its `meta.json` is there."""
    assert place.beside is not None  # noqa: S101 (it is where they go)
    store, name = locate(place.beside, place.options)
    folders = _listed(store, name)
    for folder, meta in columns:
        there = _meta_of(store, folders.get(folder.name, {}))
        if there is not None and freshness.holds(there) and there.length == meta.length:
            continue
        with suppress(ObjectNotFoundError):
            store.delete(f"{name}/{folder.name}/{META}")
        for one in meta.lists:
            # Their names tell what is in them.
            known = {file: entry.size for file, entry in folders.get(one, {}).items()}
            own = {path.name: path.stat().st_size for path in (folder.parent / one).iterdir()}
            if known != own:
                _upload(store, folder.parent / one, name)
        _upload(store, folder, name)


def _upload(store: Store, folder: Path, name: str) -> None:
    for path in sorted(folder.iterdir(), key=lambda path: path.name == META):
        draft = store.draft(name, path.name)
        try:
            with path.open("rb") as data:
                while block := data.read(_COPY_BYTES):
                    draft.write(block)
            draft.publish(f"{name}/{folder.name}/{path.name}", exclusive=False)
        finally:
            draft.discard()
