"""The bytes of samples in MDS shards: mapped, by ranges, or out of whole shards kept a while."""

from __future__ import annotations

import bz2
import itertools
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from penstock.datasets._foreign_file import check_unchanged, open_plain, stale
from penstock.datasets._recently_used import RecentlyUsed
from penstock.errors import (
    CorruptFileError,
    ObjectChangedError,
    ObjectNotFoundError,
    OptionError,
)
from penstock.jsonl import decode_frame
from penstock.storage import Block, block_cache, block_key, carried, reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.datasets.mds._index import Shard
    from penstock.datasets.text._texts import FileText, Places
    from penstock.storage import StorageOptions

_KEPT_FILES = 128
_KEPT_BYTES = 256 << 20
"""Decompressed shards that a process keeps; one has 64 MiB by default."""
_KEPT_MAPPED_BYTES = 1 << 30
"""Mapped shards of the host's cache, which are in the page cache and not in the process."""
_MEMORY_WEIGHT = 4
"""How much heavier a shard weighs that could not be mapped: those take 256 MiB."""
_KEPT_OFFSETS_BYTES = 64 << 20
_MOST_REQUESTS = 16
_MOST_SHARDS_AT_ONCE = 4
"""That are brought as a whole at the same time, each in memory until it is written."""
_NUMBER_BYTES = 4
_LARGEST = (1 << 32) - 1
"""Bytes of a shard: the places of its samples are uint32."""
_PIECE = 1 << 20
_COMPRESSIONS = ("br", "bz2", "gz", "snappy", "zstd")

_files: RecentlyUsed[FileText] = RecentlyUsed(_KEPT_FILES)
_wholes: RecentlyUsed[WholeText] = RecentlyUsed(_KEPT_BYTES)
_blocks: RecentlyUsed[WholeText] = RecentlyUsed(_KEPT_MAPPED_BYTES)
_offsets: RecentlyUsed[NDArray[np.int64]] = RecentlyUsed(_KEPT_OFFSETS_BYTES)
_openings = itertools.count()


class WholeText:
    """A shard that is at hand as a whole."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes | memoryview) -> None:
        self._text = memoryview(text)

    def read(self, offset: int, size: int) -> bytes:
        return self._text[offset : offset + size].tobytes()

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        places = zip(np.asarray(offsets).tolist(), np.asarray(sizes).tolist(), strict=True)
        return [self.read(offset, size) for offset, size in places]


class ShardTexts:
    """The samples of some shards; with `by_blocks` a host keeps whole shards for all processes."""

    def __init__(
        self, shards: Sequence[Shard], options: StorageOptions, *, by_blocks: bool = False
    ) -> None:
        for shard in shards:
            _check_compression(shard)
            _check_size(shard)
        self._shards = shards
        self._options = options
        self._by_blocks = by_blocks
        self._opening = next(_openings)

    def places(
        self, shards: NDArray[np.int64], samples: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where samples of shards begin in the uncompressed shard, and their bytes."""
        begins, sizes = np.empty(len(shards), np.int64), np.empty(len(shards), np.int64)
        with reading():
            for shard, here in _grouped(shards):
                offsets = self._offsets_of(shard)
                begins[here] = offsets[samples[here]]
                sizes[here] = offsets[samples[here] + 1] - begins[here]
        return begins, sizes

    def read(self, shards: NDArray[np.int64], samples: NDArray[np.int64]) -> list[bytes]:
        """Return the bytes of samples in the order asked; every shard is asked once."""
        groups = _grouped(shards)

        def read(group: tuple[int, NDArray[np.int64]]) -> list[bytes]:
            shard, here = group
            offsets = self._offsets_of(shard)
            begins, ends = offsets[samples[here]], offsets[samples[here] + 1]
            try:
                return self._text(shard).read_many(begins, ends - begins)
            except ObjectChangedError as why:
                raise stale(self._shards[shard].path, str(why)) from None

        found: list[bytes] = [b""] * len(shards)
        with reading():
            self._bring([shard for shard, _ in groups])
            if len(groups) > 1 and any(self._is_ranged(shard) for shard, _ in groups):
                with ThreadPoolExecutor(min(_MOST_REQUESTS, len(groups)), "penstock-read") as pool:
                    texts = list(pool.map(carried(read), groups))
            else:
                texts = [read(group) for group in groups]
        for (_, here), some in zip(groups, texts, strict=True):
            for at, text in zip(here.tolist(), some, strict=True):
                found[at] = text
        return found

    def _offsets_of(self, shard: int) -> NDArray[np.int64]:
        """Return where each sample begins, and the last one ends: int64[samples + 1]."""
        offsets = _offsets.get((self._opening, shard))
        if offsets is None:
            offsets = self._read_offsets(shard)
            _offsets.put((self._opening, shard), offsets, offsets.nbytes)
        return offsets

    def _read_offsets(self, shard: int) -> NDArray[np.int64]:
        one = self._shards[shard]
        size = _NUMBER_BYTES * (one.samples + 2)
        try:
            head = np.frombuffer(self._text(shard).read(0, size), "<u4")
        except ObjectChangedError as why:
            raise stale(one.path, str(why)) from None
        if head[0] != one.samples:
            raise _damaged(one, f"it says {head[0]:,} samples, and index.json {one.samples:,}")
        offsets = head[1:].astype(np.int64)
        if offsets[0] < size or offsets[-1] != one.text_bytes or (np.diff(offsets) < 0).any():
            raise _damaged(one, "its offsets do not rise from its head to its end")
        return offsets

    def _is_ranged(self, shard: int) -> bool:
        """Whether samples of a shard are asked for by ranges of a remote file."""
        one = self._shards[shard]
        return not (self._by_blocks or one.compression or one.is_mappable)

    def _bring(self, shards: Sequence[int]) -> None:
        """Fetch those whole shards at once that are not at hand, where a host keeps them."""
        missing = [
            shard
            for shard in shards
            if self._is_blocked(shard) and _blocks.get((self._opening, shard)) is None
        ]
        if not missing:
            return
        blocks = [self._block(self._shards[shard]) for shard in missing]
        brought = block_cache(self._options).get_all(blocks, _MOST_SHARDS_AT_ONCE)
        for shard, kept in zip(missing, brought, strict=True):
            weight = kept.data.size * (1 if kept.is_mapped else _MEMORY_WEIGHT)
            _blocks.put((self._opening, shard), WholeText(memoryview(kept.data)), weight)

    def _is_blocked(self, shard: int) -> bool:
        return self._by_blocks and not self._shards[shard].is_mappable

    def _block(self, one: Shard) -> Block:
        key = block_key(self._options, one.path, one.file.entry, "mds shard", one.compression)
        return Block(one.path, 0, one.file.entry.size, key, lambda: _whole(one))

    def _text(self, shard: int) -> FileText:
        one, key = self._shards[shard], (self._opening, shard)
        if self._is_blocked(shard):
            blocked = _blocks.get(key)
            if blocked is None:
                # Others needed the room meanwhile.
                kept = block_cache(self._options).get(self._block(one))
                blocked = WholeText(memoryview(kept.data))
            return blocked
        if one.compression is not None:
            whole = _wholes.get(key)
            if whole is None:
                whole = WholeText(_whole(one))
                _wholes.put(key, whole, one.text_bytes)
            return whole
        text = _files.get(key)
        if text is None:
            text = open_plain(one.file)
            _files.put(key, text, 1)
        return text


