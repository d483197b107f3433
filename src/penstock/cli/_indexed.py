"""The index of a PATH: what became of the files since, and what else is known of them."""

from __future__ import annotations

import logging
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli._paths import as_typed, leftover_document
from penstock.cli._units import age_text, bytes_text, counted, few
from penstock.datasets import open_found
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
from penstock.storage import fetch_metadata, hidden_folders_in, is_remote, join, locate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.cli._terminal import Report
    from penstock.datasets import KnownProfile, ListedColumn, Source
    from penstock.index import Format, IndexPlace, Meta
    from penstock.storage import Leftover, StorageOptions

_META, _ROWS = "meta.json", "sample_locations.bin"
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

    def source(self, options: StorageOptions) -> Source:
        """Return the records; the index is fresh."""
        what = self.listing.folder or self.listing.named[0]
        found = Detected(what, self.format, self.listing, options, self.place.folder)
        return open_found(found, made_with=self.meta.options if self.meta is not None else {})


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
    path = join(place.folder, _META)
    store, name = locate(path, place.options)
    return decode_meta(fetch_metadata(store, name), path, place.base)


def _looked_at(path: str, found: Detected, place: IndexPlace) -> Indexed | None:
    meta, row, listing = meta_of(place), found.format, found.listing
    store, name = locate(join(place.folder, _ROWS), place.options)
    try:
        rows = store.entry(name)
    except FileNotFoundError:
        raise _damaged(path, place, f"{_ROWS} is missing") from None
    if meta is None:
        records = rows.size // _ROW_BYTES
        return Indexed(row, place, listing, None, records, rows.modified, Changes([], [], []))
    if meta.kind != row.name:
        kind = format_named(meta.kind)
        if kind is None or kind.scanner is None:
            return None  # Of samples, which no verb here shows.
        row, listing = kind, list_files(path, kind.endings, found.options)
    if rows.size != meta.records * _ROW_BYTES:
        need = f"{meta.records:,} records need {meta.records * _ROW_BYTES:,}"
        raise _damaged(path, place, f"{_ROWS} has {rows.size:,} bytes, and {need}")
    since = changes(listing, meta)
    return Indexed(row, place, listing, meta, meta.records, meta.created, since)


def _damaged(path: str, place: IndexPlace, what: str) -> CorruptIndexError:
    command = f"penstock index {shlex.quote(path)} --overwrite"
    message = f"the index in {place.folder} is damaged: {what}. Build it again: {command}"
    return CorruptIndexError(message, path=place.folder)


class IndexFacts(NamedTuple):
    """The index of a PATH, or why it cannot be used, or neither."""

    path: str
    found: Indexed | None
    problem: str | None

    def add_to(self, report: Report) -> None:
        """Report the index, its age, and the files that changed since."""
        if self.problem is not None:
            problem = {"problem": self.problem}
            report.row("index", f"cannot be used: {self.problem}", index=problem)
            return
        if self.found is None:
            report.data(index=None)
            return
        found, since, meta = self.found, self.found.since, self.found.meta
        where = found.place.folder
        where = as_typed(self.path, where) if found.place.beside else where
        changed = [(self._typed(name), what) for name, what in since.changed]
        grown = [as_typed(self.path, one.path) for one in since.grown]
        new = [as_typed(self.path, one.path) for one in since.new]
        state = "" if meta is None or found.is_stale or new else ", up to date"
        maker = "" if meta is not None else ", made by another tool"
        age = age_text(time.time() - found.created)
        report.row(
            "index",
            f"{where}: {counted(found.records, 'record')}, built {age} ago{state}{maker}",
            index={
                "path": found.place.folder,
                "records": found.records,
                "created": found.created,
                "fingerprint": None if meta is None else meta.fingerprint,
                "fresh": None if meta is None else not found.is_stale,
                "bad_lines": meta.bad_lines if meta is not None and meta.validated else None,
                "profiled": meta is not None and meta.profiled,
                "changed": [{"path": path, "what": what} for path, what in changed],
                "grown": grown,
                "new": new,
                "problem": None,
            },
        )
        if meta is not None and meta.validated:
            bad = meta.bad_lines
            report.row(
                "bad lines", f"{bad:,} set aside: {where}/bad_lines.ndjson" * bool(bad) or "none"
            )
        stale = [f"{path} ({what})" for path, what in changed]
        stale += [f"{path} (grew)" for path in grown]
        if stale:
            report.row("stale", f"{counted(len(stale), 'file')}: {few(stale, 5)}")
        if new:
            report.row("new", f"{counted(len(new), 'file')} not in it: {few(new, 5)}")
        if stale or new:
            report.row("remedy", f"penstock index {shlex.quote(self.path)} {found.remedy}")

    def _typed(self, name: str) -> str:
        """Return the path of a file that changed; that of a missing one is relative."""
        if self.found is None or "://" in name or name.startswith("/"):
            return as_typed(self.path, name)
        return as_typed(self.path, f"{self.found.listing.base}/{name}")


