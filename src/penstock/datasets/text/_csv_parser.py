"""Reads rows of CSV as columns of the types that are asked for."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock._words import counted
from penstock.decode import NumbersType, bad_rows, empty_batch, is_utf8, numbers_array
from penstock.index.csv import (
    INTEGER,
    MISQUOTED,
    find_misquoted,
    read_options,
    whole_rows,
    with_line_end,
)

if TYPE_CHECKING:
    from penstock.index.csv import Dialect

is_ = pa.types
NOT_UTF_8 = "which is not UTF-8"
_OTHER_FIELDS = re.compile(r"Expected (\d+) columns, got (\d+)")
_SHOWN = 80
_KEPT = 16
_TEXTS = (is_.is_string, is_.is_large_string, is_.is_binary, is_.is_large_binary)
_PARSED = (
    *_TEXTS, is_.is_integer, is_.is_boolean, is_.is_date, is_.is_time, is_.is_timestamp,
    is_.is_decimal128, is_.is_null,
)  # fmt: skip
"""Types that Arrow parses from text; values of other types are fitted from text."""


@dataclass(slots=True)
class _Reading:
    """How the columns of a schema are read."""

    together: csv.ConvertOptions | None
    """All of them, as if quotes made any value a text: None where that cannot work."""
    apart: list[csv.ConvertOptions]
    """Columns of text, in which quotes do that, and the others."""


class CsvParser:
    """Reads rows that have these columns; `are_sound`: no quotes of a row are wrong."""

    def __init__(self, names: Sequence[str], dialect: Dialect, *, are_sound: bool = False) -> None:
        self._are_sound = are_sound
        self.names = list(names)
        self._dialect = dialect
        self._parse_options = dialect.parse_options()
        self._prepared: dict[pa.Schema, _Reading] = {}

    def columns(self, rows: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
        """Return the columns of a schema, as near to its types as Arrow reads text.

        A missing column is null, and so is an empty field, unless it is a quoted one of text. Rows
        that cannot be read raise `pa.ArrowInvalid`.
        """
        if not rows or not len(schema):
            return empty_batch(schema, len(rows))
        reading, text = self._reading(schema), self._text(rows)
        if reading.together is not None:
            try:
                return self._read(text, len(rows), reading.together)
            except pa.ArrowInvalid:
                batch = self._read_apart(text, len(rows), reading, schema)
                reading.together = None  # It would fail again: there are nulls in quotes.
                return batch
        return self._read_apart(text, len(rows), reading, schema)

    def numbers(
        self, rows: Sequence[bytes], schema: pa.Schema, floats: Collection[str]
    ) -> pa.RecordBatch:
        """Return the same columns; of `floats` that shall be integers each value as it is written.

        5.0 is a float, and 5 an integer of the type asked for.
        """
        numbers = {
            field.name: NumbersType.of([(field.type, ""), (pa.float64(), "")])
            for field in schema
            if field.name in floats and is_.is_integer(field.type)
        }
        wanted = pa.schema([(one.name, numbers.get(one.name, one.type)) for one in schema])
        batch = self.columns(rows, wanted)
        arrays = [
            _numbers_in(array, numbers[name]) if name in numbers else array
            for name, array in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, batch.schema.names)

    def _reading(self, schema: pa.Schema) -> _Reading:
        reading = self._prepared.get(schema)
        if reading is None:
            # The same few schemas are asked for again and again; making options costs 30 us.
            there = set(self.names)
            types = {field.name: _parsed(field.type, field.name in there) for field in schema}
            texts = {field.name for field in schema if _is_text(field.type)}
            parts = [
                self._options({n: types[n] for n in types if (n in texts) != nulls}, nulls=nulls)
                for nulls in (False, True)
            ]
            parts = [part for part in parts if part.column_types]
            # A value that is read as text, to be fitted, does not fail where it is null.
            is_sure = all(name in texts or not _is_text(types[name]) for name in types)
            # An empty field is null in one of the two alone where texts of its own are null.
            is_sure &= not (self._dialect.empty_text and self._dialect.null_values)
            together = self._options(types, nulls=False) if is_sure and len(parts) > 1 else None
            reading = _Reading(together, parts)
            self._prepared = {schema: reading, **dict(list(self._prepared.items())[:_KEPT])}
        return reading

    def _options(self, types: dict[str, pa.DataType], *, nulls: bool) -> csv.ConvertOptions:
        options = self._dialect.convert_options(types, list(types), quoted_nulls=nulls)
        # In a column of booleans these are booleans; the index reads them as integers.
        options.true_values = [*options.true_values, "1"]
        options.false_values = [*options.false_values, "0"]
        return options

    def _text(self, rows: Sequence[bytes]) -> pa.Buffer:
        """Return rows as one text; raise `pa.ArrowInvalid` where Arrow would read other values."""
        text = whole_rows(b"".join(map(with_line_end, rows)), self._dialect)
        if not self._are_sound and find_misquoted(text, rows, self._dialect):
            raise pa.ArrowInvalid(MISQUOTED)
        # A copy: a thread of Arrow may free what it read after this call. Of bytes it needs Python
        # for that, and aborts a program that ends meanwhile.
        copied = pa.allocate_buffer(len(text))
        memoryview(copied).cast("B")[:] = text
        return copied

    def _read_apart(
        self, text: pa.Buffer, count: int, reading: _Reading, schema: pa.Schema
    ) -> pa.RecordBatch:
        parts = [self._read(text, count, options) for options in reading.apart]
        if len(parts) == 1:
            return parts[0]
        found = {name: part.column(name) for part in parts for name in part.schema.names}
        return pa.record_batch({name: found[name] for name in schema.names})

    def _read(self, text: pa.Buffer, count: int, options: csv.ConvertOptions) -> pa.RecordBatch:
        with csv.open_csv(
            pa.BufferReader(text), read_options(text, self.names), self._parse_options, options
        ) as reader:
            table = reader.read_all()
        if table.num_rows != count:
            raise pa.ArrowInvalid(f"{count:,} rows are read as {table.num_rows:,}")
        batches = table.to_batches()
        return batches[0] if len(batches) == 1 else table.combine_chunks().to_batches()[0]

    def misfit(
        self, rows: Sequence[bytes], schema: pa.Schema, why: Exception
    ) -> tuple[int, str | None, str]:
        """Return the first row that cannot be read, its field that does not fit, and the fact.

        None in place of the field: the row has other fields than its file.
        """
        reading = self._reading(schema)
        found = bad_rows(
            len(rows),
            lambda start, stop: self._read_apart(
                self._text(rows[start:stop]), stop - start, reading, schema
            ),
            (pa.ArrowInvalid,),
            has_bad=True,
        )
        at, why = next(found, (0, why))
        row = rows[at : at + 1]
        try:
            text = self._text(row)
            as_bytes = dict.fromkeys(self.names, pa.binary())
            raw = self._read(text, 1, self._options(as_bytes, nulls=False))
        except pa.ArrowInvalid as broken:
            fact = str(broken).removeprefix("CSV parse error: Row #1: ").partition("\n")[0]
            if counts := _OTHER_FIELDS.match(fact):
                columns, fields = map(int, counts.groups())
                fact = f"{counted(fields, 'field')}, and its file has {counted(columns, 'column')}"
            return at, None, fact[:200]
        for part in reading.apart:
            for name, type_ in part.column_types.items():
                try:
                    nulls = part.quoted_strings_can_be_null
                    self._read(text, 1, self._options({name: type_}, nulls=nulls))
                except pa.ArrowInvalid:
                    held: bytes = raw.column(name)[0].as_py() or b""
                    cell = held.decode("utf-8", "backslashreplace")
                    shown = repr(cell if len(cell) <= _SHOWN else cell[: _SHOWN - 1] + "…")
                    what = NOT_UTF_8 if not is_utf8(held) else f"which does not fit {type_}"
                    return at, name, f"{shown}, {what}"
        return at, None, str(why)[:200]


def _numbers_in(texts: pa.Array, type_: NumbersType) -> pa.Array:
    is_integer = pc.match_substring_regex(texts, INTEGER)
    parts = [
        pc.replace_with_mask(texts, mask, pa.scalar(None, texts.type))
        for mask in (pc.invert(is_integer), is_integer)
    ]
    types = [part for part, _ in type_.parts]
    return numbers_array(
        [pc.utf8_trim(one, " \t").cast(part) for one, part in zip(parts, types, strict=True)], type_
    )


def _is_text(type_: pa.DataType) -> bool:
    return any(is_kind(type_) for is_kind in _TEXTS)


def _parsed(type_: pa.DataType, is_there: bool) -> pa.DataType:  # noqa: FBT001 (of a column)
    """Return the type as which Arrow reads a field that shall have another type."""
    if pa.types.is_floating(type_):
        return pa.float64()  # Narrower ones would turn large numbers into infinity.
    if any(is_parsed(type_) for is_parsed in _PARSED):
        return type_
    return pa.string() if is_there else pa.null()
