"""The bytes of samples in MDS shards: mapped, by ranges, or out of whole shards kept a while."""

from __future__ import annotations

import bz2
import itertools
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock._words import counted
from penstock.datasets._foreign_file import check_unchanged, open_plain, stale
from penstock.datasets._recently_used import Owner, RecentlyUsed
from penstock.datasets._source import Location
from penstock.datasets.mds._values import Encoding, encoding_of
from penstock.datasets.text._texts import FileText, grouped, read_grouped
from penstock.errors import CorruptFileError, ObjectChangedError, ObjectNotFoundError, OptionError
from penstock.jsonl import decode_frame
from penstock.storage import Block, StorageOptions, block_cache, block_key, reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets.mds._index import MdsIndex, Shard
    from penstock.datasets.text._texts import Places

_KEPT_FILES = 128
_KEPT_BYTES = 256 << 20
"""Decompressed shards that a process keeps; one has 64 MiB by default."""
_KEPT_MAPPED_BYTES = 1 << 30
"""Mapped shards of the host's cache, which are in the page cache and not in the process."""
_MEMORY_WEIGHT = 4
"""How much heavier a shard weighs that could not be mapped: those take 256 MiB."""
_KEPT_OFFSETS_BYTES = 64 << 20
_MOST_SHARDS_AT_ONCE = 4
"""That are brought as a whole at the same time, each in memory until it is written."""
_NUMBER_BYTES = 4
_LARGEST = (1 << 32) - 1
"""Bytes of a shard: the places of its samples are uint32."""
_PIECE = 1 << 20
_COMPRESSIONS = ("br", "bz2", "gz", "snappy", "zstd")

_files: RecentlyUsed[FileText] = RecentlyUsed(_KEPT_FILES)
_wholes: RecentlyUsed[FileText] = RecentlyUsed(_KEPT_BYTES)
_blocks: RecentlyUsed[WholeText] = RecentlyUsed(_KEPT_MAPPED_BYTES)
_offsets: RecentlyUsed[NDArray[np.int64]] = RecentlyUsed(_KEPT_OFFSETS_BYTES)


