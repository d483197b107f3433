"""CSV rows by number."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from penstock.datasets._join_batches import joined
from penstock.datasets.text._dataset import Dataset
from penstock.datasets.text._texts import grouped
from penstock.decode import HOLDS_ALL, JSON, as_records, bad_rows, empty_batch, fit_batch
from penstock.errors import CorruptIndexError, MalformedLineError, SchemaMismatchError
from penstock.index import CSV, CsvScanner, list_files, open_or_build
from penstock.index.csv import (
    Dialect,
    convert_options,
    read_options,
    type_of,
    whole_rows,
    wider_type,
    with_line_end,
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
is_ = pa.types
_SHOWN = 80
_KEPT = 16
_PARSED = (
    is_.is_integer, is_.is_boolean, is_.is_string, is_.is_large_string, is_.is_binary,
    is_.is_large_binary, is_.is_date, is_.is_time, is_.is_timestamp, is_.is_decimal128, is_.is_null,
)  # fmt: skip
"""Types that Arrow parses from text; values of other types are fitted from text."""


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
    def from_index(  # type: ignore[override] # it has no options
        cls, sample_index: SampleIndex, name: str | None = None
    ) -> Self:
        """Return the rows that an index of CSV files describes."""
        rows = cls.__new__(cls)
        Dataset.__init__(rows, sample_index, name)
        rows._warn_of_ragged_rows()  # noqa: SLF001 (one of our own)
        return rows

    @property
    def schema(self) -> pa.Schema:
        """All columns of all files, with types that hold every value."""
        return self._layout[0]

    @cached_property
    def _layout(self) -> tuple[pa.Schema, list[CsvParser], NDArray[np.int64]]:
        """The columns of all files together, the parsers of rows, and the parser of each file."""
        meta = self._sample_index.meta
        if meta is None or meta.kind != "csv":
            raise CorruptIndexError(
                "this is no index of CSV files, or it lost its meta.json. Build it again: penstock "
                "index PATH --overwrite"
            )
        options = meta.options
        kinds: dict[str, set[str]] = {}
        numbers: dict[tuple[str, ...], int] = {}
        of_file = np.zeros(len(meta.files), np.int64)
        for at, file in enumerate(meta.files):
            columns = tuple(file.facts["columns"])
            if numbers and columns not in numbers:
                is_named = options["header"] or options["column_names"] is not None
                _check_fits(meta.files[0], file, named=is_named)
            of_file[at] = numbers.setdefault(columns, len(numbers))
            for name, kind in zip(columns, file.facts["types"], strict=True):
                kinds.setdefault(name, set()).add(kind)
        schema = pa.schema([(name, type_of(wider_type(seen))) for name, seen in kinds.items()])
        dialect = Dialect(options["delimiter"], options["quote"], options["escape"])
        return schema, [CsvParser(names, dialect) for names in numbers or [()]], of_file

    def _process_sample(self, sample_bytes: bytes) -> Any:
        """Return the record of a row in the first file's order of columns."""
        schema, parsers, _ = self._layout
        return parsers[0].columns([sample_bytes], schema).to_pylist()[0]

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        return as_records(self._columns(ids, self.schema), ids)

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        return self._columns(ids, self.schema)

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        own, parsers, of_file = self._layout
        if JSON in schema.types:
            # The value that `json` stands for is the one of the column's own type.
            there = {field.name: field.type for field in own}
            typed = [
                (field.name, there.get(field.name, pa.null()) if field.type == JSON else field.type)
                for field in schema
            ]
            return fit_batch(self._columns(ids, pa.schema(typed)), schema, ids)
        rows = self._bytes_of(ids)
        if len(parsers) == 1 or not len(ids):
            return self._parsed(parsers[0], rows, ids, schema)
        which = of_file[self._rows[ids, 0].astype(np.int64)]
        places = grouped(which)
        parts = [
            self._parsed(parsers[which[here[0]]], [rows[at] for at in here], ids[here], schema)
            for here in places
        ]
        return parts[0] if len(parts) == 1 else joined(parts, np.argsort(np.concatenate(places)))

    def _parsed(
        self, parser: CsvParser, rows: Sequence[bytes], ids: NDArray[np.int64], schema: pa.Schema
    ) -> pa.RecordBatch:
        try:
            batch = parser.columns(rows, schema)
        except pa.ArrowInvalid as why:
            row, field, fact = parser.misfit(rows, schema, why)
            file, offset, size = self.location(int(ids[row]))
            where = f"record {ids[row]:,} ({file}, {size:,} bytes at byte {offset:,})"
            details: dict[str, Any] = {"path": file, "offset": offset, "record": int(ids[row])}
            if field is None:
                raise MalformedLineError(
                    f"{where} is no row of its file: {fact}. Correct the file, or open it with "
                    "the delimiter=, quote= and escape= that it was written with.",
                    **details,
                ) from None
            raise SchemaMismatchError(
                f"{where}: field {field!r} holds {fact}.",
                remedy=HOLDS_ALL,
                field=field,
                **details,
            ) from None
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


