"""Columns of one Parquet row group, read with few requests."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock._words import counted
from penstock.storage import SeekableFile, reading
from penstock.tables._head import allowed_bytes, too_large
from penstock.tables._schemas import leaves
from penstock.tables._varint import signed, varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

    from penstock.storage import OpenFile

Value = int | bytes | list["Value"] | dict[int, "Value"]

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 7, 8, 9, 12
_INTEGERS = (4, 5, 6)
_LONG_LIST = 15
_DEEPEST = 8
_UNCOMPRESSED_BYTES, _COMPRESSED_BYTES, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8
"""Fields of a page's header; the first field of the last three is the number of values."""
_LEAST_WIDTH = 8
_TEXTS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


class DamagedStructureError(ValueError):
    """Bytes that are no structure."""


class ThriftReader:
    r"""Reads values of Thrift's compact protocol, one after the other; `at` is the next byte.

    https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

    >>> reader = ThriftReader(b"\x15\x04\x18\x01a\x00 and more")
    >>> reader.structure(), reader.at
    ({1: 2, 2: b'a'}, 6)
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def structure(self) -> dict[int, Value]:
        """Return a structure by the numbers of its fields."""
        return self._fields(0)

    def _value(self, kind: int, depth: int) -> Value:
        if kind in _INTEGERS:
            return signed(self._unsigned())
        if kind in (_TRUE, _FALSE):
            return int(kind == _TRUE)
        if kind in (_BYTE, _DOUBLE, _BINARY):
            size = self._unsigned() if kind == _BINARY else 8 if kind == _DOUBLE else 1
            self._refuse_beyond(size)
            self.at += size
            return self._data[self.at - size : self.at]
        if depth < _DEEPEST and kind == _STRUCT:
            return self._fields(depth + 1)
        if depth < _DEEPEST and kind == _LIST:
            return self._items(depth + 1)
        raise DamagedStructureError(f"a value of kind {kind}, {depth} levels deep")

    def _fields(self, depth: int) -> dict[int, Value]:
        fields: dict[int, Value] = {}
        number = 0
        while head := self._byte():
            if head >> 4:
                number += head >> 4
            else:
                number = self._unsigned() >> 1
            fields[number] = self._value(head & 15, depth)
        return fields

    def _items(self, depth: int) -> list[Value]:
        head = self._byte()
        size = self._unsigned() if head >> 4 == _LONG_LIST else head >> 4
        self._refuse_beyond(size)  # No value has fewer bytes than one.
        kind = _BYTE if head & 15 in (_TRUE, _FALSE) else head & 15
        return [self._value(kind, depth) for _ in range(size)]

    def _refuse_beyond(self, size: int) -> None:
        if size > len(self._data) - self.at:
            raise DamagedStructureError(f"{size:,} bytes or values, more than follow {self.at:,}")

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise DamagedStructureError(f"no end before byte {self.at:,}")
        self.at += 1
        return self._data[self.at - 1]

    def _unsigned(self) -> int:
        try:
            found, self.at = varint(self._data, self.at)
        except (IndexError, ValueError):
            raise DamagedStructureError(f"no number at byte {self.at:,}") from None
        return found


def page_headers(chunk: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield what each page of a column chunk claims: values, bytes, whether it is a dictionary.

    Ends at a page that Arrow cannot read either.
    """
    reader = ThriftReader(chunk)
    while reader.at < len(chunk):
        try:
            header = reader.structure()
        except DamagedStructureError:
            return
        whole, size = header.get(_UNCOMPRESSED_BYTES), header.get(_COMPRESSED_BYTES)
        if not isinstance(whole, int) or not isinstance(size, int) or size < 0:
            return
        for kind in (_DATA, _DICTIONARY, _DATA_2):
            page = header.get(kind)
            if isinstance(page, dict) and isinstance(count := page.get(1), int):
                yield count, whole, kind == _DICTIONARY
        reader.at += size


def open_parquet(
    source: pa.NativeFile | IO[bytes],
    metadata: pq.FileMetaData | None = None,
    dictionaries: Sequence[str] | None = None,
    *,
    page_checksums: bool = True,
) -> pq.ParquetFile:
    """Open a file: read in this thread, `page_checksums` compared, INT96 as microseconds.

    A thread pool would not survive a fork. As nanoseconds, INT96 wraps outside of 1677 to 2262, and
    many tables have 9999-12-31 for "never".
    """
    return pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=dictionaries,
        pre_buffer=False,
        page_checksum_verification=page_checksums,
        coerce_int96_timestamp_unit="us",
    )


def read_group(  # noqa: PLR0913 (what, and how)
    file: OpenFile,
    metadata: pq.FileMetaData,
    group: int,
    schema: pa.Schema,
    *,
    at_once: bool,
    page_checksums: bool,
) -> pa.RecordBatch:
    """Read whole columns of a row group; `at_once` with few requests.

    `schema` has the columns with the types that the file stores. Raises `CorruptFileError` before
    it allocates more than a file of this size can hold.
    """
    rows = metadata.row_group(group).num_rows
    widths = [_width(leaf) for field in schema for leaf in leaves(field.type)]
    allowed = allowed_bytes(file)
    if rows * sum(widths) > allowed:
        raise too_large(file, f"row group {group} claims {rows:,} rows", rows * sum(widths))
    ranges = ranges_of(file.path, file.size, metadata, group, schema.names) if at_once else []
    fetched = _Fetched(file, ranges, allowed, max(widths, default=1))
    table = _read_table(fetched, metadata, group, schema.names, page_checksums)
    # Of a group without fields nothing is stored.
    there = set(table.column_names)
    arrays = [
        _one_array(table.column(field.name)) if field.name in there else pa.nulls(rows, field.type)
        for field in schema
    ]
    if (size := sum(map(_repeated_bytes, arrays))) > allowed:
        raise too_large(file, f"row group {group} repeats texts", size)
    for array in arrays:
        if len(array) != rows:
            raise pa.ArrowInvalid(
                f"it holds {counted(len(array), 'row')}, and the footer says {rows:,}"
            )
    return pa.RecordBatch.from_arrays(arrays, schema.names)


