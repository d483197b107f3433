"""Rows of CSV text into columns of the types asked for, or the row that does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import csv

from penstock.decode import empty_batch
from penstock.errors import MalformedLineError, SchemaMismatchError
from penstock.index import convert_options, read_options, whole_rows, with_line_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.datasets._source import Location
    from penstock.index import Dialect

_SHOWN = 80
_KEPT = 16
_PARSED = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_decimal128,
    pa.types.is_null,
)
"""Types that Arrow parses from text; values of other types are fitted from text."""


class CsvParser:
    """Reads rows that have these columns."""

    def __init__(self, names: Sequence[str], dialect: Dialect) -> None:
        self.names = list(names)
        self._parse_options = dialect.parse_options()
        self._prepared: dict[pa.Schema, csv.ConvertOptions] = {}

    def columns(self, rows: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
        """Return the columns of a schema, as near to its types as Arrow reads text.

        A missing column is null, and so is an empty field without quotes. `Unfit` names the first
        row that cannot be read.
        """
        if not rows or not len(schema):
            return empty_batch(schema, len(rows))
        options = self._prepared.get(schema)
        if options is None:
            # The same few schemas are asked for again and again; making options costs 30 us.
            there = set(self.names)
            options = _options(
                {field.name: _parsed(field.type, field.name in there) for field in schema}
            )
            self._prepared = {schema: options, **dict(list(self._prepared.items())[:_KEPT])}
        try:
            return self._read(rows, options)
        except pa.ArrowInvalid as why:
            raise self._culprit(rows, options, str(why)) from None

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

    def _culprit(self, rows: Sequence[bytes], options: csv.ConvertOptions, why: str) -> Unfit:
        """Return the first row that cannot be read, found by halving."""
        start, stop = 0, len(rows)
        while stop - start > 1:
            half = (start + stop) // 2
            try:
                self._read(rows[start:half], options)
                start = half
            except pa.ArrowInvalid:
                stop = half
        row = rows[start : start + 1]
        try:
            raw = self._read(row, _options(dict.fromkeys(self.names, pa.binary())))
        except pa.ArrowInvalid as broken:
            return Unfit(start, str(broken).partition("\n")[0])
        for name, type_ in options.column_types.items():
            try:
                self._read(row, _options({name: type_}))
            except pa.ArrowInvalid as unfit:
                return Unfit(start, str(unfit), name, raw.column(name)[0].as_py(), type_)
        return Unfit(start, why)


class Unfit(Exception):  # noqa: N818 (caught where the record is known)
    """A row that has other fields, or a field that has another type."""

    def __init__(
        self,
        row: int,
        why: str,
        field: str | None = None,
        value: bytes | None = None,
        type_: pa.DataType | None = None,
    ) -> None:
        super().__init__(why)
        self.row = row
        self.why = why
        self.field = field
        self.value = value
        self.type = type_

    def error(self, number: int, place: Location) -> MalformedLineError | SchemaMismatchError:
        """Return the error that names record, file and place."""
        where = f"record {number:,} ({place.file}, {place.bytes:,} bytes at byte {place.offset:,})"
        if self.field is None:
            return MalformedLineError(
                f"{where} is no row of its file: {self.why[:200]}. Correct the file, or open it "
                "with the delimiter=, quote= and escape= that it was written with.",
                path=place.file,
                offset=place.offset,
                record=number,
            )
        text = (self.value or b"").decode("utf-8", "backslashreplace")
        shown = repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
        return SchemaMismatchError(
            f"{where}: field {self.field!r} holds {shown}, which does not fit {self.type}. Give "
            "the field a type that holds it.",
            path=place.file,
            offset=place.offset,
            record=number,
            field=self.field,
        )


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


class CsvLayout(NamedTuple):
    """The columns of all files together, and the order that each file has them in."""

    schema: pa.Schema
    parsers: list[CsvParser]
    of_file: NDArray[np.int64]
    """Which parser reads a file."""
