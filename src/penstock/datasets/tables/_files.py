"""Rows out of units of table files: each needed unit is read once, its columns are kept a while.

Columns of remote units are read once for a host, and mapped by every process as Arrow.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.datasets._foreign_file import check_unchanged, stale
from penstock.datasets._join_batches import joined
from penstock.datasets._recently_used import Owner, RecentlyUsed
from penstock.datasets.tables._heads import read_head, read_heads
from penstock.datasets.text._texts import grouped
from penstock.decode import empty_batch, fit_batch, numbers_in
from penstock.errors import ObjectChangedError, ObjectNotFoundError
from penstock.index import digest
from penstock.order import estimate
from penstock.storage import Block, LocalStore, block_cache, block_key, reading
from penstock.tables import CommonColumns, UnifiedSchema, partitions_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from penstock.index import Found, Listing
    from penstock.storage import OpenFile, StorageOptions
    from penstock.tables import TableHead

_KEPT_BYTES = 128 << 20
"""Decoded columns that a process keeps, of all its tables together."""
_KEPT_FILES = 64
_KEPT_HEAD_BYTES = 32 << 20
"""Heads of files that are kept for good; others are read again when needed."""
_KEPT_MAPPED_BYTES = 512 << 20
"""Columns mapped from the host's cache, which are in the page cache and not in the process."""
_MEMORY_WEIGHT = 4
"""How much heavier columns weigh that could not be mapped: those take 128 MiB."""
_READ_AT_ONCE_BYTES = 512 << 20
"""Columns that are decoded at the same time, each in memory until it is written."""
_MOST_AT_ONCE = 16
_MAPPED_BYTES = 4 << 10
"""What a column of a mapped file takes."""
_BLOCK_VERSION = 1
"""Raised whenever the same columns would be kept otherwise."""

_columns: RecentlyUsed[pa.Array] = RecentlyUsed(_KEPT_BYTES)
_blocks: RecentlyUsed[pa.RecordBatch] = RecentlyUsed(_KEPT_MAPPED_BYTES)
_files: RecentlyUsed[tuple[OpenFile, TableHead]] = RecentlyUsed(_KEPT_FILES)


