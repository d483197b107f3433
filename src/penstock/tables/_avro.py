"""Avro files: blocks of records between sync markers, which are found by going through the file.

https://avro.apache.org/docs/1.12.0/specification/#object-container-files
"""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import lzma
import zlib
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import zstandard

from penstock._lazy import require
from penstock._words import counted
from penstock.decode import NumbersType, numbers_in, typed_column
from penstock.errors import SchemaMismatchError, UnsupportedFileError
from penstock.storage import reading
from penstock.tables._avro_types import arrow_schema
from penstock.tables._head import DamagedHeadError, TableHead, allowed_bytes, too_large
from penstock.tables._varint import signed, varint

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penstock.storage import OpenFile
    from penstock.tables._head import Remember

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_HEADER_BYTES = 64 << 10
_MOST_HEADER_BYTES = 64 << 20
_WINDOW = 8 << 20
_LARGE_BLOCK = 1 << 20
"""Blocks of this size are jumped over; smaller ones are read, because a request costs more."""
_NUMBERS_BYTES = 20
_UNIT_BYTES = 64 << 10
"""Bytes between the beginnings of two units: small blocks are read together."""


@dataclass(frozen=True, kw_only=True)
class AvroHead(TableHead):
    """The header of a file, and the places of its blocks."""

    unit: ClassVar = "block"

    blocks: NDArray[np.int64]
    """First byte, bytes and records of each block, int64[blocks, 3]."""
    firsts: NDArray[np.int64]
    """The first block of each unit, and the number of all blocks."""
    codec: str
    sync: bytes
    decoded_as: Any
    """The schema for fastavro, without logical types that Arrow takes as numbers."""

    def _columns(
        self, file: OpenFile, unit: int, schema: pa.Schema, *, at_once: bool
    ) -> pa.RecordBatch:
        blocks = self.blocks[self.firsts[unit] : self.firsts[unit + 1]].tolist()
        first, end = blocks[0][0], sum(blocks[-1][:2]) + _SYNC_BYTES
        with reading():
            data = file.read_at(first, end - first)
        records: list[dict[str, Any]] = []
        for start, size, count in blocks:
            behind = start - first + size
            if data[behind : behind + _SYNC_BYTES] != self.sync:
                raise ValueError(f"no sync marker behind the block at byte {start:,}")
            records += self._records(file, data[start - first : behind], count)
        arrays = [_array([one[field.name] for one in records], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _records(self, file: OpenFile, block: bytes, count: int) -> list[dict[str, Any]]:
        most = allowed_bytes(file)
        text: bytes = _decoded(_CODECS[self.codec], block, most + 1)
        if len(text) > most:
            raise too_large(file, f"records in {len(block):,} bytes", len(text), self.unit)
        rest, read = io.BytesIO(text), _fastavro().schemaless_reader

        def decode(count: int) -> list[dict[str, Any]]:
            return [read(rest, self.decoded_as, None) for _ in range(count)]

        records: list[dict[str, Any]] = _decoded(decode, min(count, len(text)))
        if len(records) != count or rest.tell() != len(text):  # A record has a byte at least.
            raise ValueError(f"{count:,} records are {rest.tell():,} of the {len(text):,} bytes")
        return records


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Return values as Arrow, in which unions of integers and floats stay what they are."""
    if isinstance(type_, NumbersType):
        return typed_column(values, type_)
    if next(numbers_in(type_, ""), None) is None:
        return pa.array(values, type_)
    nulls = pa.array([value is None for value in values])
    if pa.types.is_struct(type_):
        parts = [
            _array([value and value[field.name] for value in values], field.type) for field in type_
        ]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=nulls)
    rows = [value or () for value in values]
    offsets = pa.array(np.cumsum([0, *map(len, rows)]), pa.int32())
    items = list(chain.from_iterable(rows))
    if not pa.types.is_map(type_):
        return pa.ListArray.from_arrays(offsets, _array(items, type_.value_type), type_, mask=nulls)
    held = _array([value for row in rows if row for value in row.values()], type_.item_type)
    return pa.MapArray.from_arrays(offsets, pa.array(items, pa.string()), held, type_, mask=nulls)


def _decoded(decode: Callable[..., Any], *what: object) -> Any:  # noqa: ANN401 (as it decodes)
    try:
        return decode(*what)
    except MemoryError:
        raise
    except Exception as why:  # noqa: BLE001 (whatever damaged bytes lead a decoder to)
        raise ValueError(f"its records cannot be decoded ({why!r})") from None


def read_avro(file: OpenFile, remember: Remember) -> AvroHead:
    """Read the header, and go through all blocks."""
    metadata, sync, end = _header(file)
    codec = metadata.get("avro.codec", b"null").decode(errors="replace")
    if codec not in _CODECS:
        raise UnsupportedFileError(
            f"{file.path} is compressed with {codec!r}, which is not read here; "
            f"{', '.join(_CODECS)} are. Write it again with one of them.",
            path=file.path,
        )
    text = metadata.get("avro.schema", b"")
    schema, decoded_as = _schemas(file, text)
    found = remember(partial(_blocks, at=end, sync=sync))
    blocks = np.frombuffer(found, "<i8").reshape(-1, 3)
    if blocks.min(initial=0) < 0 or blocks[:, :2].sum(axis=1).max(initial=0) > file.size:
        raise DamagedHeadError("the places of its blocks that are kept are not its own")
    units = (blocks[:, 0] - end) // _UNIT_BYTES
    firsts = np.flatnonzero(np.diff(units, prepend=-1))
    marked = hashlib.blake2b(text + sync, digest_size=8)
    marked.update(found)
    return AvroHead(
        schema=schema,
        unit_rows=_sums(blocks[:, 2], firsts),
        unit_bytes=_sums(blocks[:, 1], firsts) * (1 + 3 * (codec != "null")),
        mark=marked.hexdigest(),
        weight=blocks.nbytes,
        blocks=blocks,
        firsts=np.append(firsts, len(blocks)),
        codec=codec,
        sync=sync,
        decoded_as=decoded_as,
    )


def _sums(values: NDArray[np.int64], firsts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.add.reduceat(values, firsts) if len(firsts) else np.zeros(0, np.int64)


def _fastavro() -> Any:  # noqa: ANN401 (a module that need not be there)
    return require("fastavro", extra="avro", purpose="reading Avro")


def _schemas(file: OpenFile, text: bytes) -> tuple[pa.Schema, Any]:
    """Return the columns, and what fastavro decodes: moments and dates stay numbers."""
    parse = _fastavro().parse_schema
    named: dict[str, Any] = {}
    try:
        parsed = parse(json.loads(text), named)
        plain = parse(json.loads(text, object_hook=_without_logical_types), {})
        return arrow_schema(parsed, named), plain
    except SchemaMismatchError as why:
        raise SchemaMismatchError(f"{file.path}: {why}", path=file.path) from None
    except Exception as why:  # noqa: BLE001 (whatever the schema leads fastavro to)
        raise DamagedHeadError(f"its schema cannot be used ({why!r})") from None


def _without_logical_types(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("logicalType") == "decimal":
        return schema
    return {name: value for name, value in schema.items() if name != "logicalType"}


def _header(file: OpenFile) -> tuple[dict[str, bytes], bytes, int]:
    """Return the metadata of a file, its sync marker, and where blocks begin."""
    size = _HEADER_BYTES
    while True:
        data = file.read_at(0, min(size, file.size))
        if not data.startswith(_MAGIC):
            raise DamagedHeadError(f"it begins with {data[:4]!r} instead of {_MAGIC!r}")
        try:
            return _parsed_header(data)
        except IndexError:
            if size >= min(file.size, _MOST_HEADER_BYTES):
                raise DamagedHeadError("its header does not end") from None
        size *= 16


def _parsed_header(data: bytes) -> tuple[dict[str, bytes], bytes, int]:
    metadata: dict[str, bytes] = {}
    count, at = _number(data, len(_MAGIC))
    while count:
        if count < 0:  # Then the bytes of these entries follow.
            _, at = _number(data, at)
        for _ in range(abs(count)):
            key, at = _text(data, at)
            metadata[key.decode()], at = _text(data, at)
        count, at = _number(data, at)
    if at + _SYNC_BYTES > len(data):
        raise IndexError
    return metadata, data[at : at + _SYNC_BYTES], at + _SYNC_BYTES


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _number(data, at)
    if size < 0:
        raise ValueError(f"a text of {size:,} bytes")
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def _number(data: bytes, at: int) -> tuple[int, int]:
    found, at = varint(data, at)
    return signed(found), at


def _blocks(file: OpenFile, at: int, sync: bytes) -> bytes:
    """Return first byte, bytes and records of each block, as int64[blocks, 3]."""
    blocks: list[tuple[int, int, int]] = []
    data, begin, size = b"", at, 0
    while at < file.size:
        if at + min(_NUMBERS_BYTES, file.size - at) > begin + len(data):
            ahead = _WINDOW if size < _LARGE_BLOCK else _NUMBERS_BYTES
            data, begin = file.read_at(at, min(ahead, file.size - at)), at
        try:
            count, behind = _number(data, at - begin)
            size, behind = _number(data, behind)
        except IndexError:
            raise DamagedHeadError(f"it ends in the block at byte {at:,}") from None
        start, at = begin + behind, begin + behind + size + _SYNC_BYTES
        if count < 0 or size < 0 or at > file.size:
            raise DamagedHeadError(
                f"a block claims {counted(count, 'record')} in {size:,} bytes from {start:,} on"
            )
        marker = data[behind + size : behind + size + _SYNC_BYTES]
        if len(marker) == _SYNC_BYTES and marker != sync:
            raise DamagedHeadError(f"no sync marker behind the block at byte {start:,}")
        blocks.append((start, size, count))
    return np.array(blocks, "<i8").tobytes()


def _to_its_end(decompressor: Any, data: bytes, most: int) -> bytes:  # noqa: ANN401 (of a codec)
    text: bytes = decompressor.decompress(data, most)
    if not decompressor.eof and len(text) < most:
        raise ValueError("a block ends too early")
    return text


def _snappy(data: bytes, most: int) -> bytes:
    """Return a text that has its length before it and its checksum behind it."""
    size, _ = varint(data, 0)
    text: bytes = pa.Codec("snappy").decompress(data[:-4], min(size, most), asbytes=True)
    if zlib.crc32(text) != int.from_bytes(data[-4:], "big"):
        raise ValueError("the checksum of a block differs")
    return text


def _zstd(data: bytes, most: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as text:
        return text.read(most)


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, _: data,
    "deflate": lambda data, most: _to_its_end(zlib.decompressobj(-15), data, most),
    "snappy": _snappy,
    "zstandard": _zstd,
    "bzip2": lambda data, most: _to_its_end(bz2.BZ2Decompressor(), data, most),
    "xz": lambda data, most: _to_its_end(lzma.LZMADecompressor(), data, most),
}
"""Codec → the text of a block, cut off behind so many bytes."""
