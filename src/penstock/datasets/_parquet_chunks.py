"""Whole columns of one row group, with as few requests as their places allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.storage import SeekableFile, reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.storage import OpenFile


def read_group(
    file: OpenFile, metadata: pq.FileMetaData, group: int, names: Sequence[str]
) -> pa.RecordBatch:
    """Read whole columns of a row group, with as few requests as their places allow."""
    ranges = [(start, size) for start, size, _ in chunks_of(metadata, group, names)]
    fetched = SeekableFile(_Fetched(file, ranges))
    # In this thread: a pool of threads would be one more thing to lose in a fork.
    reader = pq.ParquetFile(fetched, metadata=metadata, pre_buffer=False)
    table = reader.read_row_group(group, columns=list(names), use_threads=False)
    arrays = [_one_array(table.column(name)) for name in names]
    return pa.RecordBatch.from_arrays(arrays, list(names))


def chunks_of(
    metadata: pq.FileMetaData, group: int, names: Sequence[str]
) -> list[tuple[int, int, int]]:
    """Return offset, bytes and bytes decompressed of each part of some columns."""
    inside = tuple(f"{name}." for name in names)
    chunks = metadata.row_group(group)
    found = []
    for number in range(metadata.num_columns):
        chunk = chunks.column(number)
        if chunk.path_in_schema in names or chunk.path_in_schema.startswith(inside):
            start = min(
                chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset
            )
            found.append((start, chunk.total_compressed_size, chunk.total_uncompressed_size))
    return found


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)


def _read_ranges(file: OpenFile, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    with reading():
        return file.read_ranges(ranges)


class _Fetched:
    """A file of which some ranges are in memory already; see `penstock.storage.OpenFile`."""

    def __init__(self, file: OpenFile, ranges: Sequence[tuple[int, int]]) -> None:
        self.path, self.size = file.path, file.size
        self._file = file
        self._parts = [
            (start, memoryview(data))
            for (start, _), data in zip(ranges, _read_ranges(file, ranges), strict=True)
        ]

    def read_at(self, start: int, length: int) -> bytes:
        for first, data in self._parts:
            if first <= start and start + length <= first + len(data):
                return bytes(data[start - first : start - first + length])
        return self._file.read_at(start, length)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_at(start, length) for start, length in ranges]

    def close(self) -> None:
        """The file belongs to whoever opened it."""
