"""Rows out of Parquet row groups: each needed group is read once, its columns are kept a while.

Columns of remote row groups are read once for a host, and mapped by every process as Arrow.
"""

from __future__ import annotations

import itertools
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.datasets._foreign_file import check_unchanged, stale
from penstock.datasets._join_batches import joined
from penstock.datasets._recently_used import RecentlyUsed
from penstock.datasets.text._texts import grouped
from penstock.decode import empty_batch, fit_batch
from penstock.errors import CorruptFileError, ObjectChangedError, ObjectNotFoundError, PenstockError
from penstock.index import digest
from penstock.index.parquet import UnifiedSchema, read_footer, read_footers, read_group
from penstock.order import estimate
from penstock.storage import (
    Block,
    CachedStore,
    LocalStore,
    ObjectStore,
    block_cache,
    block_key,
    reading,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.index import Found
    from penstock.storage import OpenFile, StorageOptions

_KEPT_BYTES = 128 << 20
"""Decoded columns that a process keeps, of all its Parquet sources together."""
_KEPT_FILES = 64
_KEPT_FOOTER_BYTES = 32 << 20
"""Footers that are kept for good, as they are stored; others are read again when needed."""
_KEPT_MAPPED_BYTES = 512 << 20
"""Columns mapped from the host's cache, which are in the page cache and not in the process."""
_MEMORY_WEIGHT = 4
"""How much heavier columns weigh that could not be mapped: those take 128 MiB."""
_READ_AT_ONCE_BYTES = 512 << 20
"""Columns that are decoded at the same time, each in memory until it is written."""
_MOST_AT_ONCE = 16
_BLOCK_VERSION = 1
"""Raised whenever the same columns would be kept otherwise."""

_columns: RecentlyUsed[pa.Array] = RecentlyUsed(_KEPT_BYTES)
_blocks: RecentlyUsed[pa.RecordBatch] = RecentlyUsed(_KEPT_MAPPED_BYTES)
_files: RecentlyUsed[tuple[OpenFile, pq.FileMetaData]] = RecentlyUsed(_KEPT_FILES)
_tokens = itertools.count()


class ParquetTable:
    """All rows of some files, numbered file by file."""

    _options: StorageOptions | None = None
    """Those of the host's cache, where row groups are read once for all processes."""

    def __init__(self, files: Sequence[Found], names: Collection[str] | None) -> None:
        self._token = next(_tokens)
        unified = UnifiedSchema(None if names is None else frozenset(names))
        self.files: list[Found] = []
        self._metadata: list[pq.FileMetaData | None] = []
        self._schemas: list[pa.Schema] = []
        groups: list[tuple[int, int, int, int]] = []
        marks: list[tuple[int, int, str]] = []
        budget = _KEPT_FOOTER_BYTES
        for found, footer in zip(files, read_footers([*map(_cached, files)]), strict=True):
            schema = unified.add(footer.schema, found.path)
            rows = footer.group_rows.tolist()
            marks.append((found.entry.size, sum(rows), footer.mark))
            if not sum(rows):
                continue
            groups += [
                (len(self.files), at, count, footer.group_bytes[at])
                for at, count in enumerate(rows)
                if count
            ]
            budget -= footer.metadata.serialized_size
            self._metadata.append(footer.metadata if budget > 0 else None)
            self._schemas.append(schema)
            self.files.append(found)
        self.schema = unified.schema
        self.names_there = unified.names_there
        self._marks = marks
        self._names = None if names is None else sorted(names)
        self.fingerprint = self._fingerprint_of(len(marks))
        table = np.array(groups, np.int64).reshape(-1, 4)
        self._group_file = table[:, 0]
        self._group_number = table[:, 1]
        self.group_starts = np.concatenate([[0], np.cumsum(table[:, 2])]).astype(np.int64)
        self._group_bytes = table[:, 3]
        self._open_bytes = estimate(table[:, 3], "block", cache_bytes=1 << 60).open_bytes
        self.is_wide = self._open_bytes > _KEPT_BYTES
        """Whether a shuffle by row groups has more of them in use than a process keeps."""
        firsts = np.searchsorted(self._group_file, np.arange(len(self.files)))
        self._file_starts = self.group_starts[firsts]

    def __len__(self) -> int:
        return int(self.group_starts[-1])

    def past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        """Yield each length from `least` to `most` that this had, with its fingerprint then.

        Only whole files are appended, each after those before it.
        """
        ends = np.cumsum([rows for _, rows, _ in self._marks], dtype=np.int64)
        for file in np.flatnonzero((least <= ends) & (ends <= most))[::-1].tolist():
            yield int(ends[file]), self._fingerprint_of(file + 1)

    def _fingerprint_of(self, files: int) -> str:
        """Return the fingerprint of the first files."""
        return digest([self._marks[:files], self._names])

    def by_blocks(self, options: StorageOptions) -> ParquetTable:
        """Return the same rows, their columns kept on this host by row groups."""
        table = copy(self)
        table._options = options  # noqa: SLF001 (its own)
        return table

    def places(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the file of each row, and its number in there."""
        groups = np.searchsorted(self.group_starts, ids, side="right") - 1
        files = self._group_file[groups]
        return files, ids - self._file_starts[files]

    def columns(self, ids: NDArray[np.int64], names: Sequence[str]) -> pa.RecordBatch:
        """Return columns of the schema for rows in the order asked."""
        schema = pa.schema([self.schema.field(name) for name in names])
        if not names or not len(ids):
            return empty_batch(schema, len(ids))
        groups = np.searchsorted(self.group_starts, ids, side="right") - 1
        held = {} if self._options is None else self._held(groups, schema, self._options)
        places = grouped(groups)
        parts = [self._rows(int(groups[here[0]]), ids[here], schema, held) for here in places]
        return parts[0] if len(parts) == 1 else joined(parts, np.argsort(np.concatenate(places)))

    def _rows(
        self,
        group: int,
        ids: NDArray[np.int64],
        schema: pa.Schema,
        held: Mapping[int, pa.RecordBatch],
    ) -> pa.RecordBatch:
        """Return rows of one group; columns that its file does not have are null."""
        if group in held:
            there = dict(zip(held[group].schema.names, held[group].columns, strict=True))
        else:
            there = self._group(group, schema)
        size = int(self.group_starts[group + 1] - self.group_starts[group])
        arrays = [
            there[field.name] if field.name in there else pa.nulls(size, field.type)
            for field in schema
        ]
        whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
        rows = ids - self.group_starts[group]
        if (np.diff(rows) == 1).all():
            return whole.slice(int(rows[0]), len(rows))
        return whole.take(pa.array(rows))

    def _held(
        self, groups: NDArray[np.int64], schema: pa.Schema, options: StorageOptions
    ) -> dict[int, pa.RecordBatch]:
        """Return whole columns of those groups that the host keeps, brought at once."""
        # About what these columns take, as if all columns were equally large.
        share = len(schema) / len(self.schema)
        are_wide = share * self._open_bytes > _KEPT_BYTES
        wanted: dict[int, pa.Schema] = {}
        for group in np.unique(groups).tolist():
            file = int(self._group_file[group])
            there = set(self._schemas[file].names)
            own = pa.schema([field for field in schema if field.name in there])
            if len(own) and (are_wide or not isinstance(self.files[file].store, LocalStore)):
                wanted[group] = own
        keys = {group: (self._token, group, tuple(own.names)) for group, own in wanted.items()}
        held = {group: _blocks.get(key) for group, key in keys.items()}
        missing = [group for group, batch in held.items() if batch is None]
        if missing:
            largest = max(1, int(share * self._group_bytes[missing].max()))
            blocks = [self._block(group, wanted[group], options) for group in missing]
            at_once = min(_MOST_AT_ONCE, max(1, _READ_AT_ONCE_BYTES // largest))
            with reading():
                brought = block_cache(options).get_all(blocks, at_once)
            for group, kept in zip(missing, brought, strict=True):
                batch = held[group] = pa.ipc.open_file(kept.data).get_batch(0)
                weight = kept.data.size * (1 if kept.is_mapped else _MEMORY_WEIGHT)
                _blocks.put(keys[group], batch, weight)
        return held

    def _block(self, group: int, schema: pa.Schema, options: StorageOptions) -> Block:
        """Return columns of a group, kept as Arrow, which every process maps."""

        def make() -> pa.Buffer:
            batch = self._read(group, schema)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)
            return sink.getvalue()

        found, number = self._place(group)
        kept_as = ("columns", _BLOCK_VERSION, pa.__version__, str(schema), number)
        key = block_key(options, found.path, found.entry, *kept_as)
        return Block(found.path, 0, found.entry.size, key, make)

    def _place(self, group: int) -> tuple[Found, int]:
        """Return the file of a group, and its number in there."""
        return self.files[int(self._group_file[group])], int(self._group_number[group])

    def _group(self, group: int, schema: pa.Schema) -> dict[str, pa.Array]:
        """Return whole columns of a row group, under the types of all files, if it has them."""
        there = set(self._schemas[int(self._group_file[group])].names)
        names = [name for name in schema.names if name in there]
        found = {name: _columns.get((self._token, group, name)) for name in names}
        missing = [name for name, array in found.items() if array is None]
        if missing:
            batch = self._read(group, pa.schema([schema.field(name) for name in missing]))
            for name, array in zip(missing, batch.columns, strict=True):
                _columns.put((self._token, group, name), array, array.get_total_buffer_size())
                found[name] = array
        return found

    def _read(self, group: int, schema: pa.Schema) -> pa.RecordBatch:
        file = int(self._group_file[group])
        found, number = self._place(group)
        try:
            opened, metadata = self._open(file)
            own = pa.schema([self._schemas[file].field(name) for name in schema.names])
            is_remote = not isinstance(found.store, LocalStore)
            batch = read_group(opened, metadata, number, own, at_once=is_remote)
        except (ObjectChangedError, ObjectNotFoundError) as why:
            raise stale(found.path, str(why)) from None
        except PenstockError:
            raise
        except (pa.ArrowException, OSError, ValueError) as why:
            raise _corrupt(found.path, number, str(why)) from None
        ids = np.arange(self.group_starts[group], self.group_starts[group + 1])
        return fit_batch(batch, schema, ids)

    def _open(self, file: int) -> tuple[OpenFile, pq.FileMetaData]:
        """Return a file and its footer, and make sure that it is still the one that was opened."""
        found = self.files[file]
        kept = _files.get((self._token, file))
        if kept is None:
            metadata = self._metadata[file] or read_footer(_cached(found)).metadata
            kept = found.store.open(found.entry.name, found.entry), metadata
            _files.put((self._token, file), kept, 1)
        check_unchanged(found)
        return kept


def _cached(found: Found) -> Found:
    """Return a file whose footer is fetched once for all processes of this host."""
    store = found.store
    if not isinstance(store, ObjectStore):
        return found
    return found._replace(store=CachedStore(store.url, store.options))


def _corrupt(path: str, group: int, why: str) -> CorruptFileError:
    remedy = (
        "The column is encrypted: decrypt the file first, or leave the column out by columns=."
        if "decrypt" in why.lower()
        else "The file is damaged: copy or write it again."
    )
    return CorruptFileError(
        f"{path}: row group {group} cannot be read: {why.partition(chr(10))[0]}. {remedy}",
        path=path,
    )
