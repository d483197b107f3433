"""The footers of Parquet files, which number their rows without a scan."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from penstock._words import counted
from penstock.errors import UnsupportedFileError
from penstock.tables._head import DamagedHeadError, TableHead
from penstock.tables.parquet._groups import open_parquet, read_group

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from penstock.storage import OpenFile
    from penstock.tables._head import Remember

_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_END_BYTES = 8
_TAIL_BYTES = 64 << 10
_MOST_GROUP_BYTES = 1 << 40


@dataclass(frozen=True, kw_only=True)
class Footer(TableHead):
    """What Arrow knows of a file."""

    unit: ClassVar = "row group"

    metadata: pq.FileMetaData
    page_checksums: bool
    """Whether checksums of pages are compared."""

    def _columns(
        self, file: OpenFile, unit: int, schema: pa.Schema, *, at_once: bool
    ) -> pa.RecordBatch:
        return read_group(
            file, self.metadata, unit, schema, at_once=at_once, page_checksums=self.page_checksums
        )


def read_footer(file: OpenFile, remember: Remember, *, page_checksums: bool = True) -> Footer:
    """Read the footer of a file, in one request if it is not larger than 64 KiB."""
    del remember
    tail = _footer_bytes(file)
    try:
        # The end is enough for Arrow.
        opened = open_parquet(pa.BufferReader(tail))
        metadata, schema = opened.metadata, opened.schema_arrow
    except (pa.ArrowException, OSError, UnicodeError) as why:
        said = str(why).partition("\n")[0].rstrip(".")
        raise DamagedHeadError(f"its footer cannot be read ({said})") from None
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = np.array([group.total_byte_size for group in groups], np.int64)
    return Footer(
        metadata=metadata,
        page_checksums=page_checksums,
        schema=schema,
        unit_rows=np.array([group.num_rows for group in groups], np.int64),
        unit_bytes=sizes.clip(0, _MOST_GROUP_BYTES),
        mark=hashlib.blake2b(tail, digest_size=8).hexdigest(),
        weight=metadata.serialized_size,
    )


def _footer_bytes(file: OpenFile) -> bytes:
    if file.size < len(_MAGIC) + _END_BYTES:
        raise DamagedHeadError(f"it has {counted(file.size, 'byte')}, too few")
    tail = file.read_at(file.size - min(file.size, _TAIL_BYTES), min(file.size, _TAIL_BYTES))
    if tail[-4:] == _ENCRYPTED:
        raise UnsupportedFileError(
            f"{file.path} is encrypted Parquet, which is not read here. Decrypt it first.",
            path=file.path,
        )
    if tail[-4:] != _MAGIC:
        raise DamagedHeadError(f"it ends with {tail[-4:]!r} instead of {_MAGIC!r}")
    length = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if length > file.size - len(_MAGIC):
        raise DamagedHeadError(f"its footer claims {length:,} of its {file.size:,} bytes")
    if length > len(tail):
        tail = file.read_at(file.size - length, length)
    return tail[-length:]