class CsvParser:
    """Reads rows that have these columns."""

    def __init__(self, names: Sequence[str], dialect: Dialect) -> None:
        self.names = list(names)
        self._parse_options = dialect.parse_options()
        self._prepared: dict[pa.Schema, csv.ConvertOptions] = {}

    def columns(self, rows: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
        """Return the columns of a schema, as near to its types as Arrow reads text.

        A missing column is null, and so is an empty field without quotes. Rows that cannot be read
        raise `pa.ArrowInvalid`.
        """
        if not rows or not len(schema):
            return empty_batch(schema, len(rows))
        return self._read(rows, self._options(schema))

    def _options(self, schema: pa.Schema) -> csv.ConvertOptions:
        options = self._prepared.get(schema)
        if options is None:
            # The same few schemas are asked for again and again; making options costs 30 us.
            there = set(self.names)
            options = _options(
                {field.name: _parsed(field.type, field.name in there) for field in schema}
            )
            self._prepared = {schema: options, **dict(list(self._prepared.items())[:_KEPT])}
        return options

    def _read(self, rows: Sequence[bytes], options: csv.ConvertOptions) -> pa.RecordBatch:
        text = whole_rows(b"".join(map(with_line_end, rows)))
        with csv.open_csv(
            pa.BufferReader(text), read_options(text, self.names), self._parse_options, options
        ) as reader:
            table = reader.read_all()
        if table.num_rows != len(rows):
            raise pa.ArrowInvalid(f"{len(rows):,} rows are read as {table.num_rows:,}")
        batches = table.to_batches()
        return batches[0] if len(batches) == 1 else table.combine_chunks().to_batches()[0]

    def misfit(
        self, rows: Sequence[bytes], schema: pa.Schema, why: Exception
    ) -> tuple[int, str | None, str]:
        """Return the first row that cannot be read, its field that does not fit, and the fact.

        None in place of the field: the row has other fields than its file.
        """
        options = self._options(schema)
        found = bad_rows(
            len(rows),
            lambda start, stop: self._read(rows[start:stop], options),
            (pa.ArrowInvalid,),
            has_bad=True,
        )
        at, why = next(found, (0, why))
        row = rows[at : at + 1]
        try:
            raw = self._read(row, _options(dict.fromkeys(self.names, pa.binary())))
        except pa.ArrowInvalid as broken:
            return at, None, str(broken).partition("\n")[0][:200]
        for name, type_ in options.column_types.items():
            try:
                self._read(row, _options({name: type_}))
            except pa.ArrowInvalid:
                text = (raw.column(name)[0].as_py() or b"").decode("utf-8", "backslashreplace")
                shown = repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
                return at, name, f"{shown}, which does not fit {type_}"
        return at, None, str(why)[:200]


def _options(types: dict[str, pa.DataType]) -> csv.ConvertOptions:
    options = convert_options(types, list(types))
    # In a column of booleans these are booleans; the index reads them as integers.
    options.true_values = [*options.true_values, "1"]
    options.false_values = [*options.false_values, "0"]
    return options


def _parsed(type_: pa.DataType, is_there: bool) -> pa.DataType:  # noqa: FBT001 (of a column)
    """Return the type as which Arrow reads a field that shall have another type."""
    if pa.types.is_floating(type_):
        return pa.float64()  # Narrower ones would turn large numbers into infinity.
    if any(is_parsed(type_) for is_parsed in _PARSED):
        return type_
    return pa.string() if is_there else pa.null()
