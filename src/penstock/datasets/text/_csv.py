"""CSV rows by number."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.datasets.text._csv_values import CsvLayout, CsvParser, Unfit
from penstock.datasets.text._dataset import Dataset
from penstock.decode import as_records, fit_batch
from penstock.errors import CorruptIndexError, SchemaMismatchError
from penstock.index import (
    CSV,
    CsvScanner,
    Dialect,
    IndexStore,
    list_files,
    open_or_build,
    type_of,
    wider_type,
)
from penstock.storage import StorageOptions

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import Self

    from numpy.typing import NDArray

    from penstock.index import FileMeta, SampleIndex
    from penstock.work import View

_log = logging.getLogger("penstock.datasets")


class CsvRows(Dataset):
    r"""The rows of CSV files, local or remote: a file, a folder, a pattern, or a list of those.

    A column has one type, found when the index was built: int64, float64, bool (`true`, `false`)
    or text. An empty field is null, a quoted empty one in a text column is an empty text. Files
    are matched by the names of their columns; a column that a file lacks is null.
    `column_names` replace the header, or name the columns of files without one (by default `f0`,
    `f1` …). Files without quotes need `quote=None`.

    >>> from pathlib import Path
    >>> _ = Path("a.csv").write_text('id,text\n1,"two\nlines"\n2,\n')
    >>> rows = CsvRows("a.csv")
    >>> len(rows), rows[0], rows[-1]
    (2, {'id': 1, 'text': 'two\nlines'}, {'id': 2, 'text': None})
    """

    _NAME_IN_CACHE = "penstock.datasets._csv.CsvRows"

    schema_is_complete = True

    def __init__(  # noqa: PLR0913 (how a file is written takes this many words)
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        delimiter: str = ",",
        header: bool = True,
        column_names: Sequence[str] | None = None,
        quote: str | None = '"',
        escape: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        index: str | os.PathLike[str] | None = None,
        progress: bool | View | None = None,
    ) -> None:
        scanner = CsvScanner(delimiter, quote, escape, header, column_names)
        options = StorageOptions(storage_options)
        listing = list_files(path, CSV.endings, options)
        super().__init__(
            open_or_build(listing, scanner, options=options, index=index, progress=progress)
        )
        self._warn_of_ragged_rows()

    @classmethod
    def from_index(cls, sample_index: SampleIndex, name: str | None = None) -> Self:
        """Return the rows that an index of CSV files describes."""
        rows = cls.__new__(cls)
        Dataset.__init__(rows, sample_index, name)
        rows._warn_of_ragged_rows()  # noqa: SLF001 (one of our own)
        return rows

    @classmethod
    def create_from_index_on_filesystem(
        cls,
        base_path: str | os.PathLike[str],
        index_data_folder: str = "index",
        name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Open the index in a folder."""
        index = IndexStore(base_path, index_data_folder=index_data_folder).load()
        return cls.from_index(index, name=name, **kwargs)

    @property
    def schema(self) -> pa.Schema:
        """All columns of all files, with types that hold every value."""
        return self._layout.schema

    @cached_property
    def _layout(self) -> CsvLayout:
        meta = self._sample_index.meta
        if meta is None or meta.kind != "csv":
            raise CorruptIndexError(
                "this is no index of CSV files, or it lost its meta.json. Build it again: penstock "
                "index PATH --overwrite"
            )
        options = meta.options
        return _layout(
            meta.files,
            Dialect(options["delimiter"], options["quote"], options["escape"]),
            named=options["header"] or options["column_names"] is not None,
        )

    def _process_sample(self, sample_bytes: bytes) -> Any:
        """Return the record of a row in the first file's order of columns."""
        return self._layout.parsers[0].columns([sample_bytes], self.schema).to_pylist()[0]

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        return as_records(self._columns(ids, self.schema), ids)

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        layout = self._layout
        rows = self._bytes_of(ids)
        if len(layout.parsers) <= 1:
            return self._parsed(0, rows, ids, schema)
        which = layout.of_file[self._rows[ids, 0].astype(np.int64)]
        parts, places = [], []
        for number in np.unique(which).tolist():
            here = np.flatnonzero(which == number)
            some = [rows[at] for at in here.tolist()]
            parts.append(self._parsed(number, some, ids[here], schema))
            places.append(here)
        if len(parts) <= 1:
            return parts[0] if parts else self._parsed(0, [], ids, schema)
        table = pa.Table.from_batches(parts).combine_chunks()
        order = np.empty(len(ids), np.int64)
        order[np.concatenate(places)] = np.arange(len(ids))
        return table.to_batches()[0].take(pa.array(order))

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        return self._columns(ids, self.schema)

    def _parsed(
        self, number: int, rows: Sequence[bytes], ids: NDArray[np.int64], schema: pa.Schema
    ) -> pa.RecordBatch:
        parsers = self._layout.parsers
        parser = parsers[number] if parsers else CsvParser([], Dialect())
        try:
            batch = parser.columns(rows, schema)
        except Unfit as unfit:
            record = int(ids[unfit.row])
            raise unfit.error(record, self.location(record)) from None
        return batch if batch.schema.equals(schema) else fit_batch(batch, schema, ids)

    def _warn_of_ragged_rows(self) -> None:
        meta = self._sample_index.meta
        files = [] if meta is None else [file for file in meta.files if file.facts.get("ragged")]
        if files:
            _log.warning(
                "%d rows have another number of fields than their file has columns, the first at "
                "byte %d of %s; reading them raises an error",
                sum(file.facts["ragged"] for file in files),
                files[0].facts["first_ragged"],
                files[0].path,
            )

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_layout", None)
        return state


def _layout(files: Sequence[FileMeta], dialect: Dialect, *, named: bool) -> CsvLayout:
    """Return the columns of all files, or raise for files that cannot be one table."""
    kinds: dict[str, set[str]] = {}
    numbers: dict[tuple[str, ...], int] = {}
    of_file = np.zeros(len(files), np.int64)
    for at, file in enumerate(files):
        columns = tuple(file.facts["columns"])
        if numbers and columns not in numbers:
            _check_fits(files[0], file, named=named)
        of_file[at] = numbers.setdefault(columns, len(numbers))
        for name, kind in zip(columns, file.facts["types"], strict=True):
            kinds.setdefault(name, set()).add(kind)
    schema = pa.schema([(name, type_of(wider_type(seen))) for name, seen in kinds.items()])
    return CsvLayout(schema, [CsvParser(names, dialect) for names in numbers], of_file)


def _check_fits(first: FileMeta, other: FileMeta, *, named: bool) -> None:
    these, those = first.facts["columns"], other.facts["columns"]
    if not named:
        raise SchemaMismatchError(
            f"{first.path} has {len(these):,} columns and {other.path} {len(those):,}, and without "
            "a header nothing says which are the same. Open them one by one with column_names=.",
            path=other.path,
        )
    if not set(these) & set(those):
        raise SchemaMismatchError(
            f"{first.path} and {other.path} have no column in common: {', '.join(these[:5])} … and "
            f"{', '.join(those[:5])} …. Has one of them no header (header=False), or another "
            "delimiter=?",
            path=other.path,
        )