def _grouped(shards: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return each shard with the places at which it stands."""
    if not len(shards):
        return []
    order = np.argsort(shards, kind="stable")
    borders = np.flatnonzero(np.diff(shards[order])) + 1
    return [(int(shards[here[0]]), here) for here in np.split(order, borders)]


def _check_compression(shard: Shard) -> None:
    if shard.compression is not None and shard.compression not in _COMPRESSIONS:
        raise OptionError(
            f"{shard.path} is compressed by {shard.compression!r}: only "
            f"{', '.join(_COMPRESSIONS)} are known. Write the shards with one of those, or plain."
        )


def _check_size(shard: Shard) -> None:
    """Raise where `index.json` has more samples than bytes, or more than a shard holds."""
    least = _NUMBER_BYTES * (shard.samples + 2)
    if not least <= shard.text_bytes <= _LARGEST:
        raise _damaged(shard, f"{shard.samples:,} samples do not fit {shard.text_bytes:,} bytes")


def _whole(one: Shard) -> bytes:
    """Return a whole shard, decompressed."""
    check_unchanged(one.file)
    entry = one.file.entry
    try:
        with closing(one.file.store.open(entry.name, entry)) as file:
            data = file.read_at(0, entry.size)
    except (ObjectChangedError, ObjectNotFoundError) as why:
        raise stale(one.path, str(why)) from None
    if one.compression is None:
        return data
    if one.compression == "zstd":
        return decode_frame(data, one.text_bytes, one.path, 0)
    try:
        text = _decompressed(one.compression, data, one.text_bytes)
    except (OSError, ValueError, EOFError, zlib.error) as why:
        raise _damaged(one, f"its {one.compression} data cannot be read ({why})") from None
    if len(text) != one.text_bytes:
        raise _damaged(one, f"decompressed it has not the {one.text_bytes:,} bytes of index.json")
    return text


def _decompressed(compression: str, data: bytes, size: int) -> bytes:
    """Return the text of some data, decompressed at most one byte too far."""
    if compression == "gz":
        return zlib.decompressobj(wbits=31).decompress(data, size + 1)
    if compression == "bz2":
        return bz2.BZ2Decompressor().decompress(data, size + 1)
    import pyarrow as pa  # noqa: PLC0415 (only when used)

    if compression == "br":
        # Piece by piece: memory is taken for what there is, not for what index.json says.
        with pa.input_stream(pa.BufferReader(data), compression="brotli") as stream:
            pieces = iter(lambda: stream.read(min(_PIECE, size + 1)), b"")
            return b"".join(itertools.islice(pieces, size // _PIECE + 2))
    if _snappy_bytes(data) != size:
        raise ValueError("its head says another size")
    text: bytes = pa.decompress(data, size, "snappy", asbytes=True)
    return text


def _snappy_bytes(data: bytes) -> int:
    """Return the size of the text that snappy data begins with: 7 bits a byte, the lowest first."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            break
    return size


def _damaged(one: Shard, why: str) -> CorruptFileError:
    return CorruptFileError(
        f"{one.path} is damaged: {why}. Copy it again, or write it anew.", path=one.path
    )