def _read_table(
    fetched: _Fetched,
    metadata: pq.FileMetaData,
    group: int,
    names: Sequence[str],
    page_checksums: bool,  # noqa: FBT001 (of one caller)
) -> pa.Table:
    """Read columns; texts stay dictionaries if they could take too much memory."""
    reader = open_parquet(SeekableFile(fetched), metadata, page_checksums=page_checksums)
    try:
        return reader.read_row_group(group, columns=names, use_threads=False)
    except _ManyRepeatsError:
        fetched.most_repeated = None
    every = map(metadata.schema.column, range(len(metadata.schema)))
    texts = [leaf.path for leaf in every if leaf.physical_type == "BYTE_ARRAY"]
    reader = open_parquet(SeekableFile(fetched), metadata, texts, page_checksums=page_checksums)
    return reader.read_row_group(group, columns=names, use_threads=False)


def _repeated_bytes(array: pa.Array) -> int:
    """Return the bytes of the texts of dictionaries, repeats included."""
    if isinstance(array, pa.ExtensionArray):
        return _repeated_bytes(array.storage)
    if isinstance(array, pa.StructArray):
        return sum(map(_repeated_bytes, array.flatten()))
    if isinstance(array, pa.MapArray):
        return _repeated_bytes(array.keys) + _repeated_bytes(array.items)
    if array.type.num_fields:
        return _repeated_bytes(array.values)
    if isinstance(array, pa.DictionaryArray) and array.type.value_type in _TEXTS:
        lengths = pc.binary_length(array.dictionary).cast(pa.int64())
        return pc.sum(lengths.take(array.indices)).as_py() or 0
    return 0


def ranges_of(
    path: str, size: int, metadata: pq.FileMetaData, group: int, names: Sequence[str]
) -> list[tuple[int, int]]:
    """Return offset and bytes of each part of some columns.

    `metadata.row_group(…).column(…)` has them, but ends the process if a column is encrypted or
    damaged. So Arrow reads from a file of zeros that notes the ranges.
    """
    noted = _Noted(path, size)
    with suppress(pa.ArrowException, OSError, UnicodeError):
        reader = open_parquet(SeekableFile(noted), metadata)
        reader.read_row_group(group, columns=list(names), use_threads=False)
    return noted.ranges


def _width(leaf: pa.DataType) -> int:
    """Return the bytes that a value takes in memory, at least."""
    try:
        return max(_LEAST_WIDTH, int(leaf.bit_width) // 8)
    except ValueError:  # Texts, each of its own length.
        return _LEAST_WIDTH


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)  # `combine_chunks` copies it.
    array = column.combine_chunks()
    array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
    if pa.types.is_dictionary(array.type):
        array.validate(full=True)  # A damaged page has codes beyond its dictionary.
    return array


class _Noted:
    """A file of zeros that notes the ranges that are read; see `penstock.storage.OpenFile`."""

    def __init__(self, path: str, size: int) -> None:
        self.path, self.size = path, size
        self.ranges: list[tuple[int, int]] = []

    def read_at(self, start: int, length: int) -> bytes:
        self.ranges.append((start, length))
        return bytes(length)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read_at(start, length) for start, length in ranges]

    def close(self) -> None:
        """Do nothing: the caller closes the file, if there is one."""


class _ManyRepeatsError(Exception):
    """Texts of a dictionary could take too much memory."""


class _Fetched(_Noted):
    """A file with some ranges in memory.

    Arrow reads column chunks whole, and each read checks the headers of their pages.
    """

    def __init__(
        self, file: OpenFile, ranges: Sequence[tuple[int, int]], allowed: int, width: int
    ) -> None:
        super().__init__(file.path, file.size)
        self._file, self._allowed, self._width = file, allowed, width
        self.most_repeated: int | None = allowed
        with reading():
            self._parts = dict(zip(ranges, file.read_ranges(ranges), strict=True))

    def read_at(self, start: int, length: int) -> bytes:
        data = self._parts.get((start, length))
        if data is None:
            with reading():
                data = self._file.read_at(start, length)
        self._check_pages(data)
        return data

    def _check_pages(self, chunk: bytes) -> None:
        values = size = texts = 0
        for page_values, page_size, is_dictionary in page_headers(chunk):
            values += page_values
            size += page_size
            texts = max(texts, page_size * is_dictionary)
        what = f"pages of the chunk of {len(chunk):,} bytes claim {values:,} values"
        if max(size, values * self._width) > self._allowed:
            raise too_large(self._file, what, max(size, values * self._width))
        # Each value may be the longest of the dictionary, which may be all of it.
        if self.most_repeated is not None and values * texts > self.most_repeated:
            raise _ManyRepeatsError
