"""Text into the columns of a schema that the caller gave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.decode._assemble import record_batch
from penstock.decode._bad_rows import bad_rows
from penstock.decode._columns import REFUSALS, JsonColumn, Misfit
from penstock.decode._nested_columns import StructClass, column_for
from penstock.decode._records import OnBad, ParsedRecords, read_records
from penstock.decode._text import count_object_lines, is_utf8, may_hold_endless_number
from penstock.errors import OptionError, SchemaMismatchError

if TYPE_CHECKING:
    import msgspec
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


_REMEDY = "Give it another type, or no schema: then a field of several types becomes strings."


class TypedDecoder:
    r"""Decodes just the columns of a schema; every value fits its type, or its line is bad.

    A field that is missing or null is null, an error where the schema says not null. Integers
    never wrap, strings are never parsed as numbers. Temporal types take ISO 8601 strings or
    integers in their own unit, binary types the UTF-8 bytes of a string, maps JSON objects.

    >>> import pyarrow as pa
    >>> decoder = TypedDecoder(pa.schema({"n": pa.int8()}))
    >>> text = b'{"n": 1, "other": true}\n{}\n'
    >>> decoder.settle(text, decoder.attempt(text), print).to_pylist()
    [{'n': 1}, {'n': None}]
    """

    def __init__(self, schema: pa.Schema) -> None:
        counts = Counter(schema.names)
        if len(counts) < len(schema):
            names = ", ".join(repr(name) for name in sorted(counts) if counts[name] > 1)
            raise OptionError(f"the schema names {names} more than once; a field has one column")
        self.schema = schema
        self._columns = [column_for(field.type, field.name) for field in schema]
        self._row = StructClass.of(list(zip(schema, self._columns, strict=True)))

    def attempt(self, text: bytes, ends: NDArray[np.int64] | None = None) -> pa.RecordBatch | None:
        """Return the batch of a text in which every line fits, or None.

        `ends` are the places of all newlines, where known, and of the text's own end where it has
        no newline. Pure: it may run ahead of time in any thread.
        """
        return self._attempted(text, lambda row: _decode_rows(row.decoder, text, ends))

    def attempt_lines(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        """Return the same of lines that hold one record each, with or without a newline."""
        # The ends of lines are known already, which saves a twelfth of the time.
        return self._attempted(b"".join(lines), lambda row: list(map(row.decoder.decode, lines)))

    def _attempted(
        self, text: bytes, decode: Callable[[StructClass], list[object]]
    ) -> pa.RecordBatch | None:
        row = self._row
        if row is None or not is_utf8(text) or may_hold_endless_number(text):
            return None
        try:
            rows = decode(row)
            return record_batch(row.arrays(rows), len(rows), self.schema)
        except (Misfit, RecursionError, *REFUSALS):
            return None

    def settle(
        self, text: bytes, attempted: pa.RecordBatch | None, on_bad: OnBad
    ) -> pa.RecordBatch:
        """Return the batch of a text; `on_bad` is called for every line that does not fit."""
        if attempted is not None:
            return attempted
        records = read_records(text)
        try:
            batch = self._batch(records)
        except Misfit:
            records = records.without(self._misfits(records))
            batch = None
        records.report(on_bad)
        if batch is not None:
            return batch
        try:
            return self._batch(records)
        except Misfit as why:
            # Each row fits by itself: only a dictionary can be too small for all of them.
            raise SchemaMismatchError(
                f"field {why.path!r} cannot hold {len(records.rows):,} rows as {why.wanted}: "
                f"{why.why}. Give it a wider index type"
            ) from None

    def _batch(self, records: ParsedRecords) -> pa.RecordBatch:
        arrays = [
            _build(field, column, [row.get(field.name) for row in records.rows])
            for field, column in zip(self.schema, self._columns, strict=True)
        ]
        return record_batch(arrays, len(records.rows), self.schema)

    def _misfits(self, records: ParsedRecords) -> dict[int, Exception]:
        misfits: dict[int, Exception] = {}
        for field, column in zip(self.schema, self._columns, strict=True):
            values = [row.get(field.name) for row in records.rows]

            def build(start: int, stop: int) -> pa.Array:
                return _build(field, column, values[start:stop])  # noqa: B023 (used at once)

            for row, why in bad_rows(len(values), build, (Misfit,)):
                misfits.setdefault(row, SchemaMismatchError(why.fact, remedy=_REMEDY))
        return misfits


def _decode_rows(
    decoder: msgspec.json.Decoder[object], text: bytes, ends: NDArray[np.int64] | None
) -> list[object]:
    lines = count_object_lines(text, ends)
    if lines is None:
        return list(map(decoder.decode, filter(bytes.strip, text.split(b"\n"))))
    # Much faster than line by line, but it takes several values on a line and values across lines.
    rows = decoder.decode_lines(text)
    if len(rows) != lines:
        raise ValueError("a line holds more than one value")
    return rows


def _build(field: pa.Field, column: JsonColumn, values: Sequence[object]) -> pa.Array:
    if not field.nullable and any(value is None for value in values):
        raise Misfit(column.path, None, f"{column.type} not null")
    return column.build(values)
