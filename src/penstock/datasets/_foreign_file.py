"""Files of datasets that other tools wrote: read as they were when the source was opened."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from penstock.datasets._network import is_network
from penstock.datasets.text._block_texts import BLOCK_BYTES, hold
from penstock.datasets.text._texts import FileText, MappedText, RangedText
from penstock.errors import ObjectNotFoundError, StaleIndexError
from penstock.storage import Block, LocalStore, block_key

if TYPE_CHECKING:
    from penstock.datasets.text._texts import Places
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


class CachedRanges(FileText):
    """Parts of a file out of whole blocks, numbered from its beginning; any thread may read."""

    def __init__(self, found: Found, options: StorageOptions) -> None:
        self._found = found
        self._options = options

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        begins = np.asarray(offsets, np.int64)
        ends = begins + np.asarray(sizes, np.int64)
        spans = [
            range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES))
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
        numbers = sorted({number for span in spans for number in span})
        held = hold(self, numbers, self._described, self._options)
        texts = []
        for span, begin, end in zip(spans, begins.tolist(), ends.tolist(), strict=True):
            parts = [held[number] for number in span]
            texts.append(b"".join(text[max(0, begin - at) : end - at] for at, text in parts))
        return texts

    def _described(self, numbers: list[int]) -> list[tuple[int, Block]]:
        return [(number * BLOCK_BYTES, self._block(number)) for number in numbers]

    def _block(self, number: int) -> Block:
        found = self._found
        start = number * BLOCK_BYTES
        stop = min(start + BLOCK_BYTES, found.entry.size)

        def make() -> bytes:
            with closing(found.store.open(found.entry.name, found.entry)) as file:
                return file.read_at(start, stop - start)

        key = block_key(self._options, found.path, found.entry, "bytes", start, stop)
        return Block(found.path, start, stop, key, make)
