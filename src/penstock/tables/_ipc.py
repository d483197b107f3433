"""Arrow IPC: files, which Feather is since version 2, and streams, which `datasets` writes.

The footer of a file finds its record batches; those of a stream are found by going through it.

https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import UnsupportedFileError
from penstock.storage import SeekableFile, map_of
from penstock.tables._head import (
    DamagedHeadError,
    HeldRanges,
    TableHead,
    allowed_bytes,
    read_ends,
    refuse_types,
    too_large,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penstock.storage import OpenFile
    from penstock.tables._head import Remember

    Places = list[tuple[int, int, int]]
    """Of messages: the first byte, bytes of the metadata, bytes of the body behind them."""

_MAGIC, _VERSION_1, _STREAM = b"ARROW1", b"FEA1", b"\xff\xff\xff\xff"
_CLOSED = _STREAM + bytes(4)
_PREFIX = 8
"""Bytes before the metadata of a message."""
_LEAST_BYTES = 24
_END = struct.Struct("<i6s")
_LENGTH = struct.Struct("<q")
_BLOCK = np.dtype([("start", "<i8"), ("head", "<i4"), ("gap", "<i4"), ("body", "<i8")])
_PAIR = np.dtype([("first", "<i8"), ("second", "<i8")])
_DICTIONARIES, _BATCHES = 2, 3
"""Fields of the footer."""
_KIND, _HEADER, _BODY = 1, 2, 3
"""Fields of a message."""
_IS_SCHEMA, _IS_DICTIONARY, _IS_BATCH = 1, 2, 3
_DATA = 1
"""Field of a dictionary: its values, as a record batch."""
_ROWS, _NODES, _BUFFERS, _COMPRESSION = 0, 1, 2, 3
"""Fields of a record batch."""
_MESSAGE_BYTES = 4 << 10
"""Bytes in which the metadata of most messages lie."""
_SPAN = 64 << 20
"""Bytes of a remote file in which the metadata of batches are read at once."""


@dataclass(frozen=True, kw_only=True)
class IpcHead(TableHead):
    """The footer of a file or the schema of a stream, and what the metadata of batches say."""

    unit: ClassVar = "record batch"

    batches: Places
    are_packed: NDArray[np.bool_]
    """Which batches are compressed."""
    held: list[tuple[int, bytes]]
    """Footer, or schema, and dictionaries, by their places; without those of a mapped file."""
    is_stream: bool

    def _columns(
        self, file: OpenFile, unit: int, schema: pa.Schema, *, at_once: bool
    ) -> pa.RecordBatch:
        start, head, body = self.batches[unit]
        whole, part, wanted = None if self.is_stream else map_of(file), file, []
        if whole is None:
            part = HeldRanges(file, [(start, head + body)], self.held)
        message = _header(part.read_at(start, head), body, _IS_BATCH)
        _check_claims(part, message, self.batches[unit], f"{self.unit} {unit}")
        if self.are_packed[unit]:
            # Of plain batches Arrow would copy the fields that are named.
            wanted = [self.schema.names.index(name) for name in schema.names]
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=wanted)
        if self.is_stream:
            before = [data for at, data in self.held if at < start]
            data = b"".join([*before, part.read_at(start, head + body)])
            batch = pa.ipc.open_stream(data, options=options).read_next_batch()
        else:
            source: Any = SeekableFile(part) if whole is None else pa.py_buffer(whole)
            batch = pa.ipc.open_file(source, options=options).get_batch(unit)
        batch = batch.select(schema.names)
        batch.validate(full=True)  # Offsets and codes are input, too.
        return batch


def read_ipc(file: OpenFile, remember: Remember) -> IpcHead:
    """Read footer or schema, dictionaries and the metadata of all batches."""
    ends = read_ends(file)
    begin = ends.held[0][1]
    if begin.startswith(_STREAM):
        return _read_stream(file, remember, b"".join(data for _, data in ends.held))
    _refuse_others(file, begin)
    if file.size < _LEAST_BYTES:
        raise DamagedHeadError(f"it has {file.size:,} bytes, too few")
    length, magic = _END.unpack(ends.read_at(file.size - _END.size, _END.size))
    if magic != _MAGIC:
        raise DamagedHeadError(f"it ends with {magic!r} instead of {_MAGIC!r}")
    if not 0 < length <= file.size - _LEAST_BYTES // 2:
        raise DamagedHeadError(f"its footer claims {length:,} of its {file.size:,} bytes")
    at = file.size - _END.size - length
    end = ends.read_at(at, length + _END.size)
    # Arrow verifies the footer, and shows the schema alone.
    schema = pa.ipc.open_file(SeekableFile(HeldRanges(file, [], [(at, end)]))).schema
    refuse_types(file, schema)
    footer = FlatTable(end)
    batches = _places(file, footer, _BATCHES)
    dictionaries = _places(file, footer, _DICTIONARIES)
    find = partial(_facts, batches=batches, nodes=sum(map(_nodes, schema.types)))
    is_mapped = map_of(file) is not None
    facts = np.frombuffer(find(file) if is_mapped else remember(find), "<i8")
    also = [(start, head + body) for start, head, body in dictionaries if not is_mapped]
    part = HeldRanges(file, also, [(at, end)])
    known = _Known(schema, batches, facts.reshape(len(batches), 2), dictionaries, begin + end)
    return _made(known, part, is_mapped=is_mapped, is_stream=False)


def _read_stream(file: OpenFile, remember: Remember, ends: bytes) -> IpcHead:
    """Read the schema, and go through all messages; `ends` tell versions of the file apart."""
    message, body = _message(file, 0)
    _header(message, body, _IS_SCHEMA)
    schema = pa.ipc.read_schema(pa.py_buffer(message))
    refuse_types(file, schema)
    find = partial(_messages, nodes=sum(map(_nodes, schema.types)))
    found = find(file) if map_of(file) is not None else remember(find)
    messages = np.frombuffer(found, "<i8").reshape(-1, 6)
    if messages.min(initial=0) < 0 or messages[:, 1:4].sum(axis=1).max(initial=0) > file.size:
        raise DamagedHeadError("the places of its batches that are kept are not its own")
    batches = messages[messages[:, 0] == _IS_BATCH]
    dictionaries = messages[messages[:, 0] == _IS_DICTIONARY, 1:4].tolist()
    also = [(start, head + body) for start, head, body in dictionaries]
    part = HeldRanges(file, also, [(0, message)])
    marked = ends + bytes(found)
    known = _Known(schema, batches[:, 1:4].tolist(), batches[:, 4:], dictionaries, marked)
    return _made(known, part, is_mapped=False, is_stream=True)


class _Known(NamedTuple):
    schema: pa.Schema
    batches: Places
    facts: NDArray[np.int64]
    """Of batches: rows, and whether it is compressed, int64[batches, 2]."""
    dictionaries: Places
    marked: bytes


def _made(known: _Known, part: HeldRanges, *, is_mapped: bool, is_stream: bool) -> IpcHead:
    schema, batches, facts, dictionaries, marked = known
    rows, packed = facts.T
    for number, place in enumerate(dictionaries):
        start, head, body = place
        found = _header(part.read_at(start, head), body, _IS_DICTIONARY).table(_DATA)
        _check_claims(part, found, place, f"dictionary {number}")
    sizes = np.array([body for _, _, body in batches], np.int64)
    return IpcHead(
        schema=schema,
        unit_rows=rows,
        unit_bytes=sizes * (1 + 3 * packed),
        mark=hashlib.blake2b(marked, digest_size=8).hexdigest(),
        weight=sum(len(data) for _, data in part.held) + 100 * len(batches),
        is_mapped=is_mapped and not packed.any(),
        batches=batches,
        are_packed=packed > 0,
        held=part.held,
        is_stream=is_stream,
    )


def _refuse_others(file: OpenFile, begin: bytes) -> None:
    if begin.startswith(_VERSION_1):
        raise UnsupportedFileError(
            f"{file.path} is Feather V1, which Arrow gives up. Write it again as V2: "
            "pyarrow.feather.write_feather(pyarrow.feather.read_table(OLD), NEW)",
            path=file.path,
        )
    if not begin.startswith(_MAGIC):
        raise DamagedHeadError(f"it begins with {begin[:6]!r} instead of {_MAGIC!r}")


def _nodes(type_: pa.DataType) -> int:
    """Return how many nodes a batch has for a column: itself, and what lies inside of it."""
    if isinstance(type_, pa.BaseExtensionType):
        return _nodes(type_.storage_type)
    return 1 + sum(_nodes(type_.field(part).type) for part in range(type_.num_fields))


def _places(file: OpenFile, footer: FlatTable, field: int) -> Places:
    found: Places = footer.vector(field, _BLOCK)[["start", "head", "body"]].tolist()
    for start, head, body in found:
        if min(start, head, body) < 0 or start + head + body > file.size:
            raise DamagedHeadError(f"its footer names {head + body:,} bytes from {start:,} on")
    return found


def _facts(file: OpenFile, batches: Places, *, nodes: int) -> bytes:
    """Return rows of each batch, and whether it is compressed, as int64[batches, 2]."""
    facts = [
        _fact(message, body, nodes)
        for message, (_, _, body) in zip(_metadata(file, batches), batches, strict=True)
    ]
    return np.array(facts, "<i8").tobytes()


def _fact(message: bytes, body: int, nodes: int) -> tuple[int, int]:
    batch = _header(message, body, _IS_BATCH)
    rows = batch.integer(_ROWS, "<q")
    found = batch.vector(_NODES, _PAIR)["first"]
    first = found[:1].tolist()
    if len(found) != nodes or first != [rows][:nodes]:
        raise ValueError(
            f"a batch claims {rows:,} rows, its first column {first}, and it has "
            f"{len(found):,} of {nodes:,} columns, nested ones counted"
        )
    return rows, batch.place(_COMPRESSION) > 0


def _messages(file: OpenFile, nodes: int) -> bytes:
    """Return kind, first byte, bytes of metadata and of body, rows and whether it is compressed.

    Of each message behind the schema, as int64[messages, 6].
    """
    found, at = [], len(_message(file, 0)[0])
    # A writer that is closed puts an end; one that was killed may have written whole messages.
    while at < file.size and (at != file.size - _PREFIX or file.read_at(at, _PREFIX) != _CLOSED):
        message, body = _message(file, at)
        kind = FlatTable(message[_PREFIX:]).integer(_KIND, "<B")
        if kind not in (_IS_BATCH, _IS_DICTIONARY):
            raise DamagedHeadError(f"the message at byte {at:,} holds neither records nor labels")
        facts = _fact(message, body, nodes) if kind == _IS_BATCH else (0, 0)
        found.append((kind, at, len(message), body, *facts))
        at += len(message) + body
    return np.array(found, "<i8").tobytes()


def _message(file: OpenFile, at: int) -> tuple[bytes, int]:
    """Return the metadata of the message of a stream at a byte, and the bytes of its body."""
    data = file.read_at(at, min(_MESSAGE_BYTES, file.size - at))
    size = int.from_bytes(data[_PREFIX - 4 : _PREFIX], "little") + _PREFIX
    if not data.startswith(_STREAM) or size > file.size - at:
        raise DamagedHeadError(f"it ends in the message at byte {at:,}")
    if size > len(data):
        data = file.read_at(at, size)
    body = FlatTable(data[_PREFIX:size]).integer(_BODY, "<q")
    if not 0 <= body <= file.size - at - size:
        raise DamagedHeadError(f"it ends in the message at byte {at:,}")
    return data[:size], body


def _metadata(file: OpenFile, batches: Places) -> Iterator[bytes]:
    """Yield the metadata of each batch."""
    some: list[tuple[int, int]] = []
    for start, head, _ in batches:
        if map_of(file) is not None:
            yield file.read_at(start, head)  # Ranges would be read with what lies between them.
            continue
        if some and start + head - some[0][0] > _SPAN:
            yield from file.read_ranges(some)
            some = []
        some.append((start, head))
    yield from file.read_ranges(some)


def _header(message: bytes, body: int, kind: int) -> FlatTable:
    """Return the header of a message of a kind with so many bytes behind it."""
    # Files of before 2019 have the length alone.
    at = _PREFIX if message.startswith(_STREAM) else 4
    size = int.from_bytes(message[at - 4 : at], "little")
    found = FlatTable(message[at : at + size])
    if (found.integer(_KIND, "<B"), found.integer(_BODY, "<q")) != (kind, body):
        raise ValueError("its footer names a message that is another one")
    return found.table(_HEADER)


def _check_claims(file: OpenFile, batch: FlatTable, place: tuple[int, int, int], name: str) -> None:
    """Raise where a batch names bytes outside of its place, or needs more than a file can hold."""
    start, head, body = place
    buffers = batch.vector(_BUFFERS, _PAIR).tolist()
    if any(min(at, size) < 0 or at + size > body for at, size in buffers):
        raise ValueError("a buffer lies outside of it")
    lengths = batch.vector(_NODES, _PAIR)["first"].tolist()
    if max(lengths, default=0) > allowed_bytes(file):
        raise too_large(file, f"values of {name}", max(lengths), IpcHead.unit)
    if batch.place(_COMPRESSION):
        # Each begins with the length it had before, or with -1.
        places = [start + head + at for at, size in buffers if size >= _LENGTH.size]
        sizes = [_LENGTH.unpack(file.read_at(at, _LENGTH.size))[0] for at in places]
        if (size := sum(max(0, one) for one in sizes)) > allowed_bytes(file):
            raise too_large(file, f"buffers of {name}", size, IpcHead.unit)


class FlatTable:
    r"""A table of FlatBuffers, the form of Arrow's metadata.

    https://flatbuffers.dev/internals/

    >>> FlatTable(b"\x0c\0\0\0\0\0\x06\0\x08\0\x04\0\x06\0\0\0\x07\0\0\0").integer(0, "<i")
    7
    """

    def __init__(self, data: bytes, at: int | None = None) -> None:
        self._data = data
        self._at = self._unpacked("<I", 0) if at is None else at
        self._fields = self._at - self._unpacked("<i", self._at)

    def place(self, field: int) -> int:
        """Return where a field lies; 0 where the table has none."""
        at = 4 + 2 * field
        has = at < self._unpacked("<H", self._fields)
        offset = self._unpacked("<H", self._fields + at) if has else 0
        return self._at + offset if offset else 0

    def integer(self, field: int, form: str) -> int:
        """Return a number; 0 is not stored."""
        at = self.place(field)
        return self._unpacked(form, at) if at else 0

    def table(self, field: int) -> FlatTable:
        """Return a table inside."""
        at = self.place(field)
        return FlatTable(self._data, at + self._unpacked("<I", at))

    def vector(self, field: int, kind: np.dtype[Any]) -> NDArray[Any]:
        """Return a list of structures."""
        at = self.place(field)
        if not at:
            return np.empty(0, kind)
        at += self._unpacked("<I", at)
        return np.frombuffer(self._data, kind, self._unpacked("<I", at), at + 4)

    def _unpacked(self, form: str, at: int) -> int:
        if not 0 <= at <= len(self._data) - struct.calcsize(form):
            raise ValueError(f"its metadata point to byte {at:,} of {len(self._data):,}")
        found: int = struct.unpack_from(form, self._data, at)[0]
        return found
