"""CSV rows by number."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from penstock._words import counted, warn_once
from penstock.datasets._join_batches import joined
from penstock.datasets.text._csv_layout import Layout, layout_of
from penstock.datasets.text._csv_parser import NOT_UTF_8, CsvParser
from penstock.datasets.text._dataset import Dataset
from penstock.datasets.text._in_folders import InFolders
from penstock.datasets.text._texts import grouped
from penstock.decode import HOLDS_ALL, JSON, TEXT, NumbersType, as_records, fit_batch
from penstock.errors import (
    CorruptIndexError,
    MalformedLineError,
    SchemaMismatchError,
)
from penstock.index import CSV, Detected, list_files, open_or_build
from penstock.index.csv import (
    DELIMITERS,
    check_columns,
    line_ends,
    warn_of_names,
)
from penstock.jsonl import conversion_of
from penstock.storage import StorageOptions, is_remote

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from penstock.index import SampleIndex
    from penstock.work import View

_log = logging.getLogger("penstock.datasets")
_SHOWN = 80
_COUNTED_BYTES = 16 << 20
"""Text before a bad row whose lines are counted, so that an editor finds the row."""
_RAISES = "; reading such a row raises an error"
_NO_QUOTES = ". quote=None (--quote none) reads quotes as text"
_ODD_ROWS = (
    ("ragged", "another number of fields than the file has columns", _RAISES),
    (
        "misquoted",
        "quotes that do not enclose whole fields",
        f"{_RAISES}{_NO_QUOTES}; escape= is the sign before such a one",
    ),
    ("merged", "quotes around lines that have all fields by themselves", _NO_QUOTES),
)
"""Facts of files in the index, and what is said of them."""
_OTHER_DIALECT = (
    "Correct the file, or open it with the delimiter=, quote= and escape= that it was written with "
    "(format_options= of penstock.open)."
)


class CsvRows(InFolders):
    r"""The rows of CSV files, local or remote: a file, a folder, a pattern, or a list of those.

    A column has one type, found when the index was built: int64, float64, bool (`true`, `false`)
    or text. An empty field is null; a quoted empty one is null, too, except in a text column, where
    it is an empty text. Files are matched by the names of their columns; a column that a file lacks
    is null. Folders below the path that are called `year=2024` are a field `year` of the files in
    them that have no such column.

    Args:
        path: The files.
        delimiter: The sign between two fields. `"auto"` finds `,`, tab, `;` or `|` in the head of
            the first file, if it cuts the rows there into the same number of fields, and else
            takes the comma (in `.tsv` files the tab). Give it where the log warns.
        header: Whether the first row of each file has the names of the columns.
        column_names: Names that replace the header, or name the columns of files without one (by
            default `f0`, `f1` …).
        quote: The sign around fields with delimiters or line ends inside, None in files without
            any. `"auto"` finds `"`, `'` or, in files without commas, none.
        escape: The sign before a quote that is text; `"auto"` finds a backslash. Quotes that are
            written twice need none.
        null_values: Texts that stand for null besides an empty field: `["NA", "NULL", "N/A"]`. In
            a text column only fields without quotes are null.
        types: Types of columns (`{"zip": "string"}`) in place of those found in the values. Other
            columns keep theirs.
        empty_text: Whether an empty field of a text column is an empty text, without quotes, too;
            null only if `null_values` has `""`.
        storage_options: Credentials, endpoint, retries and cache of remote paths.
        index: The folder of the index. An index that is there already decides about all options
            that are not given; other options need another folder.
        progress: Whether a bar shows the build of the index.

    >>> from pathlib import Path
    >>> _ = Path("a.csv").write_text('id,text\n1,"two\nlines"\n2,\n')
    >>> rows = CsvRows("a.csv")
    >>> len(rows), rows[0], rows[-1]
    (2, {'id': 1, 'text': 'two\nlines'}, {'id': 2, 'text': None})
    """

    _NAME_IN_CACHE = "penstock.datasets._csv.CsvRows"
    has_lines = True
    schema_is_complete = True

    def __init__(  # noqa: PLR0913 (how a file is written takes this many words)
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        delimiter: str = "auto",
        header: bool = True,
        column_names: Sequence[str] | None = None,
        quote: str | None = "auto",
        escape: str | None = "auto",
        null_values: Sequence[str] = (),
        types: Mapping[str, str] | None = None,
        empty_text: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        index: str | os.PathLike[str] | None = None,
        progress: bool | View | None = None,
    ) -> None:
        chosen = {"delimiter": delimiter, "quote": quote, "escape": escape}
        given: dict[str, Any] = {name: sign for name, sign in chosen.items() if sign != "auto"}
        more = {"column_names": column_names, "null_values": null_values, "types": types}
        given |= {name: value for name, value in more.items() if value not in (None, ())}
        given |= {} if header else {"header": False}
        given |= {"empty_text": True} if empty_text else {}
        options = StorageOptions(storage_options)
        listing = list_files(path, CSV.endings, options)
        scanner = Detected(path, CSV, listing, options, given={"header": True, **given}).scanner()
        super().__init__(
            open_or_build(
                listing, scanner, options=options, index=index, progress=progress, given=given
            )
        )
        self._warn_of_oddities()
        warn_of_names(self.index_meta)

    @classmethod
    def from_index(  # type: ignore[override] # it has no options
        cls, sample_index: SampleIndex, name: str | None = None
    ) -> Self:
        """Return the rows that an index of CSV files describes."""
        rows = cls.__new__(cls)
        Dataset.__init__(rows, sample_index, name)
        rows._warn_of_oddities()  # noqa: SLF001 (one of our own)
        return rows

    def _take_index(self, sample_index: SampleIndex, name: str | None) -> None:
        super()._take_index(sample_index, name)
        meta = sample_index.meta
        if meta is not None and meta.kind == CSV.name:
            check_columns(((file.path, file.facts["columns"]) for file in meta.files), meta.options)

    @property
    def schema(self) -> pa.Schema:
        """All columns of all files, with types that hold every value exactly.

        Numbers that no type of Arrow holds exactly have the types of their files: `NumbersType`.
        """
        return self._layout.schema

    @cached_property
    def _layout(self) -> Layout:
        meta = self._sample_index.meta
        if meta is None or meta.kind != "csv":
            raise CorruptIndexError(
                "this is no index of CSV files, or it lost its meta.json. Build it again: penstock "
                "index PATH --overwrite"
            )
        return layout_of(meta, self.files, self._folders[0])

    def _process_sample(self, sample_bytes: bytes) -> Any:
        """Return the record of a row in the first file's order of columns."""
        parser, schema = self._layout.parsers[0]
        try:
            return parser.columns([sample_bytes], schema).to_pylist()[0]
        except pa.ArrowInvalid as why:
            _, field, fact = parser.misfit([sample_bytes], schema, why)
            fact = fact if field is None else f"field {field!r} holds {fact}"
            text = f"{sample_bytes[:_SHOWN]!r} is no row of its file: {fact}."
            raise MalformedLineError(text, remedy=_OTHER_DIALECT) from None

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        return as_records(self._columns(ids, self._layout.values), ids)

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        return self._columns(ids, self.schema)

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        typed = _own_values(schema, self._layout.values)
        if typed != schema:
            return fit_batch(self._columns(ids, typed), schema, ids)
        if schema.names and self.free_fields.issuperset(schema.names):
            nulls = [pa.nulls(len(ids), type_) for type_ in schema.types]
            return self._fill(pa.record_batch(nulls, schema), ids)
        return self._fill(self._cells(ids, schema), ids)

    def _cells(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        _, _, parsers, of_file = self._layout
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

    @cached_property
    def _lacking(self) -> dict[str, NDArray[np.bool_]]:
        """For each field of folders the files that have no column of that name."""
        meta = self._sample_index.meta
        columns = [set(file.facts["columns"]) for file in (meta.files if meta is not None else ())]
        return {name: np.array([name not in own for own in columns]) for name in self._folders[0]}

    def _is_open(self, name: str, array: pa.Array, files: NDArray[np.int64]) -> NDArray[np.bool_]:
        is_open: NDArray[np.bool_] = self._lacking[name][files]
        return is_open

    @property
    def free_fields(self) -> frozenset[str]:
        """The fields that stand in the names of folders (`year=2024`) and in no file."""
        return frozenset(name for name, lacking in self._lacking.items() if lacking.all())

    def _parsed(
        self,
        parser_of_file: tuple[CsvParser, pa.Schema],
        rows: Sequence[bytes],
        ids: NDArray[np.int64],
        schema: pa.Schema,
    ) -> pa.RecordBatch:
        parser, own = parser_of_file
        typed = _as_in_file(schema, own)
        try:
            batch = parser.columns(rows, typed)
        except pa.ArrowInvalid as why:
            with suppress(pa.ArrowInvalid, SchemaMismatchError):
                # Where integers are asked for, a file may have 5.0 for 5.
                floats = {field.name for field in own if pa.types.is_floating(field.type)}
                return fit_batch(parser.numbers(rows, typed, floats), schema, ids)
            row, field, fact = parser.misfit(rows, typed, why)
            file, offset, size = self.location(int(ids[row]))
            details: dict[str, Any] = {"path": file, "offset": offset, "record": int(ids[row])}
            line, where = self._line(int(ids[row])), ""
            if line is not None:
                details["line_number"], where = line, f"line {line:,}, "
            where = f"record {ids[row]:,} ({file}, {where}{size:,} bytes at byte {offset:,})"
            if field is None:
                raise MalformedLineError(
                    f"{where} is no row of its file: {fact}.",
                    remedy=_OTHER_DIALECT,
                    **details,
                ) from None
            remedy = f"{HOLDS_ALL} null_values= names texts that are null."
            if fact.endswith(NOT_UTF_8):
                remedy = conversion_of(file, rows[row])
            raise SchemaMismatchError(
                f"{where}: field {field!r} holds {fact}.",
                remedy=remedy,
                field=field,
                **details,
            ) from None
        return batch if batch.schema.equals(schema) else fit_batch(batch, schema, ids)

    def _line(self, number: int) -> int | None:
        """Return the line of a record, counted from 1; None where counting reads too much."""
        file, offset, _ = self._sample_index.rows_of(np.array([number]))[0].tolist()
        if offset > _COUNTED_BYTES or is_remote(self.files[file]):
            return None
        before = self._text(file).read(0, offset)
        return len(line_ends(np.frombuffer(before + b"\0", np.uint8), offset)) + 1

    def _warn_of_oddities(self) -> None:
        """Warn of rows with other fields than their file, and of a delimiter that cuts nothing."""
        meta = self._sample_index.meta
        if meta is None or meta.kind != CSV.name:
            return
        for file in meta.files:
            name, *more = file.facts["columns"] or [""]
            if not more and any(sign in name for sign in DELIMITERS):
                sign = meta.options["delimiter"]
                text = f"{file.path} has one column, {name!r}, with the delimiter {sign!r}."
                warn_once(_log, f"{text} Another delimiter= (--delimiter) may cut it")
                break
        for name, fact, remedy in _ODD_ROWS:
            files = [file for file in meta.files if file.facts.get(name)]
            if files:
                rows = counted(sum(file.facts[name] for file in files), "row", ("has", "have"))
                first = f"byte {files[0].facts[f'first_{name}']} of {files[0].path}"
                warn_once(_log, f"{rows} {fact}, the first at {first}{remedy}")

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for known in ("_layout", "_lacking"):
            state.pop(known, None)
        return state


def _own_values(schema: pa.Schema, own: pa.Schema) -> pa.Schema:
    """Return a schema in which `json`, and `text` of strings, are of the column's own type.

    Its values are what they stand for; in other columns than strings an empty cell is null.
    """
    there = {field.name: field.type for field in own}
    fields = []
    for field in schema:
        kept = there.get(field.name, pa.null())
        is_own = field.type == JSON or (field.type == TEXT and pa.types.is_string(kept))
        fields.append(field.with_type(kept) if is_own else field)
    return pa.schema(fields)


def _as_in_file(schema: pa.Schema, own: pa.Schema) -> pa.Schema:
    """Return a schema in which numbers of several types are of that of a file."""
    if not any(isinstance(type_, NumbersType) for type_ in schema.types):
        return schema
    types = dict(zip(own.names, own.types, strict=True))
    return pa.schema(
        [
            (field.name, types.get(field.name, pa.null()))
            if isinstance(field.type, NumbersType)
            else field
            for field in schema
        ]
    )
