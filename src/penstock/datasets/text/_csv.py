"""CSV rows by number."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from penstock._words import counted, warn_once
from penstock.datasets._join_batches import joined
from penstock.datasets.fields._grammar import arrow_type
from penstock.datasets.text._csv_parser import NOT_UTF_8, CsvParser
from penstock.datasets.text._dataset import Dataset
from penstock.datasets.text._texts import grouped
from penstock.decode import HOLDS_ALL, JSON, TEXT, as_records, fit_batch
from penstock.errors import (
    CorruptIndexError,
    MalformedLineError,
    OptionError,
    SchemaMismatchError,
)
from penstock.index import CSV, Detected, list_files, open_or_build
from penstock.index.csv import (
    DELIMITERS,
    Dialect,
    line_ends,
    type_of,
    wider_type,
)
from penstock.storage import StorageOptions, is_remote

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from penstock.index import FileMeta, SampleIndex
    from penstock.work import View

_log = logging.getLogger("penstock.datasets")
_SHOWN = 80
_COUNTED_BYTES = 16 << 20
"""Text before a bad row whose lines are counted, so that an editor finds the row."""
_OTHER_DIALECT = (
    "Correct the file, or open it with the delimiter=, quote= and escape= that it was written with "
    "(format_options= of penstock.open)."
)


class CsvRows(Dataset):
    r"""The rows of CSV files, local or remote: a file, a folder, a pattern, or a list of those.

    A column has one type, found when the index was built: int64, float64, bool (`true`, `false`)
    or text. An empty field is null; a quoted empty one is null, too, except in a text column, where
    it is an empty text. Files are matched by the names of their columns; a column that a file lacks
    is null.

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
        scanner = Detected(path, CSV, listing, options, given=given).scanner()
        super().__init__(
            open_or_build(
                listing, scanner, options=options, index=index, progress=progress, given=given
            )
        )
        self._warn_of_oddities()

    @classmethod
    def from_index(  # type: ignore[override] # it has no options
        cls, sample_index: SampleIndex, name: str | None = None
    ) -> Self:
        """Return the rows that an index of CSV files describes."""
        rows = cls.__new__(cls)
        Dataset.__init__(rows, sample_index, name)
        rows._warn_of_oddities()  # noqa: SLF001 (one of our own)
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
        for file in [] if kinds else meta.empty:  # A header alone has names, too.
            kinds |= {name: {"null"} for name in file.facts.get("columns", ())}
        types = {name: type_of(wider_type(seen)) for name, seen in kinds.items()}
        for name, text in options.get("types", {}).items():
            if name not in types:
                there = ", ".join(list(types)[:20])
                raise OptionError(f"types= names {name!r}, and no file has that column: {there}.")
            types[name] = arrow_type(text)
        schema = pa.schema([*types.items()])
        nulls = tuple(options.get("null_values", ()))
        signs = (options["delimiter"], options["quote"], options["escape"])
        dialect = Dialect(*signs, nulls, options.get("empty_text", False))
        return schema, [CsvParser(names, dialect) for names in numbers or [()]], of_file

    def _process_sample(self, sample_bytes: bytes) -> Any:
        """Return the record of a row in the first file's order of columns."""
        schema, parsers, _ = self._layout
        try:
            return parsers[0].columns([sample_bytes], schema).to_pylist()[0]
        except pa.ArrowInvalid as why:
            _, field, fact = parsers[0].misfit([sample_bytes], schema, why)
            fact = fact if field is None else f"field {field!r} holds {fact}"
            text = f"{sample_bytes[:_SHOWN]!r} is no row of its file: {fact}."
            raise MalformedLineError(text, remedy=_OTHER_DIALECT) from None

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        return as_records(self._columns(ids, self.schema), ids)

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        return self._columns(ids, self.schema)

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        own, parsers, of_file = self._layout
        typed = _own_values(schema, own)
        if typed != schema:
            return fit_batch(self._columns(ids, typed), schema, ids)
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
                remedy = f"Convert the file: iconv -f LATIN1 -t UTF-8 {shlex.quote(file)}"
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
        files = [file for file in meta.files if file.facts.get("ragged")]
        if files:
            rows = counted(sum(file.facts["ragged"] for file in files), "row", ("has", "have"))
            warn_once(
                _log,
                f"{rows} another number of fields than the file has columns, the first at byte "
                f"{files[0].facts['first_ragged']} of {files[0].path}; reading such a row raises "
                "an error",
            )

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_layout", None)
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


def _check_fits(first: FileMeta, other: FileMeta, *, named: bool) -> None:
    these, those = first.facts["columns"], other.facts["columns"]
    if not named:
        raise SchemaMismatchError(
            f"{first.path} has {counted(len(these), 'column')} and {other.path} {len(those):,}, "
            "and without a header nothing says which are the same. Open them one by one with "
            "column_names=.",
            path=other.path,
        )
    if not set(these) & set(those):
        raise SchemaMismatchError(
            f"{first.path} and {other.path} have no column in common: {', '.join(these[:5])} … and "
            f"{', '.join(those[:5])} …. Has one of them no header (header=False), or another "
            "delimiter=?",
            path=other.path,
        )