def index_facts(path: str, at_path: Detected) -> IndexFacts:
    """Return the facts of the index of a PATH; raise if a chosen one is missing."""
    try:
        found = index_of(path, at_path)
    except CorruptIndexError as failure:
        return IndexFacts(path, None, at_path.options.redact(str(failure)))
    if found is None and at_path.index is not None:
        raise missing_index(path, at_path.index)
    return IndexFacts(path, found, None)


class KnownFacts(NamedTuple):
    """Columns, profile and leftovers of a PATH."""

    columns: Sequence[ListedColumn] = ()
    profile: KnownProfile | None = None
    leftovers: Sequence[Leftover] = ()
    problem: str | None = None
    """Why the profile cannot be used."""

    def add_to(self, report: Report) -> None:
        """Report columns, profile and leftovers."""
        size = sum(column.meta.bytes for column in self.columns)
        stale = sum(bool(column.stale) for column in self.columns)
        folders = sorted({column.folder for column in self.columns})
        count = len(self.columns)
        report.data(
            materialized={"columns": count, "bytes": size, "stale": stale, "folders": folders},
            profile=None if self.problem is None else {"problem": self.problem},
        )
        if self.columns:
            text = f"{counted(count, 'column')}, {bytes_text(size)}"
            report.row("materialised", text + f", {stale:,} of them stale" * bool(stale))
        if self.problem is not None:
            report.row("profile", f"cannot be used: {self.problem}")
        if self.profile is not None:
            found = self.profile.document
            drift = sum(one["level"] == "warning" for one in found["drift"])
            text = f"drift in {counted(drift, 'place')}" if drift else "no drift"
            report.row(
                "profile",
                f"made {age_text(time.time() - self.profile.created)} ago, {text}",
                profile={
                    "created": self.profile.created,
                    "records": found["records"],
                    "fields": len(found["fields"]),
                    "drift": drift,
                },
            )
        add_leftovers(report, self.leftovers)


def add_leftovers(report: Report, leftovers: Sequence[Leftover]) -> None:
    """Report leftovers of writers and builders."""
    report.data(leftovers=[leftover_document(one) for one in leftovers])
    for entry, writer in leftovers:
        report.row("leftover", f"{entry.name}, {bytes_text(entry.size)}, writer {writer}")
    if any(one.writer == "gone" for one in leftovers):
        report.line("  (penstock clean removes what dead writers left)")


def facts_of_index(path: str, indexed: Indexed | None, options: StorageOptions) -> KnownFacts:
    """Return the facts of columns and profile, if the index is local, fresh and Penstock's own."""
    if indexed is None or indexed.meta is None or indexed.place.is_remote or indexed.is_stale:
        return KnownFacts(leftovers=leftovers_of(path, indexed))
    # The index does not know files that are new.
    files = [found for found in indexed.listing.files if found not in indexed.since.new]
    known = replace(indexed, listing=replace(indexed.listing, files=files))
    return facts_of_source(path, indexed, known.source(options))


def facts_of_source(path: str, indexed: Indexed | None, source: Source) -> KnownFacts:
    """Return the facts of columns and profile of a source."""
    from penstock.datasets import known_profile, list_columns_of  # noqa: PLC0415 (pyarrow)

    columns = list_columns_of(source)
    folders = sorted({column.folder for column in columns})
    profile, problem = None, None
    try:
        profile = known_profile(source)
    except CorruptIndexError as failure:
        problem = str(failure)
    return KnownFacts(columns, profile, leftovers_of(path, indexed, folders), problem)


def leftovers_of(path: str, indexed: Indexed | None, folders: Sequence[str] = ()) -> list[Leftover]:
    """Return leftovers of builders beside the index, beside its columns and in other folders.

    Nothing is opened, so None is fine for an index that is damaged.
    """
    if indexed is not None and not indexed.place.is_remote:
        index = Path(indexed.place.folder)
    elif not is_remote(path) and Path(locate(path)[1]).is_dir():
        index = Path(locate(path)[1]) / "index"
    else:
        return [one for folder in folders for one in hidden_folders_in(folder)]
    places = dict.fromkeys([*folders, str(index / "columns")])
    return [
        *(
            one
            for one in hidden_folders_in(str(index.parent))
            if Path(one.entry.name).name.startswith(f".{index.name}.")
        ),
        *(one for place in places for one in hidden_folders_in(place)),
    ]
