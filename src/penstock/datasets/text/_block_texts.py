"""The bytes of records out of whole blocks that a host fetches or decompresses once."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from penstock.datasets._recently_used import RecentlyUsed
from penstock.datasets.text._texts import CACHED_BYTES, is_stream
from penstock.index import LARGEST_FRAME, rows_before
from penstock.jsonl import compression_of, decode_frame
from penstock.order import estimate
from penstock.storage import Block, Entry, StorageOptions, block_cache, block_key, is_remote, locate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.index import Meta, SampleIndex

BLOCK_BYTES = 1 << 20
"""Bytes of a plain file between the beginnings of two blocks; then they end with a record."""
_KEPT_BYTES = 512 << 20
"""Mapped blocks, which are in the page cache and not in the process; more than a window has."""
_MEMORY_WEIGHT = 8
"""How much heavier a block weighs that could not be mapped: those take 64 MiB."""
_NONE, _PLAIN, _FRAMED = 0, 1, 2
_RUN = 1 << 40

_held: RecentlyUsed[tuple[int, memoryview]] = RecentlyUsed(_KEPT_BYTES)
"""Where the text of a block begins, and the text."""


def hold(
    owner: object,
    numbers: Sequence[int],
    describe: Callable[[list[int]], list[tuple[int, Block]]],
    options: StorageOptions,
) -> dict[int, tuple[int, memoryview]]:
    """Return numbered blocks of an owner; those that are not at hand are brought at once."""
    held = {number: _held.get((owner, number)) for number in numbers}
    missing = [number for number, found in held.items() if found is None]
    if missing:
        starts, blocks = zip(*describe(missing), strict=True)
        brought = block_cache(options).get_all(blocks)
        for number, start, kept in zip(missing, starts, brought, strict=True):
            found = held[number] = start, memoryview(kept.data)
            weight = kept.data.size * (1 if kept.is_mapped else _MEMORY_WEIGHT)
            _held.put((owner, number), found, weight)
    return {number: found for number, found in held.items() if found is not None}


class BlockTexts:
    """Where the blocks of an index's files are, and their text.

    It has the remote files, and the local ones whose frames are so large that a process cannot keep
    those which are in use at a time.

    A block of a plain file is the records that begin in the same MiB of a run of records, and of
    a zstd file a frame; its text is what is kept on disk. They are numbered: a run and a MiB in
    it, or a frame, below zero. Any number of threads may read.
    """

    def __init__(self, index: SampleIndex, meta: Meta) -> None:
        self._index = index
        self._rows = index.sample_locations
        self._meta = meta
        self._options = index.origin.options if index.origin is not None else StorageOptions()
        self._owner = object()
        self._starts = meta.starts()
        # A run without records has no first one: it is never read.
        firsts = np.minimum(self._starts[:-1], max(0, len(self._rows) - 1))
        self._run_offsets = self._rows[firsts, 1].astype(np.int64)
        files = np.arange(len(index.file_locations) + 1)
        self._frame_borders = np.searchsorted(np.ascontiguousarray(index.frames[:, 0]), files)
        # The frames that a process keeps suffice unless they are large.
        frame_bytes = np.minimum(index.frames[:, 4], LARGEST_FRAME).astype(np.int64)
        open_bytes = estimate(frame_bytes, "block", cache_bytes=_RUN).open_bytes
        self._is_wide = open_bytes > CACHED_BYTES
        self._kinds = np.array([self._kind(n) for n in range(len(index.file_locations))], np.int8)

    def _kind(self, file: int) -> int:
        path = self._index.file_locations[file]
        compression = compression_of(path)
        if not is_remote(path) and (compression is None or not self._is_wide):
            return _NONE
        if compression is None:
            return _PLAIN
        return _NONE if is_stream(self._index, file) else _FRAMED

    def __bool__(self) -> bool:
        """Whether any file is read by blocks."""
        return bool(self._kinds.any())

    def has(self, files: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these files are read by blocks."""
        has: NDArray[np.bool_] = self._kinds[files] != _NONE
        return has

    def read(self, ids: NDArray[np.int64], rows: NDArray[np.int64]) -> list[bytes]:
        """Return each record's own bytes; blocks that are not at hand are brought at once.

        `rows` are those of `SampleIndex.rows_of`.
        """
        firsts, lasts = self._blocks_of(ids, rows)
        wanted, back = np.unique(firsts, return_inverse=True)
        inner = [
            range(last, first) for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)
            if last != first
        ]  # fmt: skip
        numbers = [*wanted.tolist(), *{number for span in inner for number in span}]
        held = hold(self._owner, numbers, self._described, self._options)
        views = [held[number][1] for number in wanted.tolist()]
        begins = rows[:, 1] - np.array([held[n][0] for n in wanted.tolist()], np.int64)[back]
        ends = begins + rows[:, 2]
        places = zip(back.tolist(), begins.tolist(), ends.tolist(), strict=True)
        texts = [views[at][begin:end].tobytes() for at, begin, end in places]
        if inner:
            for at in np.flatnonzero(firsts != lasts).tolist():
                parts = [held[n][1] for n in range(int(firsts[at]), int(lasts[at]) - 1, -1)]
                texts[at] = b"".join(parts)[int(begins[at]) : int(ends[at])]
        if int(begins.min()) < 0 or sum(map(len, texts)) != int(rows[:, 2].sum()):
            raise self._index.damaged("records do not lie in the blocks that hold them")
        return texts

    def _blocks_of(
        self, ids: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of each record's first block, and of its last."""
        runs = np.searchsorted(self._starts, ids, "right") - 1
        units = (rows[:, 1] - self._run_offsets[runs]) // BLOCK_BYTES
        if ((units < 0) | (units >= _RUN)).any():
            raise self._index.damaged("records of a file do not follow each other")
        firsts = runs * _RUN + units
        framed = np.flatnonzero(self._kinds[rows[:, 0]] == _FRAMED)
        if not len(framed):
            return firsts, firsts
        lasts = firsts.copy()
        files, begins, sizes = rows[framed].T
        low, high = self._frame_borders[files], self._frame_borders[files + 1]

        def text_offset(frames: NDArray[np.int64]) -> NDArray[np.uint64]:
            offsets: NDArray[np.uint64] = self._index.frames[frames, 3]
            return offsets

        # The last frame that begins at the record or before, and the last before its end.
        firsts[framed] = -rows_before(text_offset, begins + 1, low, high)
        lasts[framed] = np.minimum(
            -rows_before(text_offset, begins + sizes, low, high), firsts[framed]
        )
        return firsts, lasts

    def _described(self, numbers: list[int]) -> list[tuple[int, Block]]:
        """Return where the text of each block begins, and the block."""
        described = {}
        plain = np.array([number for number in numbers if number >= 0], np.int64)
        runs, units = np.divmod(plain, _RUN)
        firsts, behinds = (
            rows_before(
                lambda rows: self._rows[rows, 1],
                self._run_offsets[runs] + at * BLOCK_BYTES,
                self._starts[runs],
                self._starts[runs + 1],
            )
            for at in (units, units + 1)
        )
        if (firsts >= behinds).any():
            raise self._index.damaged("records of a file do not follow each other")
        for number, first, last in zip(
            plain, self._rows[firsts], self._rows[behinds - 1], strict=True
        ):
            (file, start, _), (_, begin, size) = first.tolist(), last.tolist()
            described[int(number)] = start, self._block(file, start, begin + size, None)
        for number in numbers:
            if number < 0:
                file, offset, size, *text = self._index.frames[-number - 1].tolist()
                described[number] = text[0], self._block(file, offset, offset + size, text[1])
        return [described[number] for number in numbers]

    def _block(self, file: int, start: int, stop: int, text_bytes: int | None) -> Block:
        if file >= len(self._meta.files) or not start <= stop <= self._meta.files[file].size:
            raise self._index.damaged(f"bytes {start:,} to {stop:,} of file {file:,} are not there")
        path, meta = self._index.file_locations[file], self._meta.files[file]
        store, name = locate(path, self._options)
        entry = Entry(name, meta.size, meta.modified, meta.version)

        def make() -> bytes:
            with closing(store.open(name, entry)) as opened:
                data = opened.read_at(start, stop - start)
            return data if text_bytes is None else decode_frame(data, text_bytes, path, start)

        kind = "bytes" if text_bytes is None else "zstd text"
        key = block_key(self._options, path, entry, kind, start, stop)
        return Block(path, start, stop, key, make)
