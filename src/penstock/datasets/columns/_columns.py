"""The columns of one source: which are there, which are missing, and how they come about.

Columns of remote data may be published beside it for all hosts; each fetches them once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from penstock._words import warn_once
from penstock.datasets._missing_fields import missing_fields
from penstock.datasets.columns._bad import OnError, decoded
from penstock.datasets.columns._build import (
    Building,
    ColumnsEstimate,
    Wanted,
    build,
    estimated,
    first_record,
    only_column_builder,
    remove_finished,
)
from penstock.datasets.columns._folder import META, column_name, decode_column, sizes_in
from penstock.datasets.columns._materialized import ColumnSpec
from penstock.datasets.columns._place import OTHER_FOLDER, ColumnPlace, Freshness, column_place
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
    is_remote,
    locate,
    publish_folder,
    refuse_full_disk,
    upload_folder,
)

if TYPE_CHECKING:
    import os

    from penstock.datasets._source import Source
    from penstock.datasets.columns._folder import Column, ColumnMeta
    from penstock.storage import Entry, Store

_log = logging.getLogger("penstock.datasets")

Published: TypeAlias = "dict[str, dict[str, Entry]]"
"""For each folder in a remote place the files in it."""


class SourceColumns:
    """The columns of one source that is no view."""

    def __init__(
        self, origin: Source, path: str | os.PathLike[str] | None = None, on_error: OnError = "mask"
    ) -> None:
        self._origin, self._length = origin, len(origin)
        self._on_error = on_error
        self.place: ColumnPlace = column_place(origin, path)
        self._roots = [*map(str, self.place.roots)]
        self._publishes = path is not None and is_remote(path)
        self._freshness = Freshness(origin)
        self._kinds = (False, True) if on_error == "null" else (False,)

    def ensured(self, schema: pa.Schema, how: Building) -> dict[ColumnSpec, Column]:
        """Return columns of all fields; build those that are missing."""
        found = self._all_found(schema)
        if len(found) == len(schema):
            remove_finished(self.place.root, lambda units: not self.missing(units))
        else:
            with only_column_builder(self.place.root):
                # The builder before may have built them, and files may have changed.
                self._freshness = Freshness(self._origin)
                fields = self.missing(schema)
                if published := self._published(fields, 1):
                    self._fetch(published)
                    fields = self.missing(pa.schema(fields))
                if fields:
                    if how.warns_of_unknown:
                        for unknown in missing_fields(self._origin, [f.name for f in fields]):
                            warn_once(
                                _log, f"{unknown.text} Where it is missing its column is null"
                            )
                    for wanted in self._wanted(fields):
                        build(self._origin, wanted, self.place.root, how, self._freshness)
                found = self._all_found(schema)
                if len(found) < len(schema):
                    names = ", ".join(field.name for field in self.missing(schema))
                    raise CorruptIndexError(
                        f"columns were written to {self.place.root} and cannot be read from "
                        f"there: {names}. Give another folder: {OTHER_FOLDER}.",
                        path=str(self.place.root),
                    )
        if self._publishes:
            self._publish(found)
        return found

    def existing(self, schema: pa.Schema) -> dict[ColumnSpec, Column] | None:
        """Return columns of all fields; None where one of them is missing."""
        length = self._length
        if self.place.beside is not None and self._published(self.missing(schema), length):
            with only_column_builder(self.place.root):
                # The builder before may have fetched them.
                self._fetch(self._published(self.missing(schema), length))
        found = self._all_found(schema)
        return found if len(found) == len(schema) else None

    def missing(self, schema: pa.Schema) -> list[pa.Field]:
        """Return the fields without a column of all records."""
        return [field for field in schema if self._found(field) is None]

    def costs(self, schema: pa.Schema) -> list[ColumnsEstimate]:
        """Return what it takes to build those that are missing, for each pass over the records."""
        return [
            estimated(self._origin, pa.schema([*wanted]), first_record(wanted))
            for wanted in self._wanted(self.missing(schema))
        ]

    def _all_found(self, schema: pa.Schema) -> dict[ColumnSpec, Column]:
        return dict(filter(None, map(self._found, schema)))

    def _found(self, field: pa.Field) -> tuple[ColumnSpec, Column] | None:
        """Return the column of a field that serves under the policy, if it has all records."""
        for spec, column in self._candidates(field):
            if column.meta.length == self._length:
                return spec, column
        return None

    def _wanted(self, fields: Sequence[pa.Field]) -> list[Wanted]:
        """Return fields with the columns of their first records, by how many these are."""
        groups: dict[int, dict[pa.Field, Column | None]] = {}
        for field in fields:
            column = self._longest(field)
            groups.setdefault(column.meta.length if column else 0, {})[field] = column
        return [*groups.values()]

    def _longest(self, field: pa.Field) -> Column | None:
        found = [column for _, column in self._candidates(field)]
        return max(found, key=lambda column: column.meta.length, default=None)

    def _candidates(self, field: pa.Field) -> list[tuple[ColumnSpec, Column]]:
        found = []
        for nulled in self._kinds:
            for root in self._roots:
                spec = ColumnSpec(root, field.name, field.type, nulled)
                column = spec.find(self._freshness)
                if column is None or (len(column.bad) and self._on_error == "null"):
                    continue
                if len(column.bad) and self._on_error == "raise":
                    # This raises what decoding a bad record raises.
                    schema = pa.schema([pa.field(field.name, field.type)])
                    decoded(self._origin, column.bad[:1], schema, "raise", 0)
                found.append((spec, column))
        return found

    def _published(self, fields: Sequence[pa.Field], least: int) -> Published:
        """Return what is published of some fields: so many records, and more than there are."""
        if self.place.beside is None or not fields:
            return {}
        store, place = self._remote()
        folders = _listed(store, place)
        found: Published = {}
        for field in fields:
            here = self._longest(field)
            records = max(least, here.meta.length + 1 if here else 1)
            for nulled in self._kinds:
                name = column_name(field.name, field.type, nulled=nulled)
                whole = _whole(store, folders, name)
                if whole and whole[0].length >= records and self._freshness.holds(whole[0]):
                    # The folders with the offsets of its lists come before it.
                    found |= whole[1]
        return found

    def _remote(self) -> tuple[Store, str]:
        assert self.place.beside is not None  # noqa: S101 (only then something is published)
        return locate(self.place.beside, self.place.options)

    def _fetch(self, published: Published) -> None:
        """Bring published columns to this machine; the caller is the only builder there."""
        place, (store, _) = self.place, self._remote()
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

    def _publish(self, columns: Mapping[ColumnSpec, Column]) -> None:
        """Upload columns, each from its folder; it counts from when its `meta.json` is there."""
        store, name = self._remote()
        folders = _listed(store, name)
        for spec, column in columns.items():
            folder, meta = spec.folder, column.meta
            whole = _whole(store, folders, folder.name)
            if whole and whole[0].length == meta.length and self._freshness.holds(whole[0]):
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


def _listed(store: Store, name: str) -> Published:
    folders: Published = {}
    with suppress(ObjectNotFoundError):
        for entry in store.list(name, recursive=True):
            folder, _, file = entry.name.removeprefix(f"{name}/").partition("/")
            # Whatever objects are called, nothing is written anywhere else.
            if all(is_plain_name(part) and part[0] != "." for part in (folder, file)):
                folders.setdefault(folder, {})[file] = entry
    return folders


def _whole(store: Store, folders: Published, column: str) -> tuple[ColumnMeta, Published] | None:
    """Return what a column says of itself, and its files; None unless all of them are there."""
    entry = folders.get(column, {}).get(META)
    if entry is None:
        return None
    path = store.path(entry.name)
    try:
        meta = decode_column(fetch_metadata(store, entry.name, entry), path)
    except (CorruptFileError, CorruptIndexError, ObjectChangedError, ObjectNotFoundError) as why:
        _log.warning("%s cannot be used: %s", path, why)
        return None
    found: Published = {}
    for folder, sizes in meta.folders(column).items():
        there = folders.get(folder, {})
        if any(name not in there or there[name].size != size for name, size in sizes.items()):
            return None
        found[folder] = {name: there[name] for name in sizes}
    found[column][META] = entry
    return meta, found
