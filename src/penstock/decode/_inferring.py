"""Text into whole records under a schema that is inferred and widened on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from penstock.decode._columns import WHOLE_FLOATS, json_text
from penstock.decode._kinds import (
    Fields,
    Scalar,
    TooDeepError,
    first_change,
    join,
    kind_of_array,
    kind_of_records,
    settled,
    turns_into_text,
)
from penstock.decode._records import OnBad, ParsedRecords, Record, read_records
from penstock.decode._text import (
    count_object_lines,
    is_utf8,
    may_hold_foreign_numbers,
    may_hold_minus_zero,
    may_hold_wide_integer,
)
from penstock.decode._unify import batch_of_records, warn_of_mixed, widen_batch
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Arrow's own allocator keeps a third more memory where another thread frees it.
_MEMORY = pa.system_memory_pool()
_MINUS_ZERO = np.uint64(1 << 63)
_HEAD = 1 << 16
"""Bytes of a text to guess its schema from: 2 MiB would cost three times as much as reading it."""


class InferringDecoder:
    r"""Decodes every field; the schema comes from the first text and widens when later ones ask.

    Integers next to floats make a double, a field that is new or was null so far takes the type
    that arrives, objects and lists merge theirs. Fields of mixed types, integers that fit neither
    int64 nor uint64, and integers next to floats that no double equals become strings: strings stay
    as they are, other values become their JSON text, and a warning says so once a field, where it
    `warns`. With `keeps_numbers` the last of these stay numbers, of `NumbersType`. With `strict`, a
    record after the first text that asks for another schema raises `SchemaMismatchError` instead.
    `name` is the file's, for messages.

    >>> decoder = InferringDecoder()
    >>> decoder.settle(b'{"a": 1}\n', None, print).to_pylist()
    [{'a': 1}]
    >>> decoder.settle(b'{"a": 0.5, "b": {}}\n', None, print).schema.types
    [DataType(double), StructType(struct<>)]
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        name: str = "",
        warns: bool = True,
        keeps_numbers: bool = False,
    ) -> None:
        self._strict = strict
        self._name = name
        self._warns = warns
        self._keeps_numbers = keeps_numbers
        self._started = False
        self._record = Fields({})
        # Replaced as a whole, never changed: `attempt` takes it in any thread while `settle` runs.
        self._reader = ArrowReader(self._record.schema)

    @property
    def schema(self) -> pa.Schema:
        """The schema known so far, empty before the first text."""
        return self._reader.schema

    def attempt(self, text: bytes) -> pa.RecordBatch | None:
        """Return the batch of a text that the schema known now can hold, or None.

        Pure: it may run ahead of time in any thread, even before there is a schema.
        """
        known = self._reader
        reader = known if known.schema.names else _reader_for_head(text)
        return reader.read(text) if reader else None

    def settle(
        self, text: bytes, attempted: pa.RecordBatch | None, on_bad: OnBad
    ) -> pa.RecordBatch:
        """Return the batch of a text under the schema known after it.

        Called in the order of the stream, by one thread at a time. `on_bad` is called for lines
        that cannot be read.
        """
        if attempted is None:
            # The schema may have grown since the attempt, or may just have begun.
            attempted = self.attempt(text)
        if attempted is not None:
            whole = attempted.to_struct_array()
            seen = cast("Fields", kind_of_array(whole, read_as_text=True))
            record = self._widened(seen)
            # Text must come from the values themselves: a double has lost that 1 was no 1.0. So
            # what comes out does not hang on the schema that the attempt was made with.
            if not (self._refuses(seen) or turns_into_text(seen, record)):
                self._learn(record)
                self._started |= attempted.num_rows > 0
                same = attempted.schema.equals(self.schema)
                return attempted if same else widen_batch(attempted, record)
        return self._settle_with_care(text, on_bad)

    def _settle_with_care(self, text: bytes, on_bad: OnBad) -> pa.RecordBatch:
        records = read_records(text)
        if not records.plain:
            records = records.without(_misfits(records.rows))
        try:
            seen = kind_of_records(records.rows)
        except TooDeepError:
            records = records.without(_misfits(records.rows))
            seen = kind_of_records(records.rows)
        records.report(on_bad)
        if self._refuses(seen):
            raise self._mismatch(records)
        self._learn(self._widened(seen))
        self._started |= bool(records.rows)
        return batch_of_records(records.rows, self._record)

    def _refuses(self, seen: Fields) -> bool:
        return self._strict and self._started and first_change(self._record, seen) is not None

    def _widened(self, seen: Fields) -> Fields:
        record = settled(join(self._record, seen), keeps_numbers=self._keeps_numbers)
        return cast("Fields", record)

    def _learn(self, record: Fields) -> None:
        if first_change(self._record, record):
            self._reader = ArrowReader(record.schema)
        self._record = record
        if self._warns:
            remedy = "Give a schema to choose another type"
            warn_of_mixed(record, "", remedy, self._name)

    def _mismatch(self, records: ParsedRecords) -> SchemaMismatchError:
        changes = (
            (index, first_change(self._record, kind_of_records([row])))
            for row, (index, _) in zip(records.rows, records.lines, strict=True)
        )
        index, (path, known, seen) = next((at, change) for at, change in changes if change)
        before = "had no such field" if known is Scalar.NULL else f"have {known.type} there"
        why = (
            f"field {path!r} holds {seen.words}, but the records that made the schema "
            f'{before}. Drop schema="strict" to let the schema widen, or give one that '
            "holds the field"
        )
        return SchemaMismatchError(
            f"{self._name or 'the text'}, line index {index}: {why}",
            field=path,
            line_index=index,
            why=why,
        )


