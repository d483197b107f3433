"""A remote file of bytes without borders, by whole MiB that a host fetches once."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from penstock.datasets._recently_used import Kept
from penstock.datasets.text._block_texts import BLOCK_BYTES
from penstock.storage import Block, block_cache, block_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.datasets.text._texts import Places
    from penstock.index import Found
    from penstock.storage import StorageOptions

_KEPT_BYTES = 256 << 20
"""Of mapped blocks, which are in the page cache and not in a process."""
_MEMORY_WEIGHT = 4
"""How much heavier a block weighs that could not be mapped: those take 64 MiB."""


class CachedRanges:
    """Parts of a file out of whole blocks, numbered from its beginning; any thread may read."""

    def __init__(self, found: Found, options: StorageOptions) -> None:
        self._found = found
        self._options = options
        self._blocks: Kept[memoryview] = Kept(_KEPT_BYTES)

    def read(self, offset: int, size: int) -> bytes:
        return self.read_many([offset], [size])[0]

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        begins = np.asarray(offsets, np.int64)
        ends = begins + np.asarray(sizes, np.int64)
        spans = [
            range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES))
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        ]
        held = self._hold({number for span in spans for number in span})
        texts = []
        for span, begin, end in zip(spans, begins.tolist(), ends.tolist(), strict=True):
            parts = [held[n][max(0, begin - n * BLOCK_BYTES) : end - n * BLOCK_BYTES] for n in span]
            texts.append(b"".join(parts))
        return texts

    def _hold(self, numbers: Iterable[int]) -> dict[int, memoryview]:
        found = {number: self._blocks.get(number) for number in numbers}
        missing = [number for number, text in found.items() if text is None]
        brought = block_cache(self._options).get_all([self._block(n) for n in missing])
        for number, kept in zip(missing, brought, strict=True):
            text = found[number] = memoryview(kept.data)
            self._blocks.put(number, text, len(text) * (1 if kept.is_mapped else _MEMORY_WEIGHT))
        return {number: text for number, text in found.items() if text is not None}

    def _block(self, number: int) -> Block:
        found = self._found
        start = number * BLOCK_BYTES
        stop = min(start + BLOCK_BYTES, found.entry.size)

        def make() -> bytes:
            with closing(found.store.open(found.entry.name, found.entry)) as file:
                return file.read_at(start, stop - start)

        key = block_key(self._options, found.path, found.entry, "bytes", start, stop)
        return Block(found.path, start, stop, key, make)