class TableFiles:
    """All rows of some files of one format, numbered file by file."""

    _is_by_blocks = False
    """Whether units are read once for all processes of a host."""

    def __init__(
        self,
        kind: str,
        listing: Listing,
        names: Collection[str] | None,
        options: StorageOptions,
        given: Mapping[str, Any],
    ) -> None:
        self._owner = Owner()
        partitions, values = partitions_of([listing.relative(found) for found in listing.files])
        self._kind, self._options, self._given = kind, options, given
        unified, common = UnifiedSchema(names and frozenset(names)), CommonColumns()
        self.files: list[Found] = []
        self._heads: list[TableHead | None] = []
        self._schemas: list[pa.Schema] = []
        self._are_mapped: list[bool] = []
        self._partitions: list[dict[str, int | str | None]] = []
        """Fields of each file that stand in the names of folders, and not in the file."""
        self.unit_read = ""
        """What is read as a whole; "" where all files are mapped."""
        groups = [np.empty((0, 4), np.int64)]
        marks: list[tuple[Any, ...]] = []
        budget = _KEPT_HEAD_BYTES
        heads = read_heads(kind, listing.files, options, given)
        for found, stated, head in zip(listing.files, values, heads, strict=True):
            schema = unified.add(head.schema, found.path)
            own = {name: stated[name] for name in stated if name not in schema.names}
            unified.add(pa.schema([partitions.field(name) for name in own]), found.path)
            rows = head.unit_rows
            marks.append((found.entry.size, int(rows.sum()), head.mark, *own.items()))
            if not rows.any():
                continue
            common.add(schema, found.path)
            there = np.flatnonzero(rows)
            file = np.full(len(there), len(self.files))
            groups.append(np.stack([file, there, rows[there], head.unit_bytes[there]], axis=1))
            budget -= head.weight
            self._heads.append(head if budget > 0 else None)
            self._schemas.append(schema)
            self._partitions.append(own)
            self._are_mapped.append(head.is_mapped)
            self.unit_read = self.unit_read if head.is_mapped else head.unit
            self.files.append(found)
        self.schema, self.value_schema = unified.schema, unified.value_schema
        """The second has the types of columns: values have the types of their files."""
        self.names_there = unified.names_there
        self._marks = marks
        self._names = None if names is None else sorted(names)
        self.fingerprint = self._fingerprint_of(len(marks))
        table = np.concatenate(groups)
        self._group_file, self._group_number = table[:, 0], table[:, 1]
        self.group_starts = np.concatenate([[0], np.cumsum(table[:, 2])]).astype(np.int64)
        self._group_bytes = table[:, 3]
        read_bytes = table[:, 3] * ~np.array(self._are_mapped, bool)[self._group_file]
        self._open_bytes = estimate(read_bytes, "block", cache_bytes=1 << 60).open_bytes
        self.is_wide = self._open_bytes > _KEPT_BYTES
        """Whether a shuffle by units has more of them in use than a process keeps."""
        firsts = np.searchsorted(self._group_file, np.arange(len(self.files)))
        self._file_starts = self.group_starts[firsts]

    def __len__(self) -> int:
        return int(self.group_starts[-1])

    @property
    def free_fields(self) -> frozenset[str]:
        """Fields that stand in the names of folders alone, and cost no reading."""
        in_files = {name for schema in self._schemas for name in schema.names}
        return frozenset(name for own in self._partitions for name in own) - in_files

    def past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        """Yield each length from `least` to `most` that this had, with its fingerprint then.

        Only whole files are appended, each after those before it.
        """
        ends = np.cumsum([mark[1] for mark in self._marks], dtype=np.int64)
        for file in np.flatnonzero((least <= ends) & (ends <= most))[::-1].tolist():
            yield int(ends[file]), self._fingerprint_of(file + 1)

    def _fingerprint_of(self, files: int) -> str:
        """Return the fingerprint of the first files."""
        return digest([self._marks[:files], self._names])

    def by_blocks(self) -> TableFiles:
        """Return the same rows, their columns kept on this host by units."""
        table = copy(self)
        table._is_by_blocks = True  # noqa: SLF001 (its own)
        return table

    def places(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the file of each row, and its number in there."""
        groups = np.searchsorted(self.group_starts, ids, side="right") - 1
        files = self._group_file[groups]
        return files, ids - self._file_starts[files]

    def columns(self, ids: NDArray[np.int64], names: Sequence[str]) -> pa.RecordBatch:
        """Return columns, of the types of `value_schema`, for rows in the order asked."""
        schema = pa.schema([self.value_schema.field(name) for name in names])
        if not names or not len(ids):
            return empty_batch(schema, len(ids))
        groups = np.searchsorted(self.group_starts, ids, side="right") - 1
        held = self._held(groups, schema) if self._is_by_blocks else {}
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
        """Return rows of one group; columns that its file does not have are of its folders."""
        if group in held:
            there = dict(zip(held[group].schema.names, held[group].columns, strict=True))
        else:
            there = self._group(group, schema)
        file, rows = int(self._group_file[group]), ids - self.group_starts[group]
        # A part of a map is copied, because the file may shrink after the check.
        is_slice = (np.diff(rows) == 1).all() and not self._are_mapped[file]
        chosen = None if is_slice else pa.array(rows)
        arrays = []
        for field in schema:
            if (array := there.get(field.name)) is None:
                value = pa.scalar(self._partitions[file].get(field.name))
                array = _fitted(pa.repeat(value, len(rows)), field)
            elif chosen is None:
                array = array.slice(int(rows[0]), len(rows))
            else:
                array = array.take(chosen)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _held(self, groups: NDArray[np.int64], schema: pa.Schema) -> dict[int, pa.RecordBatch]:
        """Return whole columns of those groups that the host keeps, brought at once."""
        # About what these columns take, as if all columns were equally large.
        share = len(schema) / len(self.schema)
        are_wide = share * self._open_bytes > _KEPT_BYTES
        wanted: dict[int, pa.Schema] = {}
        for group in np.unique(groups).tolist():
            file = int(self._group_file[group])
            there = set(self._schemas[file].names)
            own = pa.schema([field for field in schema if field.name in there])
            is_wide = are_wide and not self._are_mapped[file]
            if len(own) and (is_wide or not isinstance(self.files[file].store, LocalStore)):
                wanted[group] = own
        keys = {group: (group, tuple(own.names)) for group, own in wanted.items()}
        held = {group: _blocks.get(self._owner, key) for group, key in keys.items()}
        missing = [group for group, batch in held.items() if batch is None]
        if missing:
            largest = max(1, int(share * self._group_bytes[missing].max()))
            blocks = [self._block(group, wanted[group]) for group in missing]
            at_once = min(_MOST_AT_ONCE, max(1, _READ_AT_ONCE_BYTES // largest))
            with reading():
                brought = block_cache(self._options).get_all(blocks, at_once)
            for group, kept in zip(missing, brought, strict=True):
                batch = held[group] = pa.ipc.open_file(kept.data).get_batch(0)
                weight = kept.data.size * (1 if kept.is_mapped else _MEMORY_WEIGHT)
                _blocks.put(self._owner, keys[group], batch, weight)
        return held

    def _block(self, group: int, schema: pa.Schema) -> Block:
        """Return columns of a group, kept as Arrow, which every process maps."""

        def make() -> pa.Buffer:
            batch = self._read(group, schema)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)
            return sink.getvalue()

        found, number = self._place(group)
        numbers = (type_ for one in schema for _, type_ in numbers_in(one.type, one.name))
        types = " ".join([str(schema), *(str(type_.storage_type) for type_ in numbers)])
        given = self._given.items()
        kept_as = ("columns", _BLOCK_VERSION, pa.__version__, types, number, *given)
        key = block_key(self._options, found.path, found.entry, *kept_as)
        return Block(found.path, 0, found.entry.size, key, make)

    def _place(self, group: int) -> tuple[Found, int]:
        """Return the file of a group, and its number in there."""
        return self.files[int(self._group_file[group])], int(self._group_number[group])

    def _group(self, group: int, schema: pa.Schema) -> dict[str, pa.Array]:
        """Return whole columns of a unit, under the types of all files, if it has them."""
        file = int(self._group_file[group])
        is_mapped = self._are_mapped[file]
        if is_mapped:
            check_unchanged(self.files[file])  # A map of a file that shrank ends the process.
        there = set(self._schemas[file].names)
        names = [name for name in schema.names if name in there]
        found = {name: _columns.get(self._owner, (group, name)) for name in names}
        missing = [name for name, array in found.items() if array is None]
        if missing:
            batch = self._read(group, pa.schema([schema.field(name) for name in missing]))
            for name, array in zip(missing, batch.columns, strict=True):
                size = _MAPPED_BYTES if is_mapped else array.get_total_buffer_size()
                _columns.put(self._owner, (group, name), array, size)
                found[name] = array
        return found

    def _read(self, group: int, schema: pa.Schema) -> pa.RecordBatch:
        file = int(self._group_file[group])
        found, number = self._place(group)
        try:
            opened, head = self._open(file)
            own = pa.schema([self._schemas[file].field(name) for name in schema.names])
            is_remote = not isinstance(found.store, LocalStore)
            batch = head.read(opened, number, own, at_once=is_remote)
        except (ObjectChangedError, ObjectNotFoundError) as why:
            raise stale(found.path, str(why)) from None
        ids = np.arange(self.group_starts[group], self.group_starts[group + 1])
        return fit_batch(batch, schema, ids)

    def _open(self, file: int) -> tuple[OpenFile, TableHead]:
        """Return a file and its head, and make sure that it is still the one that was opened."""
        found = self.files[file]
        kept = _files.get(self._owner, file)
        if kept is None:
            head = self._heads[file] or read_head(self._kind, found, self._options, self._given)
            kept = found.store.open(found.entry.name, found.entry), head
            _files.put(self._owner, file, kept, 1)
        check_unchanged(found)
        return kept


def _fitted(array: pa.Array, field: pa.Field) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([array], [field.name])
    return fit_batch(batch, pa.schema([field]), np.arange(len(array))).column(0)
