"""Rows out of Parquet row groups: each needed group is read once, its columns are kept a while."""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.decode import fit_batch
from penstock.errors import (
    CorruptFileError,
    ObjectChangedError,
    ObjectNotFoundError,
    PenstockError,
    StaleIndexError,
)
from penstock.index import UnifiedSchema, digest, read_footer, read_footers
from penstock.storage import LocalStore, SeekableFile

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from penstock.index import Found
    from penstock.storage import OpenFile

V = TypeVar("V")

_KEPT_BYTES = 128 << 20
"""Decoded columns that a process keeps, of all its Parquet sources together."""
_KEPT_FILES = 64
_KEPT_FOOTER_BYTES = 32 << 20
"""Footers that are kept for good, as they are stored; others are read again when needed."""


class Kept(Generic[V]):
    """What was used last, up to a weight; the newest stays, however heavy. Used by any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.clear()

    def clear(self) -> None:
        """Forget everything; after a fork also who held the lock."""
        self._items: OrderedDict[object, tuple[V, int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: object) -> V | None:
        """Return what is kept under a key."""
        with self._lock:
            found = self._items.get(key)
            if found is None:
                return None
            self._items.move_to_end(key)
            return found[0]

    def put(self, key: object, value: V, weight: int) -> None:
        """Keep a value, in place of those that were not used for longest."""
        with self._lock:
            _, old = self._items.pop(key, (None, 0))
            self._items[key] = value, weight
            self._weight += weight - old
            while self._weight > self._limit and len(self._items) > 1:
                _, (_, lighter) = self._items.popitem(last=False)
                self._weight -= lighter


_columns: Kept[pa.Array] = Kept(_KEPT_BYTES)
_files: Kept[tuple[OpenFile, pq.FileMetaData]] = Kept(_KEPT_FILES)
_tokens = itertools.count()


def _after_fork_in_child() -> None:
    _columns.clear()
    _files.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


class ParquetTable:
    """All rows of some files, numbered file by file."""

    def __init__(self, files: Sequence[Found], names: Collection[str] | None) -> None:
        self._token = next(_tokens)
        unified = UnifiedSchema(names)
        self.files: list[Found] = []
        self._metadata: list[pq.FileMetaData | None] = []
        self._schemas: list[pa.Schema] = []
        groups: list[tuple[int, int, int]] = []
        marks = []
        budget = _KEPT_FOOTER_BYTES
        for found, footer in zip(files, read_footers(files), strict=True):
            schema = unified.add(footer.schema, found.path)
            rows = footer.group_rows.tolist()
            marks.append([found.entry.size, sum(rows), footer.mark])
            if not sum(rows):
                continue
            groups += [(len(self.files), at, count) for at, count in enumerate(rows) if count]
            budget -= footer.metadata.serialized_size
            self._metadata.append(footer.metadata if budget > 0 else None)
            self._schemas.append(schema)
            self.files.append(found)
        self.schema = unified.schema
        self.names_there = unified.names_there
        self.fingerprint = digest([marks, None if names is None else sorted(names)])
        table = np.array(groups, np.int64).reshape(-1, 3)
        self._group_file = table[:, 0]
        self._group_number = table[:, 1]
        self.group_starts = np.concatenate([[0], np.cumsum(table[:, 2])]).astype(np.int64)
        firsts = np.searchsorted(self._group_file, np.arange(len(self.files)))
        self._file_starts = self.group_starts[firsts]

    def __len__(self) -> int:
        return int(self.group_starts[-1])

    def places(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the file of each row, and its number in there."""
        groups = np.searchsorted(self.group_starts, ids, side="right") - 1
        files = self._group_file[groups]
        return files, ids - self._file_starts[files]

    def columns(self, ids: NDArray[np.int64], names: Sequence[str]) -> pa.RecordBatch:
        """Return columns of the schema for rows in the order asked."""
        schema = pa.schema([self.schema.field(name) for name in names])
        if not names or not len(ids):
            return _bare(schema, len(ids))
        groups = np.searchsorted(self.group_starts, ids, side="right") - 1
        if groups[0] == groups[-1] and (groups == groups[0]).all():
            return self._rows(int(groups[0]), ids, schema)
        order = np.argsort(groups, kind="stable")
        borders = np.flatnonzero(np.diff(groups[order], prepend=-1))
        parts = [
            self._rows(int(groups[here[0]]), ids[here], schema)
            for here in np.split(order, borders[1:])
        ]
        whole = pa.Table.from_batches(parts, schema).combine_chunks().to_batches()
        joined = whole[0] if len(whole) == 1 else pa.concat_batches(whole)
        if (np.diff(order) == 1).all():
            return joined
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return joined.take(pa.array(back))

    def _rows(self, group: int, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        arrays = self._group(group, schema)
        rows = ids - self.group_starts[group]
        if (np.diff(rows) == 1).all():
            arrays = [array.slice(int(rows[0]), len(rows)) for array in arrays]
        else:
            wanted = pa.array(rows)
            arrays = [array.take(wanted) for array in arrays]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _group(self, group: int, schema: pa.Schema) -> list[pa.Array]:
        """Return whole columns of a row group, under the types of all files."""
        there = set(self._schemas[int(self._group_file[group])].names)
        rows = int(self.group_starts[group + 1] - self.group_starts[group])
        found = {
            name: _columns.get((self._token, group, name))
            if name in there
            else pa.nulls(rows, schema.field(name).type)
            for name in schema.names
        }
        missing = [name for name, array in found.items() if array is None]
        if missing:
            wanted = pa.schema([schema.field(name) for name in missing])
            batch = self._read(group, wanted)
            for name, array in zip(missing, batch.columns, strict=True):
                _columns.put((self._token, group, name), array, array.get_total_buffer_size())
                found[name] = array
        return list(found.values())

    def _read(self, group: int, schema: pa.Schema) -> pa.RecordBatch:
        file = int(self._group_file[group])
        found, number = self.files[file], int(self._group_number[group])
        try:
            opened, metadata = self._open(file)
            batch = _read_group(opened, metadata, number, schema.names)
        except (ObjectChangedError, ObjectNotFoundError) as why:
            raise _stale(found.path, str(why)) from None
        except PenstockError:
            raise
        except (pa.ArrowException, OSError) as why:
            raise CorruptFileError(
                f"{found.path}: row group {number} cannot be read: {why}. The file is damaged: "
                "copy or write it again.",
                path=found.path,
            ) from None
        ids = np.arange(self.group_starts[group], self.group_starts[group + 1])
        return fit_batch(batch, schema, ids)

    def _open(self, file: int) -> tuple[OpenFile, pq.FileMetaData]:
        """Return a file and its footer, and make sure that it is still the one that was opened."""
        found = self.files[file]
        kept = _files.get((self._token, file))
        if kept is None:
            metadata = self._metadata[file] or read_footer(found).metadata
            kept = found.store.open(found.entry.name, found.entry), metadata
            _files.put((self._token, file), kept, 1)
        if isinstance(found.store, LocalStore):
            # Remote reads ask for the version that was listed.
            now = found.store.entry(found.entry.name)
            if (now.size, now.modified) != (found.entry.size, found.entry.modified):
                sizes = f"{found.entry.size:,} bytes then, {now.size:,} now"
                raise _stale(found.path, f"it was written to ({sizes})")
        return kept


def _stale(path: str, why: str) -> StaleIndexError:
    return StaleIndexError(
        f"{path} is not what it was when this source was opened: {why}. Open the source again.",
        path=path,
    )


def _bare(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if len(schema):
        return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _read_group(
    file: OpenFile, metadata: pq.FileMetaData, group: int, names: Sequence[str]
) -> pa.RecordBatch:
    """Read whole columns of a row group, with as few requests as their places allow."""
    inside = tuple(f"{name}." for name in names)
    chunks = metadata.row_group(group)
    ranges = []
    for number in range(metadata.num_columns):
        chunk = chunks.column(number)
        if chunk.path_in_schema in names or chunk.path_in_schema.startswith(inside):
            start = min(
                chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset
            )
            ranges.append((start, chunk.total_compressed_size))
    fetched = SeekableFile(_Fetched(file, ranges))
    # In this thread: a pool of threads would be one more thing to lose in a fork.
    reader = pq.ParquetFile(fetched, metadata=metadata, pre_buffer=False)
    table = reader.read_row_group(group, columns=list(names), use_threads=False)
    arrays = [_one_array(table.column(name)) for name in names]
    return pa.RecordBatch.from_arrays(arrays, list(names))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)


class _Fetched:
    """A file of which some ranges are in memory already; see `penstock.storage.OpenFile`."""

    def __init__(self, file: OpenFile, ranges: Sequence[tuple[int, int]]) -> None:
        self.path, self.size = file.path, file.size
        self._file = file
        self._parts = [
            (start, memoryview(data))
            for (start, _), data in zip(ranges, file.read_ranges(ranges), strict=True)
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
