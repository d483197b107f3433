"""A source to work on: its index is built on the way, where `penstock.open` would put it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli._by_number import source_of, usable_index
from penstock.cli._formats import list_of_one_kind
from penstock.cli._terminal import Progress
from penstock.datasets import open as open_source

if TYPE_CHECKING:
    from penstock.datasets import Source
    from penstock.storage import StorageOptions


def open_indexed(path: str, options: StorageOptions, chosen: str | None = None) -> Source:
    """Return the records of PATH; what needs an index and has none gets it.

    An index that is stale or damaged is an error that names the command which repairs it.
    """
    indexed = usable_index(path, options, is_needed=True) if chosen is None else None
    if indexed is not None:
        return source_of(indexed, options)
    _, listing = list_of_one_kind(path, options)
    with Progress(listing.bytes) as progress:
        return open_source(path, index=chosen, progress=progress, storage_options=options)


def open_existing(path: str, options: StorageOptions, chosen: str | None = None) -> Source | None:
    """Return the records of PATH where no index has to be built for that, else None."""
    indexed = usable_index(path, options, chosen, is_needed=True)
    if indexed is not None:
        return source_of(indexed, options)
    kind, _ = list_of_one_kind(path, options)
    return open_source(path, storage_options=options) if kind == "parquet" else None
