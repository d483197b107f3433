"""What `penstock info` tells of what was made from records: columns, a profile, leftovers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli._units import age_text, bytes_text, counted
from penstock.errors import CorruptIndexError
from penstock.storage import hidden_folders_in, is_remote, locate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli._indexed import Indexed
    from penstock.datasets import KnownProfile, ListedColumn, Source
    from penstock.storage import Leftover, StorageOptions


def leftover_document(leftover: Leftover) -> dict[str, object]:
    """Return what a writer or a builder left, for a program."""
    entry, writer = leftover
    return {
        "path": entry.name,
        "bytes": entry.size,
        "modified": entry.modified,
        "writer": writer,
    }


def leftover_text(leftover: Leftover) -> str:
    """Return the same for a person."""
    entry, writer = leftover
    return f"{entry.name}, {bytes_text(entry.size)}, writer {writer}"


class KnownFacts(NamedTuple):
    """Columns and profile of a PATH, and what killed builders of them left."""

    columns: Sequence[ListedColumn] = ()
    profile: KnownProfile | None = None
    leftovers: Sequence[Leftover] = ()
    problem: str | None = None
    """Why the profile cannot be used."""

    def lines(self) -> list[tuple[str, str]]:
        """Return what a person is told, each line with its heading."""
        lines = []
        if self.columns:
            size = bytes_text(sum(column.meta.bytes for column in self.columns))
            stale = sum(bool(column.stale) for column in self.columns)
            told = f"{counted(len(self.columns), 'column')}, {size}"
            lines.append(("materialised", told + (f", {stale:,} of them stale" * bool(stale))))
        if self.profile is not None:
            drift = len(_warnings(self.profile))
            told = f"made {age_text(time.time() - self.profile.created)} ago, "
            told += f"drift in {counted(drift, 'place')}" if drift else "no drift"
            lines.append(("profile", told))
        if self.problem is not None:
            lines.append(("profile", f"cannot be used: {self.problem}"))
        return lines

    def document(self) -> dict[str, object]:
        """Return the same for a program, without leftovers."""
        profile: dict[str, object] | None = None
        if self.problem is not None:
            profile = {"problem": self.problem}
        if self.profile is not None:
            profile = {
                "created": self.profile.created,
                "records": self.profile.document["records"],
                "fields": len(self.profile.document["fields"]),
                "drift": len(_warnings(self.profile)),
            }
        return {
            "materialized": {
                "columns": len(self.columns),
                "bytes": sum(column.meta.bytes for column in self.columns),
                "stale": sum(bool(column.stale) for column in self.columns),
                "folders": sorted({column.folder for column in self.columns}),
            },
            "profile": profile,
        }


def _warnings(profile: KnownProfile) -> list[object]:
    return [found for found in profile.document["drift"] if found["level"] == "warning"]


def facts_of_index(path: str, indexed: Indexed | None, options: StorageOptions) -> KnownFacts:
    """Look beside the index of a PATH; nothing is fetched, and a stale or foreign one is none."""
    if indexed is None or indexed.meta is None or indexed.place.is_remote or indexed.is_stale:
        return KnownFacts(leftovers=leftovers_of(path, indexed))
    from penstock.cli._by_number import source_of  # noqa: PLC0415 (only where there is an index)

    # What is new since was told, and the index knows nothing of it.
    files = [found for found in indexed.listing.files if found not in indexed.since.new]
    known = replace(indexed, listing=replace(indexed.listing, files=files))
    return facts_of_source(path, indexed, source_of(known, options))


def facts_of_source(path: str, indexed: Indexed | None, source: Source) -> KnownFacts:
    """Look for what was made from a source."""
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
    """Return what killed builders left beside the index, beside its columns and in other folders.

    Nothing is opened for that, so an index that is damaged may be given as none.
    """
    places = [*folders]
    if indexed is not None and not indexed.place.is_remote:
        folder = Path(indexed.place.folder)
        beside = [one for one in hidden_folders_in(str(folder.parent)) if _is_of(one, folder.name)]
        places.append(str(folder / "columns"))
    elif not is_remote(path) and Path(locate(path)[1]).is_dir():
        beside = [one for one in hidden_folders_in(locate(path)[1]) if _is_of(one, "index")]
        places.append(str(Path(locate(path)[1]) / "index" / "columns"))
    else:
        beside = []
    return [*beside, *(one for place in dict.fromkeys(places) for one in hidden_folders_in(place))]


def _is_of(leftover: Leftover, name: str) -> bool:
    return Path(leftover.entry.name).name.startswith(f".{name}.")
