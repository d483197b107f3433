"""ORC files: the footer finds stripes.

https://orc.apache.org/specification/ORCv1/
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from io import BufferedReader
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import orc

from penstock.storage import SeekableFile
from penstock.tables._head import DamagedHeadError, HeldRanges, TableHead, read_ends
from penstock.tables._varint import varint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.storage import OpenFile
    from penstock.tables._head import Remember

_MAGIC = b"ORC"
_AHEAD_BYTES = 1 << 20
_ALWAYS_READ = 16 << 10
"""Bytes that Arrow reads of the end of every file."""
_MOST_CHUNK = 1 << 24
"""Bytes of a compressed chunk in memory; its head has 23 bits for them."""
_FOOTER_BYTES, _CHUNK_BYTES, _METADATA_BYTES = 1, 3, 5
"""Fields of the postscript."""
_TAIL_FOOTER, _STRIPES = 2, 3
_START, _INDEX, _DATA, _FOOTER, _ROWS = 1, 2, 3, 4, 5
"""Fields of a stripe: its first byte, bytes of its three parts, and rows."""
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


@dataclass(frozen=True, kw_only=True)
class OrcHead(TableHead):
    """The footer of a file."""

    unit: ClassVar = "stripe"

    stripes: list[tuple[int, int]]
    """First byte, and bytes."""
    held: list[tuple[int, bytes]]
    """Footer and postscript, by their place."""

    def _columns(
        self, file: OpenFile, unit: int, schema: pa.Schema, *, at_once: bool
    ) -> pa.RecordBatch:
        # Most columns of a remote stripe are fetched as a whole, a few of many one by one.
        is_whole = at_once and 2 * len(schema) >= len(self.schema)
        held = SeekableFile(HeldRanges(file, [self.stripes[unit]] * is_whole, self.held))
        is_apart = at_once and not is_whole
        opened = orc.ORCFile(BufferedReader(held, _AHEAD_BYTES) if is_apart else held)
        # A name with a dot could be a path into another column.
        has_paths = any("." in name for name in self.schema.names)
        batch = opened.read_stripe(unit, columns=None if has_paths else schema.names)
        batch = batch.select(schema.names)
        for column in batch.columns:
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as why:
                # Texts of some tools are not UTF-8; Arrow made all else of the column itself.
                if "UTF8" not in str(why):
                    raise
        return batch


def read_orc(file: OpenFile, remember: Remember) -> OrcHead:
    """Read the footer."""
    del remember
    ends = read_ends(file)
    if file.size <= len(_MAGIC):
        raise DamagedHeadError(f"it has {file.size:,} bytes, too few")
    length = ends.read_at(file.size - 1, 1)[0] + 1
    if length >= file.size:
        raise DamagedHeadError(f"its postscript claims {length:,} of its {file.size:,} bytes")
    postscript = ends.read_at(file.size - length, length)[:-1]
    if not postscript.endswith(_MAGIC):
        raise DamagedHeadError(f"it ends with {postscript[-3:]!r} instead of {_MAGIC!r}")
    sizes = _integers(postscript)
    length += sizes.get(_FOOTER_BYTES, 0) + sizes.get(_METADATA_BYTES, 0)
    if length > file.size or sizes.get(_CHUNK_BYTES, 0) > _MOST_CHUNK:
        raise DamagedHeadError(f"its postscript claims {length:,} of its {file.size:,} bytes")
    length = min(file.size, max(length, _ALWAYS_READ))
    end = [(file.size - length, ends.read_at(file.size - length, length))]
    opened = orc.ORCFile(SeekableFile(HeldRanges(file, [], end)))
    footer = dict(_fields(opened.reader.serialized_file_tail())).get(_TAIL_FOOTER)
    stripes = [_integers(value) for field, value in _fields(footer) if field == _STRIPES]
    places = [
        (one.get(_START, 0), sum(one.get(part, 0) for part in (_INDEX, _DATA, _FOOTER)))
        for one in stripes
    ]
    for start, size in places:
        if start + size > file.size:
            raise DamagedHeadError(f"its footer names {size:,} bytes from {start:,} on")
    packed = 1 + 3 * (opened.compression != "UNCOMPRESSED")
    return OrcHead(
        schema=opened.schema,
        unit_rows=np.array([one.get(_ROWS, 0) for one in stripes], np.int64),
        unit_bytes=np.array([size for _, size in places], np.int64) * packed,
        mark=hashlib.blake2b(end[0][1], digest_size=8).hexdigest(),
        weight=length,
        stripes=places,
        held=end,
    )


def _integers(message: int | bytes) -> dict[int, int]:
    return {field: value for field, value in _fields(message) if isinstance(value, int)}


def _fields(message: int | bytes | None) -> Iterator[tuple[int, int | bytes]]:
    r"""Yield number and value of each field of a message in the form of Protocol Buffers.

    https://protobuf.dev/programming-guides/encoding/

    >>> [*_fields(b"\x08\x96\x01\x12\x02ab")]
    [(1, 150), (2, b'ab')]
    """
    if not isinstance(message, bytes):
        raise ValueError("its footer is no message")  # noqa: TRY004 (of the file, not of a program)
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind in (_VARINT, _BYTES):
            value, at = varint(message, at)
        if kind == _VARINT:
            yield key >> 3, value
            continue
        if kind not in (_EIGHT, _BYTES, _FOUR):
            raise ValueError(f"its footer has a field of kind {kind}")
        size = value if kind == _BYTES else 8 if kind == _EIGHT else 4
        if size > len(message) - at:
            raise ValueError("its footer is cut off")
        yield key >> 3, message[at : at + size]
        at += size
