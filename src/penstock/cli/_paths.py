"""What a PATH names: files, the same as for `penstock.open`, their index, and leftovers."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock._words import counted
from penstock.cli._verb import FORMAT, FORMAT_OPTIONS, SPLIT
from penstock.datasets import Source, open_found
from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError, StaleIndexError
from penstock.index import (
    COLUMNS,
    INDEX_FOLDER,
    LINES,
    ROWS,
    Changes,
    Detected,
    Listing,
    changes,
    check_heads,
    exists,
    format_named,
    is_own,
    list_files,
    meta_of,
    records_beside,
    refuse_lakes,
    refuse_put_aside,
)
from penstock.index import look_at as detected_at
from penstock.jsonl import JsonlFile
from penstock.storage import drafts_in, hidden_folders_in, is_remote, join, locate

if TYPE_CHECKING:
    from penstock.index import Detected, Format, Found, IndexPlace, Listing, Meta, Refresh
    from penstock.storage import Leftover, StorageOptions

_ROW_BYTES = 24
_log = logging.getLogger("penstock.cli")


def given_format() -> tuple[str | None, dict[str, Any] | None, str | None]:
    """Return the format, its options and the split that the command was given."""
    ctx = click.get_current_context(silent=True)
    given = {} if ctx is None else ctx.meta
    return given.get(FORMAT), given.get(FORMAT_OPTIONS), given.get(SPLIT)


def look_at(path: str, options: StorageOptions, index: str | None = None) -> Detected:
    """Return what lies at a PATH, by the options of formats that the command was given."""
    name, chosen, split = given_format()
    found = detected_at(path, options, index, format_name=name, format_options=chosen, split=split)
    found.warn_of_splits_and_copies()
    if found.format.head is not None:
        refuse_lakes(found.listing, options)
    return found


def refuse_tokens(path: str, found: Detected, why: str) -> None:
    """Say that a verb is not for tokens."""
    if found.format.is_tokens:
        shown = shlex.quote(path)
        raise OptionError(
            f"{path} holds tokens, of which this makes nothing: {why}. penstock info {shown} and "
            f"penstock show {shown} --decode TOKENIZER show them.{records_beside(found.listing)}"
        )


@dataclass(frozen=True, slots=True)
class PathFiles:
    """The files that a PATH names, in reading order."""

    path: str
    kind: str
    """`file`, `directory` or `pattern`."""
    found: dict[str, Found]
    """Each file by its path, relative if PATH is."""
    options: StorageOptions

    @classmethod
    def of(cls, path: str, listing: Listing, options: StorageOptions) -> PathFiles:
        """Return the files of a listing."""
        kind = "pattern" if listing.is_pattern else "file"
        kind = kind if listing.folder is None else "directory"
        return cls(path, kind, {as_typed(path, one.path): one for one in listing.files}, options)

    @property
    def files(self) -> list[JsonlFile]:
        """The files, to be read as lines."""
        return [JsonlFile(name, self.options) for name in self.found]

    @property
    def bytes(self) -> int:
        """Stored bytes of all files."""
        return sum(one.entry.size for one in self.found.values())

    def leftovers(self) -> list[Leftover]:
        """Return the drafts and claims beside these files; of a single file only its own."""
        if is_remote(self.path):
            return []  # In object storage drafts have no name.
        if self.kind == "directory":
            return drafts_in(locate(self.path)[1])
        paths = [Path(locate(path)[1]) for path in self.found]
        own = f".{paths[0].name}." if self.kind == "file" else ""
        return [
            leftover
            for directory in sorted({str(path.parent) for path in paths})
            for leftover in drafts_in(directory)
            if Path(leftover.entry.name).name.startswith(own)
        ]


def find(path: str, options: StorageOptions, found: Detected | None = None) -> PathFiles:
    """Return the files of lines that a PATH names, or raise where it holds something else."""
    found = look_at(path, options) if found is None else found
    listing = found.listing
    if found.problem is not None or not isinstance(found.trouble, ObjectNotFoundError):
        found.checked()  # An empty folder may still have leftovers.
    if not found.format.is_lines:
        is_mixed = found.format.folder is not None
        lines = [one for one in listing.files if is_mixed and LINES.names(one.entry.name)]
        if not lines:
            title = found.format.title
            raise OptionError(f"{path} holds {title}, not lines. Copy the files as they are.")
        listing = replace(listing, files=lines)
    if not listing.files:
        _log.warning("%s holds no files with records", path)
    check_heads(listing.files, LINES.name)
    return PathFiles.of(path, listing, options)


def as_typed(path: str, name: str) -> str:
    """Return the path of a file that PATH led to, relative if PATH was.

    >>> as_typed("logs/*.jsonl", os.path.abspath("logs/a.jsonl"))
    'logs/a.jsonl'
    """
    is_relative = "://" not in path and not Path(path).is_absolute()
    return os.path.relpath(name) if is_relative else name


def leftover_document(leftover: Leftover) -> dict[str, object]:
    """Return a leftover for a program."""
    entry, writer = leftover
    return {"path": entry.name, "bytes": entry.size, "modified": entry.modified, "writer": writer}


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

    @property
    def is_own(self) -> bool:
        """Whether `penstock.open` made it, and keeps it fresh."""
        return self.meta is not None and is_own(self.meta, self.place)

    def source(self, found: Detected, refresh: Refresh = "never") -> Source:
        """Return the records; raise `StaleIndexError` where files changed and `refresh` says so."""
        indexed = replace(found, format=self.format, listing=self.listing)
        made_with = self.meta.options if self.meta is not None else {}
        return open_found(indexed, made_with=made_with, refresh=refresh)


def index_of(path: str, found: Detected) -> Indexed | None:
    """Return the index of a PATH if it has one; raise for a damaged, or a missing chosen one.

    Files of a format that neither their names nor the caller say have none in the cache directory.
    """
    for place in places_of(found):
        if isinstance(found.trouble, OptionError) and not place.beside and found.index is None:
            found.checked()  # What was opened with other options once says nothing of these files.
        if exists(place):
            return _looked_at(path, found, place)
        refuse_put_aside(place.folder)
    if found.index is not None:
        command = f"penstock index {shlex.quote(path)} --index {shlex.quote(found.index)}"
        message = f"there is no index in {found.index}. Build it: {command}"
        raise ObjectNotFoundError(message, path=found.index)
    return None


def places_of(found: Detected) -> list[IndexPlace]:
    """Return where the index of what lies at a PATH may lie."""
    return [] if found.format.scanner is None else found.places(found.scanner())


def indexed_source(
    path: str, found: Detected, *, is_needed: bool = False, refresh: Refresh = "never"
) -> Source | None:
    """Return the records of a PATH if it has an index that is right; warn of one that is not.

    Where it is needed, or was chosen, one that is not right is an error.
    """
    try:
        indexed = index_of(path, found)
        return None if indexed is None else indexed.source(found, refresh)
    except (CorruptIndexError, StaleIndexError) as failure:
        if is_needed or found.index is not None:
            raise
        _log.warning("read without the index: %s", failure)
        return None


def _looked_at(path: str, found: Detected, place: IndexPlace) -> Indexed | None:
    meta, row, listing = meta_of(place), found.format, found.listing
    store, name = locate(join(place.folder, ROWS), place.options)
    try:
        rows = store.entry(name)
    except FileNotFoundError:
        raise _damaged(path, place, f"{ROWS} is missing") from None
    if meta is None:
        records = rows.size // _ROW_BYTES
        return Indexed(row, place, listing, None, records, rows.modified, Changes([], [], []))
    if meta.kind != row.name:
        kind = format_named(meta.kind)
        if kind is None or kind.scanner is None:
            return None  # Of samples, which no verb here shows.
        row, listing = kind, list_files(path, kind.endings, found.options)
    differing = {name: value for name, value in meta.options.items() if name in found.given}
    if meta.kind == found.format.name and differing != dict(found.given):
        raise CorruptIndexError(
            f"the index in {place.folder} was built with {differing}, not with "
            f"{dict(found.given)}. Leave these options out, give --index another folder, or build "
            f"it anew: penstock index {shlex.quote(path)} --overwrite",
            path=place.folder,
        )
    if rows.size != meta.records * _ROW_BYTES:
        need = f"{counted(meta.records, 'record', ('needs', 'need'))} {meta.records * _ROW_BYTES:,}"
        raise _damaged(path, place, f"{ROWS} has {counted(rows.size, 'byte')}, and {need}")
    since = changes(listing, meta)
    return Indexed(row, place, listing, meta, meta.records, meta.created, since)


def _damaged(path: str, place: IndexPlace, what: str) -> CorruptIndexError:
    command = f"penstock index {shlex.quote(path)} --overwrite"
    message = f"the index in {place.folder} is damaged: {what}. Build it again: {command}"
    return CorruptIndexError(message, path=place.folder)


def index_or_problem(path: str, at_path: Detected) -> tuple[Indexed | None, str | None]:
    """Return the index of a PATH, or why it cannot be used."""
    try:
        return index_of(path, at_path), None
    except CorruptIndexError as failure:
        return None, at_path.options.redact(str(failure))


def leftovers_of(path: str, indexed: Indexed | None, folders: Sequence[str] = ()) -> list[Leftover]:
    """Return leftovers of builders beside the index, beside its columns and in other folders.

    Nothing is opened, so None is fine for an index that is damaged.
    """
    if indexed is not None and not indexed.place.is_remote:
        index = Path(indexed.place.folder)
    elif not is_remote(path) and Path(locate(path)[1]).is_dir():
        index = Path(locate(path)[1]) / INDEX_FOLDER
    else:
        return [one for folder in folders for one in hidden_folders_in(folder)]
    places = dict.fromkeys([*folders, str(index / COLUMNS)])
    return [
        *(
            one
            for one in hidden_folders_in(str(index.parent))
            if Path(one.entry.name).name.startswith(f".{index.name}.")
        ),
        *(one for place in places for one in hidden_folders_in(place)),
    ]
