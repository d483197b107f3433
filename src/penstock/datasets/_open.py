"""`penstock.open`: a source from whatever holds records."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from penstock.datasets._source import Source
from penstock.errors import CorruptIndexError, OptionError
from penstock.index import load, look_at, open_or_build
from penstock.storage import StorageOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.index import Detected
    from penstock.work import View

_log = logging.getLogger("penstock.datasets")


def open(  # noqa: A001 (the name that users type is penstock.open)
    what: Any,
    *,
    index: str | os.PathLike[str] | None = None,
    progress: bool | View | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Source:
    """Return the records of a path, a pattern, a list of paths, a table, a frame or a list.

    Files without an index get one on the way: in the folder itself, or under the cache directory
    for single files, patterns, remote data and read-only folders. Building reads every byte once;
    opening again costs one listing.

    Args:
        what: A path or URL, a pattern (`"logs/*.jsonl"`), a list of paths, a token folder, a pair
            of Megatron files (`.bin` and `.idx`), a folder of MDS shards, an Arrow table, a data
            frame, a list of dicts, or a dataset with `len` and numbers.
        index: The folder of the index, where the default is not writable or not shared.
        progress: True or False shows or hides the bar of a build; by default a terminal shows it.
            An object with `add(count)` receives the bytes read.
        storage_options: Credentials, endpoint, retries and cache of remote paths; see
            `docs/storage.md`.

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
    options = StorageOptions(storage_options)
    found = look_at(what, options, index).checked()
    try:
        return open_found(found, progress=progress)
    except CorruptIndexError:
        # Another process may have made tokens of these records after the listing.
        again = look_at(what, options, index)
        if again.format is found.format:
            raise
        return open_found(again, progress=progress)


def open_found(
    found: Detected,
    *,
    made_with: Mapping[str, object] | None = None,
    progress: bool | View | None = None,
) -> Source:
    """Return the source of what lies at a path; an index that it needs and has not is built.

    `made_with` are the options of an existing index.
    """
    opens = load(found.format.source)
    if found.format.scanner is None:
        has_place = found.format.has_index and found.index is not None
        chosen = {"index": found.index} if has_place else {}
        source: Source = opens(found.what, storage_options=found.options, **chosen)
        return source
    index = open_or_build(
        found.listing,
        found.scanner(made_with),
        options=found.options,
        index=found.index,
        progress=progress,
    )
    records: Source = opens(index)
    return records


def _are_paths(what: Any) -> bool:
    if isinstance(what, str | os.PathLike):
        return True
    return (
        isinstance(what, list | tuple)
        and bool(what)
        and all(isinstance(one, str | os.PathLike) for one in what)
    )
