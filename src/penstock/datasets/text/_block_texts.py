"""The text of files out of whole blocks, which a host fetches or decompresses once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from penstock.datasets._recently_used import RecentlyUsed
from penstock.datasets.text._texts import CACHED_BYTES, PartedText, is_stream
from penstock.index import LARGEST_FRAME, Found, rows_before
from penstock.jsonl import compression_of, decode_frame
from penstock.order import estimate
from penstock.storage import Block, Entry, StorageOptions, block_cache, block_key, is_remote, locate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index import Meta, SampleIndex

    Runs = Sequence[tuple[int, int]]

BLOCK_BYTES = 1 << 20
"""Bytes of a plain file between the beginnings of two blocks; then they end with a record."""
_KEPT_BYTES = 512 << 20
"""Mapped blocks, which are in the page cache and not in the process; more than a window has."""
_MEMORY_WEIGHT = 8
"""How much heavier a block weighs that could not be mapped: those take 64 MiB."""


class BlockText(PartedText):
    """A file whose parts are blocks, which are kept as text on the disk of this host."""

    _held = RecentlyUsed(_KEPT_BYTES)

    def __init__(
        self,
        found: Found,
        options: StorageOptions,
        parts: NDArray[np.int64],
        *,
        compressed: bool = False,
    ) -> None:
        super().__init__(found.path, parts)
        self._found, self._options, self._compressed = found, options, compressed

    def _bring(self, numbers: list[int]) -> Iterator[tuple[memoryview, int]]:
        for kept in block_cache(self._options).get_all([*map(self._block, numbers)]):
            yield memoryview(kept.data), len(kept.data) * (1 if kept.is_mapped else _MEMORY_WEIGHT)

    def is_at_hand(self, begin: NDArray[np.int64], end: NDArray[np.int64]) -> bool:
        """Whether this process holds the blocks of these records."""
        _, _, numbers = self._spans(begin, end)
        return all(self._held.get(self._owner, number) is not None for number in numbers)

    def _block(self, number: int) -> Block:
        found, is_compressed = self._found, self._compressed
        start, size, _, text_bytes = self._parts[number].tolist()

        def make() -> bytes:
            with found.open() as file:
                data = file.read_at(start, size)
            return decode_frame(data, text_bytes, found.path, start) if is_compressed else data

        kind = "zstd text" if is_compressed else "bytes"
        key = block_key(self._options, found.path, found.entry, kind, start, start + size)
        return Block(found.path, start, start + size, key, make)


def plain_parts(starts: NDArray[np.int64], end: int) -> NDArray[np.int64]:
    """Return the parts of a plain text that begin at these bytes, for a `PartedText`."""
    sizes = np.diff(starts, append=end)
    return np.stack([starts, sizes, starts, sizes], axis=1)


def blocked_runs(index: SampleIndex, meta: Meta) -> dict[int, Runs]:
    """Return the files that are read by blocks, each with its runs of records.

    These are remote files, and local ones with frames so large that a process cannot keep those
    which are in use at a time.
    """
    frame_bytes = np.minimum(index.frames[:, 4], LARGEST_FRAME).astype(np.int64)
    is_wide = estimate(frame_bytes, "block", cache_bytes=1 << 40).open_bytes > CACHED_BYTES
    found: dict[int, list[tuple[int, int]]] = {}
    for run, ends in zip(meta.runs, pairwise(meta.starts().tolist()), strict=True):
        path = index.file_locations[run.file]
        is_far = is_remote(path) or (is_wide and compression_of(path) is not None)
        if is_far and ends[0] < ends[1] and not is_stream(index, run.file):
            found.setdefault(run.file, []).append(ends)
    return dict(found)


def open_blocks(index: SampleIndex, meta: Meta, file: int, runs: Runs) -> BlockText:
    """Open a file of `blocked_runs`.

    A block of a plain file is the records that begin in the same MiB of a run, and of a zstd file
    a frame.
    """
    known = meta.files[file]
    options = StorageOptions() if index.origin is None else index.origin.options
    store, name = locate(index.file_locations[file], options)
    found = Found(store, Entry(name, known.size, known.modified, known.version))
    frames = index.frames_of(file)[:, 1:].astype(np.int64)
    if len(frames):
        return BlockText(found, options, frames, compressed=True)
    firsts = [part for run in runs for part in ([run[0]], block_firsts(index, file, *run))]
    rows = index.rows_of(np.concatenate([*firsts, [runs[-1][1] - 1]]))
    end = int(rows[-1, 1:].sum())
    parts = plain_parts(rows[:-1, 1], end)
    if (parts[:, 1] < 0).any() or (rows[:, 0] != file).any() or end > known.size:
        raise index.damaged("records of a file do not follow each other")
    return BlockText(found, options, parts)


def block_firsts(index: SampleIndex, file: int, low: int, high: int) -> NDArray[np.int64]:
    """Return the first records of the blocks of one run but the first."""
    rows = index.sample_locations
    begins = index.frames_of(file)[:, 3].astype(np.int64)
    if not len(begins):
        first, last = index.rows_of(np.array([low, high - 1], np.int64))[:, 1].tolist()
        if (last - first) // BLOCK_BYTES > high - low:
            # Few records, and large ones: there are more blocks than records.
            units = (rows[low:high, 1].astype(np.int64) - first) // BLOCK_BYTES
            return low + np.flatnonzero(units[1:] != units[:-1]) + 1
        begins = np.arange(first + BLOCK_BYTES, last + 1, BLOCK_BYTES, dtype=np.int64)
    return rows_before(
        lambda some: rows[some, 1],
        begins,
        np.full(len(begins), low, np.int64),
        np.full(len(begins), high, np.int64),
    )
