"""Where the columns of a source lie, and whether they are of its present records."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.datasets._views import fingerprint_of
from penstock.datasets.columns._facts import are_unchanged
from penstock.errors import OptionError, StorageError
from penstock.index import digest
from penstock.storage import (
    CACHE_TAG,
    StorageOptions,
    cache_directory,
    is_remote,
    join,
    leads_through_link,
    locate,
    mark_as_cache,
)

if TYPE_CHECKING:
    from penstock.datasets._source import Source
    from penstock.datasets.columns._facts import FileFacts
    from penstock.datasets.columns._folder import ColumnMeta
    from penstock.index import IndexPlace

COLUMNS = "columns"
OTHER_FOLDER = "path=, or the variable PENSTOCK_CACHE for the cache"
"""How columns are given another folder, in the words of remedies."""
_BESIDE = f"index/{COLUMNS}"
_WITH_INDEX = ("penstock.datasets._jsonl.JsonlDataset", "penstock.datasets._csv.CsvRows")
"""Names in the cache of sources whose columns may lie beside their index."""
_WHAT = "Fields that Penstock decoded once; they are decoded again when they are gone."


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """The folders of a source's columns."""

    root: Path
    """Where new ones go."""
    others: tuple[Path, ...] = ()
    """Where some may be as well, and nothing is written."""
    beside: str | None = None
    """A remote folder from which they are fetched."""
    options: StorageOptions = StorageOptions()  # noqa: RUF009 (a value that never changes)

    @property
    def roots(self) -> tuple[Path, ...]:
        """All local folders to look in."""
        return (self.root, *self.others)


def column_place(origin: Source, path: str | os.PathLike[str] | None = None) -> ColumnPlace:
    """Return where the columns of a source that is no view lie, or would lie.

    In the folder of the index, if that is on this machine and may be written to; else in the
    cache directory, under a name that stays the same when data is appended. `path` is another
    folder; a remote one is what they are published to and fetched from.
    """
    home, options = origin.column_home(), origin.storage_options
    if path is not None and not is_remote(path):
        return ColumnPlace(Path(locate(path)[1]), options=options)
    beside = None if home.remote is None else join(home.remote, _BESIDE)
    if path is not None:
        beside = os.fspath(path).rstrip("/")
    cached = cache_directory() / COLUMNS / digest(home.key)
    own = home.folder
    if own is None:
        return ColumnPlace(cached, beside=beside, options=options)
    if os.access(own, os.W_OK | os.X_OK) and not _is_behind_link(own):
        return ColumnPlace(own / COLUMNS, beside=beside, options=options)
    return ColumnPlace(cached, (own / COLUMNS,), beside, options)


def column_folders(place: IndexPlace) -> list[Path]:
    """Return where columns may lie that were made with the index of a place.

    For those who have no source: the index may be stale, damaged or gone.
    """
    own = Path(place.folder)
    beside = [] if place.is_remote or _is_behind_link(own) else [own / COLUMNS]
    # A remote index is fetched, and its columns are named after the data.
    where = place.base if place.is_remote else place.folder
    keys = [digest([kind, "utf-8", where]) for kind in _WITH_INDEX]
    return [*beside, *(cache_directory() / COLUMNS / key for key in keys)]


def _is_behind_link(index: Path) -> bool:
    """Whether an index, or its folder of columns, is a link: what is written goes elsewhere."""
    return leads_through_link(str(index.parent), str(index / COLUMNS))


def make_root(root: Path) -> None:
    """Make and mark a folder for columns; one that is something else is not touched."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()) and not (root / CACHE_TAG).exists():
            raise OptionError(
                f"{root} is there and holds something else than columns; it is not touched. Give "
                "them a folder of their own: path= (--path)."
            )
        mark_as_cache(root, _WHAT)
    except OSError as why:
        raise StorageError(
            f"cannot write columns in {root}: {why.strerror or why}. Give them another folder: "
            f"{OTHER_FOLDER}.",
            path=str(root),
            errno=why.errno,
        ) from None


class Freshness:
    """Says of columns whether they are of the records that a source has.

    Its files are looked at once: one of these serves one question, asked now.
    """

    def __init__(self, origin: Source) -> None:
        self._origin = origin
        self._known: dict[tuple[object, ...], bool] = {}
        self._files: list[FileFacts] | None = None

    @property
    def files(self) -> list[FileFacts]:
        """What the files of the source were when they were first asked for."""
        if self._files is None:
            self._files = self._origin.file_facts()
        return self._files

    @property
    def fingerprint(self) -> str:
        """The fingerprint that a column of the present records carries."""
        fingerprint = self._origin.fingerprint
        if self._origin.sample_index is None or self._origin.index_meta is not None:
            return fingerprint
        # The index of another tool says nothing of the contents of files.
        facts = [os.stat(path) for path in self._origin.files if not is_remote(path)]
        return fingerprint_of(COLUMNS, fingerprint, *(f"{f.st_size} {f.st_mtime}" for f in facts))

    def holds(self, meta: ColumnMeta) -> bool:
        """Whether a column holds the first `meta.length` records as they are now."""
        key = (meta.fingerprint, meta.length, *meta.files)
        known = self._known.get(key)
        if known is None:
            origin = self._origin
            is_of_these = origin.was(meta.fingerprint, meta.length) or (
                meta.length == len(origin) and meta.fingerprint == self.fingerprint
            )
            # The index compares heads, tails and sizes, so that it holds although something in
            # between changed; a column that was made before that does not.
            known = is_of_these and are_unchanged(meta.files, self.files)
            self._known[key] = known
        return known
