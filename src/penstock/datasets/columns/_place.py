"""Where the columns of a source lie, and whether they are of its present records."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.datasets.views._views import bare_origins, fingerprint_of
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
    refuse_read_only,
)

if TYPE_CHECKING:
    from penstock.datasets._source import Source
    from penstock.datasets.columns._folder import ColumnMeta
    from penstock.index import FileMeta, IndexPlace
    from penstock.storage import Entry

COLUMNS = "columns"
OTHER_FOLDER = "path=, or the variable PENSTOCK_CACHE for the cache"
"""How columns are given another folder, in the words of remedies."""
_BESIDE = f"index/{COLUMNS}"
_WITH_INDEX = ("penstock.datasets._jsonl.JsonlDataset", "penstock.datasets._csv.CsvRows")
"""Names in the cache of sources whose columns may lie beside their index."""
_GONE = -1
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
    if origin.no_columns:
        raise OptionError(
            f"{type(origin).__name__} has no columns: {origin.no_columns}, so what was decoded "
            "cannot be kept. Materialise the files or the table that it reads."
        )
    home, options = origin.column_home(), origin.storage_options
    if path is not None and not is_remote(path):
        return ColumnPlace(Path(locate(path)[1]), options=options)
    beside = None if home.remote is None else join(home.remote, _BESIDE)
    if path is not None:
        refuse_read_only(path)
        beside = os.fspath(path).rstrip("/")
    own = home.folder
    if own is not None and os.access(own, os.W_OK | os.X_OK) and not _is_behind_link(own):
        return ColumnPlace(own / COLUMNS, beside=beside, options=options)
    cached = cache_directory() / COLUMNS / digest(home.key)
    return ColumnPlace(cached, () if own is None else (own / COLUMNS,), beside, options)


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
        raise unwritable(root, why) from None


def unwritable(root: Path, why: OSError) -> StorageError:
    """Return the error about a folder that takes no columns, or no more of them."""
    return StorageError(
        f"cannot write columns in {root}: {why.strerror or why}. Free space there, or give "
        f"another folder: {OTHER_FOLDER}.",
        path=str(root),
        errno=why.errno,
    )


class Freshness:
    """Says of columns whether they are of the records that a source has.

    Its files are looked at once: one of these serves one question, asked now.
    """

    def __init__(self, origin: Source) -> None:
        self._origin = origin
        self._known: dict[tuple[object, ...], bool] = {}

    @cached_property
    def files(self) -> list[FileFacts]:
        """What the files of the source were when they were first asked for."""
        return self._origin.file_facts()

    @property
    def fingerprint(self) -> str:
        """The fingerprint that a column of the present records carries."""
        fingerprint = self._origin.fingerprint
        if self._origin.sample_index is None or self._origin.index_meta is not None:
            return self._with_finished(fingerprint, len(self._origin))
        # The index of another tool says nothing of the contents of files.
        facts = [os.stat(path) for path in self._origin.files if not is_remote(path)]
        return fingerprint_of(COLUMNS, fingerprint, *(f"{f.st_size} {f.st_mtime}" for f in facts))

    def _with_finished(self, fingerprint: str, length: int) -> str:
        """Return another fingerprint where a record was completed when its file grew."""
        meta = self._origin.index_meta
        finished = "" if meta is None else meta.finished_at(length)
        return fingerprint_of("finished", fingerprint, finished) if finished else fingerprint

    def holds(self, meta: ColumnMeta) -> bool:
        """Whether a column holds the first `meta.length` records as they are now."""
        key = (meta.fingerprint, meta.length, *meta.files)
        known = self._known.get(key)
        if known is None:
            origin = self._origin
            index, length = origin.index_meta, meta.length
            if index is not None and index.finished_at(length):
                now = self._with_finished(index.fingerprint_at(length), length)
                is_of_these = meta.fingerprint == now
            else:
                is_of_these = origin.was(meta.fingerprint, length) or (
                    length == len(origin) and meta.fingerprint == self.fingerprint
                )
                if index is not None and origin.folder_fields:
                    # A release that left the fields of folders out made null of them.
                    is_of_these &= meta.fingerprint != index.fingerprint_at(length)
            # The index compares heads, tails and sizes, so that it holds although something in
            # between changed; a column that was made before that does not.
            known = is_of_these and are_unchanged(meta.files, self.files)
            self._known[key] = known
        return known


class FileFacts(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """A file as it was at some time."""

    path: str
    """As the index has it, or absolute."""
    size: int
    """Bytes; -1 where the file is gone, or another than the source was opened with."""
    modified: int
    """Nanoseconds since the epoch."""
    version: str | None = None
    """An ETag, where the file has one."""

    def has_become(self, now: FileFacts) -> bool:
        """Whether a file that was this may be that now, its first bytes unchanged.

        One that grew was appended to: whether it was, the index of the source says.

        >>> FileFacts("a", 9, 5).has_become(FileFacts("a", 9, 6))
        False
        """
        if now.size != self.size:
            return now.size > self.size >= 0
        if now.size == _GONE:
            return False
        if self.version is not None and now.version is not None:
            return self.version == now.version
        return self.modified == now.modified


def state_of(source: Source) -> str:
    """Return a text that changes whenever a file of a source, or of a view, is written to.

    Its fingerprint does not see what changed in the middle of a file of the same size. The same
    for all records in memory.
    """
    files = (origin.file_facts() for origin in bare_origins(source))
    return digest(as_lists(chain.from_iterable(files)))


def are_unchanged(was: list[FileFacts], now: list[FileFacts]) -> bool:
    """Whether all files of a source are what they were, or only longer; others may have come."""
    if was == now and _GONE not in map(attrgetter("size"), now):
        return True
    known = {file.path: file for file in now}
    # A column without files is one of a source without files.
    return bool(was) == bool(known) and all(
        file.path in known and file.has_become(known[file.path]) for file in was
    )


def as_lists(files: Iterable[FileFacts]) -> list[tuple[object, ...]]:
    """Return the facts as plain values, for a key."""
    return [*map(msgspec.structs.astuple, files)]


def looked_at(path: str, name: str) -> FileFacts:
    """Return the state of a local file; `name` is its path in the index."""
    try:
        found = os.stat(path)
    except OSError:
        return FileFacts(name, _GONE, 0)
    return FileFacts(name, found.st_size, found.st_mtime_ns)


def noted(name: str, file: FileMeta | Entry) -> FileFacts:
    """Return the state of a file as an index or a listing notes it."""
    return FileFacts(name, file.size, round(file.modified * 1e9), file.version)


def listed_facts(path: str, entry: Entry) -> FileFacts:
    """Return the state of a file that was opened when a listing found it so."""
    if is_remote(path):
        return noted(path, entry)
    with suppress(OSError):
        found = os.stat(path)
        # Its footer, and columns of it, are kept since it was opened.
        if (found.st_size, found.st_mtime) == (entry.size, entry.modified):
            return FileFacts(path, found.st_size, found.st_mtime_ns)
    return FileFacts(path, _GONE, 0)
