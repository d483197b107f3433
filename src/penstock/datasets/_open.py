"""`penstock.open`: a source from whatever holds records."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.datasets._source import Source
from penstock.errors import CorruptIndexError, OptionError
from penstock.index import load, look_at, open_or_build
from penstock.storage import StorageOptions

if TYPE_CHECKING:
    from penstock.index import Detected, Refresh
    from penstock.work import View

_log = logging.getLogger("penstock.datasets")


def open(  # noqa: A001, PLR0913 (the name that users type is penstock.open; options by name)
    what: Any,
    *,
    format: str | None = None,  # noqa: A002 (as users know it)
    index: str | os.PathLike[str] | None = None,
    split: str | None = None,
    refresh: Refresh = "auto",
    progress: bool | View | None = None,
    storage_options: Mapping[str, Any] | None = None,
    format_options: Mapping[str, Any] | None = None,
) -> Source:
    """Return the records of a path, a pattern, a list of paths, a table, a frame or a list.

    Files without an index get one on the way: in the folder itself, or under the cache directory
    for single files, patterns, remote data and read-only folders. Building reads every byte once;
    opening again costs one listing.

    Args:
        what: A path or URL, a pattern (`"logs/*.jsonl"`), a list of paths, a token folder, a pair
            of Megatron files (`.bin` and `.idx`), a folder of MDS shards, an Arrow table, a data
            frame, a list of dicts, or a dataset with `len` and numbers.
        format: The format of the files (`"jsonl"`, `"csv"`, `"parquet"` …), where their names and
            first bytes say another one, or nothing.
        index: The folder of the index, where the default place is slow, full or not shared. Every
            later call needs it again.
        split: The files of one split, by their names as hubs give them: `"train"` chooses
            `train-00000-of-00002.parquet`, `data/train/…` and `train.jsonl`. `valid`, `val` and
            `dev` are `validation`; `eval` is `test`. Other names match a folder, or the name of a
            file without its ending. Without it, files of several splits are all read, and the log
            says so.
        refresh: What becomes of an index whose files changed. "auto": one that `open` made is
            brought up to date; one that was built on purpose (`penstock index`) raises
            `StaleIndexError`. "update": any index gets what is new, and raises where a file
            changed, shrank or is gone. "rebuild": any index is built anew, each time. "never": no
            index is touched. New files and lines get the numbers after the others; building anew
            numbers all records again. Reads what is new, or with "rebuild" everything.
        progress: True or False shows or hides the bar of a build; by default a terminal shows it.
            An object with `add(count)` receives the bytes read.
        storage_options: Credentials, endpoint, retries and cache of remote paths; see
            `docs/storage.md`.
        format_options: How the files are written, where that cannot be found: of CSV the keywords
            of `penstock.datasets.CsvRows`. Other options make another index. Of tokens their type,
            `{"token_dtype": "uint32"}`, where a folder of data-forager does not settle it.

    >>> source = open([{"id": 1}, {"id": 2}])
    >>> len(source), source[-1]
    (2, {'id': 2})
    """
    if isinstance(what, Source):
        return what
    if not _are_paths(what):
        if format is not None or format_options or split is not None:
            raise OptionError("format=, format_options= and split= are for files, not for records.")
        from penstock.datasets._memory import in_memory  # noqa: PLC0415 (only when used)

        source = in_memory(what)
        if source is None:
            raise OptionError(
                f"cannot open {type(what).__qualname__}: expected a path, a pattern, a list of "
                "paths or of dicts, an Arrow table, a data frame, or a dataset with len and "
                "numbers. A DataLoader also takes records that only flow: penstock.stream."
            )
        if isinstance(what, list | tuple) and not what:
            _log.warning("an empty list was opened: there are no records, and no paths of any")
        return source
    options = StorageOptions(storage_options)
    look = partial(
        look_at,
        what,
        options,
        index,
        format_name=format,
        format_options=format_options,
        split=split,
    )
    found = look().checked()
    found.warn_of_left_out()
    found.warn_of_splits_and_copies()
    try:
        return open_found(found, progress=progress, refresh=refresh)
    except CorruptIndexError:
        # Another process may have made tokens of these records after the listing.
        again = look()
        if again.format is found.format:
            raise
        return open_found(again, progress=progress, refresh=refresh)


def open_found(
    found: Detected,
    *,
    made_with: Mapping[str, object] | None = None,
    progress: bool | View | None = None,
    refresh: Refresh = "auto",
) -> Source:
    """Return the source of what lies at a path; an index that it needs and has not is built.

    `made_with` are the options of an existing index, `refresh` is as for `open`.
    """
    opens = load(found.format.source)
    if found.format.scanner is None:
        has_place = found.format.has_index and found.index is not None
        chosen: dict[str, Any] = {"index": found.index} if has_place else {}
        chosen |= {} if found.split is None else {"split": found.split}
        source: Source = opens(found.what, storage_options=found.options, **chosen, **found.given)
    else:
        index = open_or_build(
            found.listing,
            found.scanner(made_with),
            options=found.options,
            index=found.index,
            progress=progress,
            given=found.given,
            refresh=refresh,
        )
        source = opens(index)
        found.warn_of_unguessed(index.meta)
    return source


def _are_paths(what: Any) -> bool:
    several = what if isinstance(what, list | tuple) else [what]
    return bool(several) and all(isinstance(one, str | os.PathLike) for one in several)