def _reader_for_head(text: bytes) -> ArrowReader | None:
    """Return a reader with the schema of the first lines, a good guess at that of the others."""
    head = text[:_HEAD]
    if len(head) < len(text):
        head = head[: head.rfind(b"\n") + 1]
    try:
        record = kind_of_records(read_records(head).rows)
        return ArrowReader(record.schema)
    except (TooDeepError, UnicodeEncodeError):
        return None


def _misfits(rows: list[Record]) -> dict[int, Exception]:
    """Return why a row is no row of any Arrow schema, by row number."""
    misfits: dict[int, Exception] = {}
    for number, row in enumerate(rows):
        try:
            kind_of_records([row])
            json_text(row).encode()
        except TooDeepError as why:
            misfits[number] = why
        except UnicodeEncodeError as why:
            half = f"\\u{ord(why.object[why.start]):04x}"
            misfits[number] = ValueError(
                f"it holds the lone surrogate {half}, which UTF-8 and so Arrow cannot express"
            )
    return misfits


class ArrowReader:
    """Reads texts whose records all fit a known schema; safe to share between threads.

    A field that has only been null so far may turn out to hold strings: the batch has a string
    column where the schema has a null one.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        readable = pa.schema([(field.name, _readable(field.type)) for field in schema])
        self._parse_options = pj.ParseOptions(
            explicit_schema=readable, unexpected_field_behavior="error"
        )

    def read(self, text: bytes) -> pa.RecordBatch | None:
        """Return the batch of a text, or None when any line asks for a closer look."""
        if not self.schema.names:
            return None
        lines = count_object_lines(text)
        if not lines or not is_utf8(text):
            return None
        try:
            table = pj.read_json(
                pa.BufferReader(text),
                # One block: the caller runs texts in parallel, which is better than parts of one.
                read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
                parse_options=self._parse_options,
                memory_pool=_MEMORY,
            )
        except (pa.ArrowException, OverflowError):
            return None
        if table.num_rows != lines:
            return None
        (batch,) = table.combine_chunks().to_batches()
        return None if _numbers_differ(batch, text) else batch


def _readable(type_: pa.DataType) -> pa.DataType:
    """Return the type to read, strings in place of nulls: lists of null trip pyarrow's reader."""
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_readable(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _readable(field.type)) for field in type_])
    return type_


def _numbers_differ(batch: pa.RecordBatch, text: bytes) -> bool:
    """Return whether a float may stand for a token that Python reads otherwise or not at all.

    Such a float is not a number, infinite, -0.0 or so large that it may stand for an integer that
    it does not equal: only then the text is worth a look.
    """
    odd = minus_zero = False
    for floats in _floats(batch.columns):
        odd |= not np.abs(floats).max() < WHOLE_FLOATS
        minus_zero |= bool((floats.view(np.uint64) == _MINUS_ZERO).any())
    return (odd and (may_hold_wide_integer(text) or may_hold_foreign_numbers(text))) or (
        minus_zero and may_hold_minus_zero(text)
    )


def _floats(arrays: list[pa.Array]) -> Iterator[NDArray[np.float64]]:
    """Yield the values of every column of doubles, zeros or leftovers where one is null."""
    for array in arrays:
        if not len(array):
            continue
        if pa.types.is_float64(array.type):
            stored = np.frombuffer(array.buffers()[1], np.float64)
            yield stored[array.offset : array.offset + len(array)]
        elif pa.types.is_list(array.type) or pa.types.is_struct(array.type):
            inner = array.flatten()
            yield from _floats(inner if isinstance(inner, list) else [inner])