class WholeText(FileText):
    """A shard that is at hand as a whole."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes | memoryview) -> None:
        self._text = memoryview(text)

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        begins = np.asarray(offsets)
        places = zip(begins.tolist(), (begins + np.asarray(sizes)).tolist(), strict=True)
        return [self._text[begin:end].tobytes() for begin, end in places]


class MdsSamples:
    """The numbers, the columns and the bytes of a folder's samples.

    With `by_blocks` a host keeps whole shards for all processes.
    """

    def __init__(self, index: MdsIndex, options: StorageOptions, *, by_blocks: bool) -> None:
        self.index = index
        self._shards = index.shards
        self._options = options
        self._by_blocks = by_blocks
        self._owner = Owner()
        self.fingerprint = index.fingerprint_of(len(index.shards))
        for shard in self._shards:
            _check(shard)
        self.starts = np.cumsum([0, *(one.samples for one in self._shards)], dtype=np.int64)
        self.encodings: dict[str, Encoding] = {}
        for name, kind, size in index.columns:
            encoding = self.encodings[name] = encoding_of(kind, name)
            if encoding.size != size:
                raise CorruptFileError(
                    f"{index.folder}: index.json says {size} bytes for column {name!r}, and its "
                    f"encoding {kind!r} has {encoding.size}. Write the folder anew.",
                    path=index.folder,
                )

    def places(self, ids: NDArray[np.int64]) -> Location:
        """Return the shard of each sample, where it begins there uncompressed, and its bytes."""
        shards = np.searchsorted(self.starts, ids, "right") - 1
        samples = ids - self.starts[shards]
        begins, ends = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        with reading():
            for here in grouped(shards):
                offsets = self._offsets_of(int(shards[here[0]]))
                begins[here], ends[here] = offsets[samples[here]], offsets[samples[here] + 1]
        return Location(shards, begins, ends - begins)

    def read(self, ids: NDArray[np.int64]) -> list[bytes]:
        """Return the bytes of samples in the order asked; every shard is asked once."""
        shards = np.searchsorted(self.starts, ids, "right") - 1
        samples = ids - self.starts[shards]
        asked = np.unique(shards).tolist()

        def read(here: NDArray[np.int64]) -> list[bytes]:
            shard = int(shards[here[0]])
            offsets = self._offsets_of(shard)
            begins, ends = offsets[samples[here]], offsets[samples[here] + 1]
            try:
                return self._text(shard).read_many(begins, ends - begins)
            except ObjectChangedError as why:
                raise stale(self._shards[shard].path, str(why)) from None

        with reading():
            self._held([shard for shard in asked if self._is_blocked(shard)])
            # Samples of a plain remote shard are asked for by ranges of it.
            are_ranges = [
                not (self._by_blocks or one.compression or one.is_mappable)
                for one in map(self._shards.__getitem__, asked)
            ]
            return read_grouped(shards, read, at_once=any(are_ranges))

    def _offsets_of(self, shard: int) -> NDArray[np.int64]:
        """Return where each sample begins, and the last one ends: int64[samples + 1]."""
        known = _offsets.get(self._owner, shard)
        if known is not None:
            return known
        one = self._shards[shard]
        size = _NUMBER_BYTES * (one.samples + 2)
        try:
            head = np.frombuffer(self._text(shard).read(0, size), "<u4")
        except ObjectChangedError as why:
            raise stale(one.path, str(why)) from None
        if head[0] != one.samples:
            raise _damaged(
                one, f"it says {counted(int(head[0]), 'sample')}, and index.json {one.samples:,}"
            )
        offsets = head[1:].astype(np.int64)
        if offsets[0] < size or offsets[-1] != one.text_bytes or (np.diff(offsets) < 0).any():
            raise _damaged(one, "its offsets do not rise from its head to its end")
        _offsets.put(self._owner, shard, offsets, offsets.nbytes)
        return offsets

    def _is_blocked(self, shard: int) -> bool:
        return self._by_blocks and not self._shards[shard].is_mappable

    def _held(self, shards: Sequence[int]) -> dict[int, WholeText]:
        """Return whole shards that the host keeps; those that are not at hand are brought."""
        found = {shard: _blocks.get(self._owner, shard) for shard in shards}
        missing = [shard for shard, text in found.items() if text is None]
        if missing:
            blocks = [self._block(self._shards[shard]) for shard in missing]
            brought = block_cache(self._options).get_all(blocks, _MOST_SHARDS_AT_ONCE)
            for shard, kept in zip(missing, brought, strict=True):
                text = found[shard] = WholeText(memoryview(kept.data))
                weight = kept.data.size * (1 if kept.is_mapped else _MEMORY_WEIGHT)
                _blocks.put(self._owner, shard, text, weight)
        return {shard: text for shard, text in found.items() if text is not None}

    def _block(self, one: Shard) -> Block:
        key = block_key(self._options, one.path, one.file.entry, "mds shard", one.compression)
        return Block(one.path, 0, one.file.entry.size, key, lambda: _whole(one))

    def _text(self, shard: int) -> FileText:
        if self._is_blocked(shard):
            return self._held([shard])[shard]
        one = self._shards[shard]
        is_whole = one.compression is not None
        kept = _wholes if is_whole else _files
        text = kept.get(self._owner, shard)
        if text is None:
            text = WholeText(_whole(one)) if is_whole else open_plain(one.file)
            kept.put(self._owner, shard, text, one.text_bytes if is_whole else 1)
        return text


def _check(shard: Shard) -> None:
    """Raise for an unknown compression, and for more samples than the bytes hold."""
    if shard.compression is not None and shard.compression not in _COMPRESSIONS:
        raise OptionError(
            f"{shard.path} is compressed by {shard.compression!r}: only "
            f"{', '.join(_COMPRESSIONS)} are known. Write the shards with one of those, or plain."
        )
    if not _NUMBER_BYTES * (shard.samples + 2) <= shard.text_bytes <= _LARGEST:
        raise _damaged(
            shard, f"its {shard.text_bytes:,} bytes do not hold {counted(shard.samples, 'sample')}"
        )


def _whole(one: Shard) -> bytes:
    """Return a whole shard, decompressed."""
    check_unchanged(one.file)
    try:
        with one.file.open() as file:
            data = file.read_at(0, one.file.entry.size)
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
