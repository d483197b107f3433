"""A source to work on: its index is built on the way, where `penstock.open` would put it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli._by_number import source_of, usable_index
from penstock.cli._formats import list_of_one_kind
from penstock.cli._indexed import places_of
from penstock.cli._other_sources import other_source
from penstock.cli._terminal import Progress
from penstock.datasets import column_folders
from penstock.datasets import open as open_source
from penstock.errors import CorruptIndexError, ObjectNotFoundError, StaleIndexError
from penstock.storage import is_remote, locate

if TYPE_CHECKING:
    from penstock.datasets import Source
    from penstock.storage import StorageOptions

_log = logging.getLogger("penstock.cli")


def open_indexed(path: str, options: StorageOptions, chosen: str | None = None) -> Source:
    """Return the records of PATH; what needs an index and has none gets it.

    An index that is stale or damaged is an error that names the command which repairs it.
    """
    other = other_source(path, options) if chosen is None else None
    if other is not None:
        return other
    indexed = usable_index(path, options, is_needed=True) if chosen is None else None
    if indexed is not None:
        return source_of(indexed, options)
    _, listing = list_of_one_kind(path, options)
    with Progress(listing.bytes) as progress:
        return open_source(path, index=chosen, progress=progress, storage_options=options)


def open_existing(path: str, options: StorageOptions, chosen: str | None = None) -> Source | None:
    """Return the records of PATH where no index has to be built for that, else None.

    An index that is stale or damaged is warned of, and is as good as none.
    """
    other = other_source(path, options) if chosen is None else None
    if other is not None:
        return other
    try:
        indexed = usable_index(path, options, chosen, is_needed=True)
        if indexed is not None:
            return source_of(indexed, options)
    except (CorruptIndexError, ObjectNotFoundError, StaleIndexError) as failure:
        _log.warning("%s", failure)
        return None
    kind, _ = list_of_one_kind(path, options)
    return open_source(path, storage_options=options) if kind == "parquet" else None


def folders_without_index(
    path: str, options: StorageOptions, chosen: str | None, target: str | None
) -> list[Path]:
    """Return where columns of PATH may lie whose index is stale, damaged or gone."""
    if target is not None and not is_remote(target):
        return [Path(locate(target)[1])]
    places = [place for _, place in places_of(path, options, chosen)]
    return [*dict.fromkeys(folder for place in places for folder in column_folders(place))]
