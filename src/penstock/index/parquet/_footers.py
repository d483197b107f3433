"""The footers of Parquet files, which number their rows without a scan."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import CorruptFileError, SchemaMismatchError, StaleIndexError
from penstock.storage import LocalStore, carried

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.index._listing import Found
    from penstock.storage import OpenFile

_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"
_END_BYTES = 8
_TAIL_BYTES = 64 << 10
_MOST_ROWS = 1 << 40
_MOST_GROUP_BYTES = 1 << 40
_THREADS = 16
_SHOWN = 10


class Footer(NamedTuple):
    metadata: pq.FileMetaData
    schema: pa.Schema
    """Of plain types, everything nullable, without metadata."""
    group_rows: NDArray[np.int64]
    """Rows of each row group."""
    group_bytes: NDArray[np.int64]
    """Bytes of each row group before compression, as the footer claims."""
    mark: str
    """A hash of the end of the file."""


def read_footers(files: Sequence[Found]) -> Iterator[Footer]:
    """Yield the footer of each file, in order; remote ones are fetched side by side."""
    if len(files) <= 1 or isinstance(files[0].store, LocalStore):
        yield from map(read_footer, files)
        return
    with ThreadPoolExecutor(_THREADS, "penstock-footers") as pool:
        yield from pool.map(carried(read_footer), files)


def read_footer(found: Found) -> Footer:
    """Read the footer of a file, in one request if it is not larger than 64 KiB."""
    with found.open() as file:
        if file.size != found.entry.size:
            raise StaleIndexError(
                f"{found.path} is being written: {found.entry.size:,} bytes when it was listed, "
                f"{file.size:,} now. Open it again when it is finished.",
                path=found.path,
            )
        tail = _footer_bytes(file)
    try:
        # The end is enough for Arrow.
        opened = open_parquet(pa.BufferReader(tail))
        metadata, schema = opened.metadata, opened.schema_arrow
        names = schema.names
    except (pa.ArrowException, OSError, UnicodeError) as why:
        raise _corrupt(found.path, f"its footer cannot be read ({why})") from None
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaMismatchError(
            f"{found.path}: two columns are called {twice!r}, and a record holds each name once. "
            "Write it again with other names.",
            path=found.path,
            field=twice,
        )
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    rows = [group.num_rows for group in groups]
    if min(rows, default=0) < 0 or sum(rows) > _MOST_ROWS:
        raise _corrupt(found.path, f"its footer claims row groups of {rows[:_SHOWN]} rows")
    sizes = np.array([group.total_byte_size for group in groups], np.int64)
    return Footer(
        metadata,
        pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema]),
        np.array(rows, np.int64),
        sizes.clip(0, _MOST_GROUP_BYTES),
        hashlib.blake2b(tail, digest_size=8).hexdigest(),
    )


def open_parquet(
    source: pa.NativeFile | IO[bytes],
    metadata: pq.FileMetaData | None = None,
    dictionaries: Sequence[str] | None = None,
) -> pq.ParquetFile:
    """Open a file: read in this thread, checksums compared, INT96 as microseconds.

    A thread pool would not survive a fork. As nanoseconds, INT96 wraps outside of 1677 to 2262, and
    many tables have 9999-12-31 for "never".
    """
    return pq.ParquetFile(
        source,
        metadata=metadata,
        read_dictionary=dictionaries,
        pre_buffer=False,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit="us",
    )


def _footer_bytes(file: OpenFile) -> bytes:
    if file.size < len(_MAGIC) + _END_BYTES:
        raise _corrupt(file.path, f"it has {file.size:,} bytes, too few for any Parquet file")
    tail = file.read_at(file.size - min(file.size, _TAIL_BYTES), min(file.size, _TAIL_BYTES))
    if tail[-4:] == _ENCRYPTED:
        raise CorruptFileError(
            f"{file.path} is encrypted Parquet, which is not read here. Decrypt it first.",
            path=file.path,
        )
    if tail[-4:] != _MAGIC:
        raise _corrupt(file.path, f"it ends with {tail[-4:]!r} instead of {_MAGIC!r}")
    length = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if length > file.size - len(_MAGIC):
        raise _corrupt(file.path, f"its footer claims {length:,} of its {file.size:,} bytes")
    if length > len(tail):
        tail = file.read_at(file.size - length, length)
    return tail[-length:]


def _corrupt(path: str, why: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path} is no whole Parquet file: {why}. It was cut off, is still being written, or is "
        "something else: copy or write it again.",
        path=path,
    )


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the type in which a column is returned, everything in it nullable.

    Dictionaries and views are storage forms of texts that differ from file to file.

    >>> plain_type(pa.list_(pa.dictionary(pa.int32(), pa.string())))
    ListType(list<item: string>)
    """
    is_ = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if is_.is_dictionary(type_):
        return plain_type(type_.value_type)
    if is_.is_string_view(type_):
        return pa.large_string()
    if is_.is_binary_view(type_):
        return pa.large_binary()
    if is_.is_struct(type_):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in type_])
    if is_.is_map(type_):
        return pa.map_(plain_type(type_.key_type), plain_type(type_.item_type))
    if is_.is_fixed_size_list(type_):
        return pa.list_(_item(type_), type_.list_size)
    if is_.is_large_list(type_) or is_.is_large_list_view(type_):
        return pa.large_list(_item(type_))
    if is_.is_list(type_) or is_.is_list_view(type_):
        return pa.list_(_item(type_))
    return type_


def _item(type_: pa.DataType) -> pa.Field:
    return pa.field(type_.value_field.name, plain_type(type_.value_type))


class UnifiedSchema:
    """The columns of many files: types widen, and an error names two files that differ."""

    def __init__(self, names: Collection[str] | None = None) -> None:
        self._names = names
        self._types: dict[str, tuple[pa.DataType, str]] = {}
        self._seen: list[pa.Schema] = []

    def add(self, schema: pa.Schema, path: str) -> pa.Schema:
        """Add the schema of a file; return an equal one that files share."""
        for seen in self._seen:
            if seen.equals(schema):
                return seen
        self._seen.append(schema)
        for field in schema:
            if self._names is None or field.name in self._names:
                known = self._types.get(field.name, (field.type, path))
                self._types[field.name] = _wider(field, known, path)
        return schema

    @property
    def names_there(self) -> list[str]:
        """The names of all columns, chosen or not."""
        return list(dict.fromkeys(name for seen in self._seen for name in seen.names))

    @property
    def schema(self) -> pa.Schema:
        """The chosen columns, in the order of their first appearance."""
        return pa.schema([(name, type_) for name, (type_, _) in self._types.items()])


def _wider(field: pa.Field, known: tuple[pa.DataType, str], path: str) -> tuple[pa.DataType, str]:
    type_, first = known
    if field.type.equals(type_):
        return known
    both = [pa.schema([(field.name, type_)]), pa.schema([field])]
    try:
        wider = pa.unify_schemas(both, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        raise SchemaMismatchError(
            f"field {field.name!r} is {type_} in {first} and {field.type} in {path}, and no type "
            "holds both. Open the files apart, or leave the field out by columns=.",
            path=path,
            field=field.name,
        ) from None
    return wider, (path if wider.equals(field.type) else first)
