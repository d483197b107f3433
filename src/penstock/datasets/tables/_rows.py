"""Rows of table files by number."""

from __future__ import annotations

import difflib
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock._words import plural
from penstock.datasets._about import ColumnHome
from penstock.datasets._foreign_file import Reopened
from penstock.datasets._source import Location
from penstock.datasets.columns._place import listed_facts
from penstock.datasets.tables._files import TableFiles
from penstock.datasets.tables._heads import table_format
from penstock.decode import as_records, fit_batch
from penstock.errors import ObjectNotFoundError, OptionError, SchemaMismatchError
from penstock.index import list_files, refuse_lakes
from penstock.storage import StorageOptions, is_pattern, is_remote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.datasets.columns._place import FileFacts

_SHOWN = 10


class TableRows(Reopened[TableFiles]):
    """The rows of files of one format, local or remote: a file, a folder, a pattern, a list.

    Their heads say where rows are, so there is no index. Rows are read by units, which `blocks`
    are; a process keeps the columns that it used last (128 MiB). Files are matched by the names of
    their columns; types widen, and what a file does not have is null. With `columns` records have
    only those. Folders below the path that are called `year=2024` are a field `year` of the files
    in them, if these have no such column.
    """

    _FORMAT: ClassVar[str]
    """The name of its row in the table of formats."""

    schema_is_complete = True
    may_hold_bad_texts = True
    _given: Mapping[str, Any] = MappingProxyType({})
    """Options of the format that are not as usual."""

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        columns: Sequence[str] | None = None,
        split: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(columns, str):
            raise OptionError(f"columns={columns!r}: expected a list; for one: [{columns!r}].")
        paths = [path] if isinstance(path, str | os.PathLike) else path
        self._paths = [os.fspath(one) for one in paths]
        self._names = None if columns is None else list(columns)
        self._split = split
        self._options = StorageOptions(storage_options)
        self._opened()

    def _open(self) -> TableFiles:
        paths = self._paths
        endings = table_format(self._FORMAT).endings
        what = paths[0] if len(paths) == 1 else paths
        listing = list_files(what, endings, self._options, self._split)
        refuse_lakes(listing, self._options)
        if not listing.files:
            raise ObjectNotFoundError(
                f"{listing.named[0]} holds no {' or '.join(endings)} file.", path=listing.base
            )
        self._paths, self._path = list(listing.named), listing.named[0]
        table = TableFiles(self._FORMAT, listing, self._names, self._options, self._given)
        _check_names(self._names, table.names_there)
        return table.by_blocks() if self._is_by_blocks else table

    def by_blocks(self) -> Self:
        """Return the same rows; remote or large units are read once for all of a host.

        What is kept on disk is the columns that are asked for together, as Arrow, which every
        process maps.
        """
        if self._is_by_blocks or not (any(map(is_remote, self._paths)) or self._opened().is_wide):
            return self
        return self._by_blocks(self._opened().by_blocks())

    def __len__(self) -> int:
        return len(self._opened())

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        return self._opened().past(least, most)

    @property
    def schema(self) -> pa.Schema:
        """All columns of all files, or those chosen, with types that hold every value exactly.

        Numbers that no type of Arrow holds exactly have the types of their files: `NumbersType`.
        """
        schema = self._opened().schema
        if self._names is None:
            return schema
        import pyarrow as pa  # noqa: PLC0415 (loaded with the table at the latest)

        return pa.schema([schema.field(name) for name in self._names])

    @property
    def files(self) -> list[str]:
        """The files with rows, in the order of the numbers."""
        return [found.path for found in self._opened().files]

    @property
    def free_fields(self) -> frozenset[str]:
        """The fields that stand in the names of folders (`year=2024`) and in no file."""
        return self._opened().free_fields

    decodes_in_processes = True

    @property
    def reads_blocks(self) -> str:  # type: ignore[override]
        """Why a block is read as a whole; "" where files are mapped."""
        unit, title = self._opened().unit_read, table_format(self._FORMAT).title
        return unit and f"{plural(unit)} of {title} files are read as a whole, each once"

    @property
    def reopens_as(self) -> str | None:
        """The path by which `penstock.open` finds this again."""
        self._opened()  # After that the paths are absolute.
        is_usual = self._names is None and self._split is None and not self._given
        return self._paths[0] if len(self._paths) == 1 and is_usual else None

    def file_sizes(self) -> dict[str, int]:
        """Return the bytes of each file."""
        return {found.path: found.entry.size for found in self._opened().files}

    def file_facts(self) -> list[FileFacts]:
        """Return the state of its files; one that changed since it was opened counts as gone."""
        return [listed_facts(found.path, found.entry) for found in self._opened().files]

    def column_home(self) -> ColumnHome:
        """Return where columns lie: in the cache directory, or beside a remote folder."""
        files = self.files
        split = [] if self._split is None else [self._split]
        chosen: list[object] = [self._names, *split, *self._given.items()]
        key: list[object] = [self._cache_name(), self._paths, *chosen]
        path = self._paths[0] if len(self._paths) == 1 and not split else ""
        is_folder = is_remote(path) and not is_pattern(path) and path not in files
        is_own = "_NAME_IN_CACHE" in vars(type(self))
        return ColumnHome(key, remote=path if files and is_folder and is_own else None)

    @property
    def blocks(self) -> NDArray[np.int64]:
        """The first row of each unit, and the number of all rows."""
        return self._opened().group_starts.copy()

    def _places(self, ids: NDArray[np.int64]) -> Location:
        # A row has no bytes of its own: its number in the file says where it lies.
        return Location(*self._opened().places(ids), np.zeros(len(ids), np.int64))

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        batch = self._opened().columns(ids, self.schema.names)
        try:
            return as_records(batch, ids)
        except SchemaMismatchError as why:
            raise self._placed(why) from None

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        there = set(self.schema.names)
        batch = self._opened().columns(ids, [name for name in schema.names if name in there])
        try:
            return fit_batch(batch, schema, ids)
        except SchemaMismatchError as why:
            raise self._placed(why) from None

    def _placed(self, why: SchemaMismatchError) -> SchemaMismatchError:
        """Return the error about a record with its file and row."""
        record: int = vars(why)["record"]
        file, row, _ = self.location(record)
        at = f"record {record:,} (row {row:,} of {file}):"
        why.fact = why.fact.replace(f"record {record:,}:", at, 1)
        why.advise(why.remedy)
        return why

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        return self._columns(ids, self.schema)


