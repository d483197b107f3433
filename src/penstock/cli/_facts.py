"""The index, columns, profile and leftovers of a PATH, for reports."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli._indexed import index_of, missing_index
from penstock.cli._paths import as_typed
from penstock.cli._units import age_text, bytes_text, counted, few
from penstock.errors import CorruptIndexError
from penstock.storage import hidden_folders_in, is_remote, locate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli._indexed import Indexed
    from penstock.cli._report import Report
    from penstock.datasets import KnownProfile, ListedColumn, Source
    from penstock.index import Detected
    from penstock.storage import Leftover, StorageOptions


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


def leftover_document(leftover: Leftover) -> dict[str, object]:
    """Return a leftover for a program."""
    entry, writer = leftover
    return {
        "path": entry.name,
        "bytes": entry.size,
        "modified": entry.modified,
        "writer": writer,
    }


def facts_of_index(path: str, indexed: Indexed | None, options: StorageOptions) -> KnownFacts:
    """Return the facts of columns and profile, if the index is local, fresh and Penstock's own."""
    if indexed is None or indexed.meta is None or indexed.place.is_remote or indexed.is_stale:
        return KnownFacts(leftovers=leftovers_of(path, indexed))
    from penstock.cli._by_number import source_of  # noqa: PLC0415 (only where there is an index)

    # The index does not know files that are new.
    files = [found for found in indexed.listing.files if found not in indexed.since.new]
    known = replace(indexed, listing=replace(indexed.listing, files=files))
    return facts_of_source(path, indexed, source_of(known, options))


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
