"""Files of datasets that other tools wrote: read as they were when the source was opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.datasets._network import is_network
from penstock.datasets.text._block_texts import BLOCK_BYTES, BlockText, plain_parts
from penstock.datasets.text._texts import MappedText, RangedText
from penstock.errors import ObjectNotFoundError, StaleIndexError
from penstock.storage import LocalStore

if TYPE_CHECKING:
    from penstock.datasets.text._texts import FileText
    from penstock.index import Found
    from penstock.storage import StorageOptions

_REOPEN = "Open the source again."


def open_plain(found: Found) -> FileText:
    """Open an uncompressed file: mapped, or by ranges where it is remote."""
    check_unchanged(found)
    if isinstance(found.store, LocalStore) and not is_network(found.entry.name):
        return MappedText(found.entry.name, found.path, _REOPEN)
    return RangedText(found.store.open(found.entry.name, found.entry))


def check_unchanged(found: Found) -> None:
    """Raise when a local file was written to; remote reads ask for the version that was found."""
    if isinstance(found.store, LocalStore):
        try:
            now = found.store.entry(found.entry.name)
        except ObjectNotFoundError:
            raise stale(found.path, "it is gone") from None
        if (now.size, now.modified) != (found.entry.size, found.entry.modified):
            sizes = f"{found.entry.size:,} bytes then, {now.size:,} now"
            raise stale(found.path, f"it was written to ({sizes})")


def stale(path: str, why: str) -> StaleIndexError:
    """Return the error about a file that changed under a source."""
    return StaleIndexError(
        f"{path} is not what it was when this source was opened: {why}. {_REOPEN}",
        path=path,
    )


def open_blocks_of(found: Found, options: StorageOptions) -> BlockText:
    """Open a plain file by blocks of one size, numbered from its beginning."""
    starts = np.arange(0, found.entry.size, BLOCK_BYTES, dtype=np.int64)
    return BlockText(found, options, plain_parts(starts, found.entry.size))