def _check_names(names: Sequence[str] | None, there: Sequence[str]) -> None:
    for name in names or ():
        if name not in there:
            more = " …" if len(there) > _SHOWN else ""
            hint = f"They have {', '.join(there[:_SHOWN])}{more}."
            if near := difflib.get_close_matches(str(name), there, 3):
                hint = f"Did you mean {' or '.join(map(repr, near))}?"
            raise OptionError(f"columns=: no file has a column {name!r}. {hint}")
    if names is not None and len(set(names)) < len(names):
        raise OptionError(f"columns={list(names)!r} names a column twice.")


class ParquetRows(TableRows):
    """The rows of Parquet files, local or remote: a file, a folder, a pattern, a list of those.

    The footers say where rows are, so there is no index. A row costs reading the asked columns of
    its row group; a process keeps what it used last (128 MiB), so rows that lie together are best
    read together: `blocks` are the row groups. Files are matched by the names of their columns;
    types widen, and what a file does not have is null. With `columns` records have only those.
    Timestamps of INT96 come in microseconds. Checksums of pages are compared, except with
    `page_checksums=False`, for files whose writer made wrong ones.

    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> pq.write_table(pa.table({"id": [1, 2, 3], "tags": [["a"], [], None]}), "a.parquet")
    >>> rows = ParquetRows("a.parquet")
    >>> len(rows), rows[-1], rows.location(2).offset
    (3, {'id': 3, 'tags': None}, 2)
    """

    _NAME_IN_CACHE = "penstock.datasets._parquet.ParquetRows"

    _FORMAT = "parquet"

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        columns: Sequence[str] | None = None,
        split: str | None = None,
        page_checksums: bool = True,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not page_checksums:
            self._given = {"page_checksums": False}
        super().__init__(path, columns=columns, split=split, storage_options=storage_options)


class ArrowRows(TableRows):
    """The rows of Arrow IPC files, which Feather files are since version 2.

    Local files are mapped, so a row of a batch that is not compressed is read by itself. Any other
    row costs reading its record batch. See `TableRows` for the rest.

    >>> import pyarrow as pa, pyarrow.feather as feather
    >>> feather.write_feather(pa.table({"id": [1, 2, 3]}), "a.feather")
    >>> ArrowRows("a.feather")[-1]
    {'id': 3}
    """

    _NAME_IN_CACHE = "penstock.datasets.ArrowRows"
    _FORMAT = "arrow"


class OrcRows(TableRows):
    """The rows of ORC files; a row costs reading the asked columns of its stripe.

    See `TableRows` for the rest. Timestamps come in nanoseconds, as Arrow reads them.
    """

    _NAME_IN_CACHE = "penstock.datasets.OrcRows"
    _FORMAT = "orc"


class AvroRows(TableRows):
    """The records of Avro files; a record costs decoding its block, or 64 KiB of small blocks.

    The first opening goes through each file, and keeps the places of blocks in the cache directory.
    See `TableRows` for the rest. A union with null is a field that may be null. Other unions are
    read if all their types are numbers. Needs fastavro: `pip install 'penstock[avro]'`.
    """

    _NAME_IN_CACHE = "penstock.datasets.AvroRows"
    _FORMAT = "avro"
