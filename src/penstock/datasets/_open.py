"""`penstock.open`: a source from whatever holds records."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.datasets._open_tokens import (
    is_of_pair,
    local_tokens,
    mds_rows,
    megatron_pair,
    megatron_tokens,
    refuse_inside,
    refuse_several,
    remote_tokens,
)
from penstock.datasets._source import Source
from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError
from penstock.index import (
    CSV,
    JSONL,
    PARQUET,
    TOKEN_FOLDER,
    LineScanner,
    Listing,
    list_files,
    open_or_build,
    rebuilding,
)
from penstock.storage import StorageOptions, join

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.index import Found
    from penstock.work import View

_log = logging.getLogger("penstock.datasets")
_FORMATS = {"JSON Lines": JSONL, "CSV": CSV, "Parquet": PARQUET}
_HEAD_BYTES = 64


def open(  # noqa: A001 (the name that users type is penstock.open)
    what: Any,
    *,
    index: str | os.PathLike[str] | None = None,
    progress: bool | View | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Source:
    """Return the records of a path, a pattern, a list of paths, a table, a frame or a list.

    A folder whose index is one of tokens, a pair of Megatron files (`.bin` and `.idx`) and a
    folder of MDS shards are opened as what they are. A list of one path is that path.

    Files that have no index get one on the way: in the folder itself, or under the cache
    directory for single files, patterns, remote data and folders that may not be written to;
    `index` names another place. `progress` shows or hides the bar.

    >>> source = open([{"id": 1}, {"id": 2}])
    >>> len(source), source[-1]
    (2, {'id': 2})
    """
    if isinstance(what, Source):
        return what
    if not _are_paths(what):
        from penstock.datasets._memory import in_memory  # noqa: PLC0415 (only when used)

        source = in_memory(what)
        if source is None:
            raise OptionError(
                f"cannot open {type(what).__qualname__}: expected a path, a pattern, a list of "
                "paths or of dicts, an Arrow table, a data frame, or a dataset with len and "
                "numbers."
            )
        if isinstance(what, list | tuple) and not what:
            _log.warning("an empty list was opened: there are no records, and no paths of any")
        return source
    if isinstance(what, list | tuple) and len(what) == 1:
        (what,) = what
    options = StorageOptions(storage_options)
    opened = _of_tokens(what, options, index, storage_options)
    if not isinstance(opened, Listing):
        return opened
    try:
        return _of_records(what, opened, options, index, storage_options, progress=progress)
    except CorruptIndexError:
        # Somebody made tokens of these records since this looked for an index.
        made = local_tokens(what, index)
        if made is None:
            raise
        return made


def _of_tokens(
    what: Any,
    options: StorageOptions,
    index: str | os.PathLike[str] | None,
    storage_options: Mapping[str, Any] | None,
) -> Source | Listing:
    """Return tokens or MDS samples, if that is what is there; else a listing of the files."""
    if isinstance(what, list | tuple):
        refuse_several(what, options)
    found = local_tokens(what, index)
    if found is None and is_of_pair(what):
        found = megatron_tokens(what, options, storage_options)
    if found is not None:
        return found
    try:
        listing = list_files(what, (), options)
    except ObjectNotFoundError:
        found = megatron_tokens(what, options, storage_options)  # What both names begin with.
        if found is None:
            raise
        return found
    found = mds_rows(listing, options, storage_options)
    if found is None and index is None:
        found = remote_tokens(listing, options)
    if found is None:
        refuse_inside(listing, options)
        found = megatron_pair(listing, options, storage_options)
    return listing if found is None else found


def _of_records(  # noqa: PLR0913 (as users give them)
    what: Any,
    listing: Listing,
    options: StorageOptions,
    index: str | os.PathLike[str] | None,
    storage_options: Mapping[str, Any] | None,
    *,
    progress: bool | View | None,
) -> Source:
    kind = _format_of(listing)
    chosen = _only(listing, kind)
    if kind == "CSV":
        from penstock.datasets.text._csv import CsvRows  # noqa: PLC0415

        tabs = all(found.entry.name.lower().endswith(".tsv") for found in chosen.files)
        return CsvRows(
            what,
            delimiter="\t" if tabs else ",",
            storage_options=storage_options,
            index=index,
            progress=progress,
        )
    if kind == "Parquet":
        from penstock.datasets.parquet._parquet import ParquetRows  # noqa: PLC0415

        return ParquetRows(what, storage_options=storage_options)
    from penstock.datasets.text._jsonl import JsonlDataset  # noqa: PLC0415

    found = open_or_build(chosen, LineScanner(), options=options, index=index, progress=progress)
    return JsonlDataset(found)


def _are_paths(what: Any) -> bool:
    if isinstance(what, str | os.PathLike):
        return True
    return (
        isinstance(what, list | tuple)
        and bool(what)
        and all(isinstance(one, str | os.PathLike) for one in what)
    )


def _only(listing: Listing, kind: str) -> Listing:
    """Keep the files of one format; of files that were named one by one none may be another."""
    files = [f for f in listing.files if f.entry.name.lower().endswith(_FORMATS[kind])]
    if listing.is_pattern and 0 < len(files) < len(listing.files):
        other = next(found for found in listing.files if found not in files)
        others = len(listing.files) - len(files)
        _log.warning("%s: %d files are of no such kind, first %s", kind, others, other.path)
    if listing.folder is not None or (listing.is_pattern and files):
        return replace(listing, files=files)
    if files and len(files) < len(listing.files):
        other = next(found for found in listing.files if found not in files)
        raise OptionError(f"{other.path} is named beside {files[0].path}, but is another format.")
    return listing


def _format_of(listing: Listing) -> str:
    """Return what the files are: by name, or a single unnamed one by its first bytes."""
    counts = {
        kind: sum(found.entry.name.lower().endswith(ends) for found in listing.files)
        for kind, ends in _FORMATS.items()
    }
    present = [kind for kind, count in counts.items() if count]
    shown = listing.folder or listing.named[0]
    if len(present) == 1:
        return present[0]
    if len(present) > 1:
        told = " and ".join(f"{counts[kind]:,} of {kind}" for kind in present)
        if listing.folder is None and not listing.is_pattern:
            raise OptionError(f"the files named are {told}; a source has one format.")
        example = f"{listing.base.rstrip('/')}/*{_FORMATS[present[0]][0]}"
        raise OptionError(f"{shown} holds {told}. Choose by a pattern: {example!r}")
    if not listing.files:
        if not listing.is_remote and os.path.isdir(join(shown, TOKEN_FOLDER)):
            raise ObjectNotFoundError(
                f"{shown} holds token files, but no index that tells of them. Tokenise again: "
                f"{rebuilding(shown, tokens=True)}",
                path=shown,
            )
        raise ObjectNotFoundError(f"{shown} holds no files with records.", path=shown)
    kinds = {_sniffed(found) for found in listing.files[:1]}
    kind = kinds.pop()
    if kind is None or listing.folder is not None:
        path = listing.files[0].path
        lone = " If it is of Megatron-LM its .idx is missing: copy both." * path.endswith(".bin")
        raise OptionError(
            f"cannot tell what {path} holds: its name ends in none of "
            f"{', '.join((*JSONL, '.csv', '.tsv', *PARQUET))}.{lone}"
        )
    return kind


def _sniffed(found: Found) -> str | None:
    if not found.entry.size:
        return None
    file = found.store.open(found.entry.name, found.entry)
    try:
        head = file.read_at(0, min(_HEAD_BYTES, file.size))
    finally:
        file.close()
    if head.startswith(b"PAR1"):
        return "Parquet"
    if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return "JSON Lines"
    return None
