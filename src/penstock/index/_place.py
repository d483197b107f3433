"""Where the index of some files lies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.index._fingerprint import digest
from penstock.index._listing import INDEX_FOLDER
from penstock.storage import StorageOptions, cache_directory, is_remote, join, locate

if TYPE_CHECKING:
    from penstock.index._listing import Listing
    from penstock.index._scan import Scanner


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """The folder of an index, local or remote."""

    folder: str
    base: str
    """The folder that its paths are relative to."""
    options: StorageOptions
    beside: bool
    """Whether it lies in the folder that it describes, so that `meta.json` needs no base."""

    @property
    def is_remote(self) -> bool:
        """Whether it lies in an object store."""
        return is_remote(self.folder)


Place = IndexPlace
"""The same, for the modules that still use the short name."""


def place_of(
    listing: Listing,
    scanner: Scanner,
    options: StorageOptions,
    chosen: str | os.PathLike[str] | None = None,
    *,
    beside_remote: bool = False,
) -> IndexPlace:
    """Return where the index of these files lies, or would lie.

    A writable folder holds its own index; others are in the cache directory, under a hash of the
    names that the user gave. `chosen` overrides both.
    """
    if chosen is not None:
        store, name = locate(chosen, options)
        folder = store.path(name)
        beside = folder == join(listing.base, INDEX_FOLDER)
        return IndexPlace(folder, listing.base, options, beside)
    if listing.folder is not None and (
        beside_remote if listing.is_remote else os.access(listing.folder, os.W_OK | os.X_OK)
    ):
        return IndexPlace(join(listing.folder, INDEX_FOLDER), listing.folder, options, beside=True)
    if listing.folder is not None and not listing.is_remote:
        own = join(listing.folder, INDEX_FOLDER)
        if os.path.isdir(own):  # Read-only data that came with its index.
            return IndexPlace(own, listing.folder, options, beside=True)
    key = digest([scanner.kind, scanner.options(), listing.named])
    folder = str(cache_directory() / "indexes" / key)
    return IndexPlace(folder, listing.base, options, beside=False)
