"""Whole columns of one row group, with as few requests as their places allow."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import CorruptFileError
from penstock.index._parquet_scan import open_parquet
from penstock.index._thrift import DamagedStructureError, ThriftReader
from penstock.storage import SeekableFile, reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow.parquet as pq

    from penstock.storage import OpenFile

_LEAST_ALLOWED = 512 << 20
_MOST_INFLATED = 1 << 16
"""How many bytes one byte of a file may become. A page of nulls or of one value, 20,000 rows in
about 35 bytes, becomes 4,600; other writers have pages of a few hundred thousand rows."""
_LEAST_WIDTH = 8
_COMPRESSED_BYTES, _DATA, _DICTIONARY, _DATA_2 = 3, 5, 7, 8
"""Fields of a page's header; the first field of the last three is the number of values."""


def read_group(
    file: OpenFile,
    metadata: pq.FileMetaData,
    group: int,
    schema: pa.Schema,
    *,
    at_once: bool,
) -> pa.RecordBatch:
    """Read whole columns of a row group; `at_once` with as few requests as their places allow.

    `schema` has the columns with the types that the file stores. Raises `CorruptFileError` before
    anything is allocated that a file of this size does not hold.
    """
    rows = metadata.row_group(group).num_rows
    widths = [_width(leaf) for field in schema for leaf in _leaves(field.type)]
    allowed = max(_LEAST_ALLOWED, file.size * _MOST_INFLATED)
    if rows * sum(widths) > allowed:
        raise _too_large(file, f"row group {group} claims {rows:,} rows", rows * sum(widths))
    ranges = ranges_of(file.path, file.size, metadata, group, schema.names) if at_once else []
    has_lists = any(_has_lists(field.type) for field in schema)
    # Only of lists, pages hold more values than the row group has rows.
    most_values = allowed // max(widths, default=1) if has_lists else None
    reader = open_parquet(SeekableFile(_Fetched(file, ranges, most_values)), metadata)
    table = reader.read_row_group(group, columns=schema.names, use_threads=False)
    arrays = [_one_array(table.column(name)) for name in schema.names]
    for array in arrays:
        if len(array) != rows:
            raise pa.ArrowInvalid(f"it holds {len(array):,} rows, and the footer says {rows:,}")
    return pa.RecordBatch.from_arrays(arrays, schema.names)


def ranges_of(
    path: str, size: int, metadata: pq.FileMetaData, group: int, names: Sequence[str]
) -> list[tuple[int, int]]:
    """Return offset and bytes of each part of some columns.

    `metadata.row_group(…).column(…)` has them, and ends the process where a column is encrypted
    or damaged. So Arrow is let go ahead as far as it asks for all of them.
    """
    noted = _Noted(path, size)
    with suppress(pa.ArrowException, OSError, UnicodeError):
        reader = open_parquet(SeekableFile(noted), metadata)
        reader.read_row_group(group, columns=list(names), use_threads=False)
    return noted.ranges


def _leaves(type_: pa.DataType) -> Iterator[pa.DataType]:
    if not type_.num_fields:
        yield type_
    for at in range(type_.num_fields):
        yield from _leaves(type_.field(at).type)


def _has_lists(type_: pa.DataType) -> bool:
    if not pa.types.is_struct(type_):
        return bool(type_.num_fields)
    return any(_has_lists(field.type) for field in type_)


def _width(leaf: pa.DataType) -> int:
    """Return the bytes that a value takes at least, with what reading it takes beside."""
    try:
        return max(_LEAST_WIDTH, int(leaf.bit_width) // 8)
    except ValueError:  # Texts, each of its own length.
        return _LEAST_WIDTH


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        array.validate(full=True)  # Codes of words that a damaged page does not have.
    return array


def _too_large(file: OpenFile, what: str, size: int) -> CorruptFileError:
    return CorruptFileError(
        f"{file.path}: {what}, which take {size:,} bytes or more, and the file has {file.size:,}. "
        "If it is not damaged, ask for fewer columns, or write it with smaller row groups.",
        path=file.path,
    )


class _Noted:
    """A file of nothing but zeros that notes what is asked for; see `penstock.storage.OpenFile`."""

    def __init__(self, path: str, size: int) -> None:
        self.path, self.size = path, size
        self.ranges: list[tuple[int, int]] = []

    def read_at(self, start: int, length: int) -> bytes:
        self.ranges.append((start, length))
        return bytes(length)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_at(start, length) for start, length in ranges]

    def close(self) -> None:
        """Nothing is open."""


class _Fetched:
    """A file of which some ranges are in memory already; see `penstock.storage.OpenFile`.

    Column chunks are read as a whole; with `most_values` their pages are looked at.
    """

    def __init__(
        self, file: OpenFile, ranges: Sequence[tuple[int, int]], most_values: int | None
    ) -> None:
        self.path, self.size = file.path, file.size
        self._file = file
        self._most_values = most_values
        with reading():
            self._parts = dict(zip(ranges, file.read_ranges(ranges), strict=True))

    def read_at(self, start: int, length: int) -> bytes:
        data = self._parts.pop((start, length), None)
        if data is None:
            with reading():
                data = self._file.read_at(start, length)
        if self._most_values is not None:
            self._check_pages(data, self._most_values)
        return data

    def _check_pages(self, chunk: bytes, most: int) -> None:
        values = sum(_page_values(chunk))
        if values > most:
            what = f"pages of the chunk of {len(chunk):,} bytes claim {values:,} values"
            raise _too_large(self._file, what, values * _LEAST_WIDTH)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_at(start, length) for start, length in ranges]

    def close(self) -> None:
        """The file belongs to whoever opened it."""


def _page_values(chunk: bytes) -> Iterator[int]:
    """Yield how many values each page claims, as far as Arrow can read them, too."""
    reader = ThriftReader(chunk)
    while reader.at < len(chunk):
        try:
            header = reader.structure()
        except DamagedStructureError:
            return
        for kind in (_DATA, _DICTIONARY, _DATA_2):
            page = header.get(kind)
            if isinstance(page, dict) and isinstance(count := page.get(1), int):
                yield count
        size = header.get(_COMPRESSED_BYTES)
        if not isinstance(size, int) or size < 0:
            return
        reader.at += size
