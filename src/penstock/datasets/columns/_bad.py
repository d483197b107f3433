"""Values that do not fit the type asked for: an error, null, or set aside."""

# ruff: noqa: SLF001 (a source is asked through the methods of the contract)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from penstock._words import counted
from penstock.datasets._join_batches import joined
from penstock.datasets._record_place import record_place
from penstock.decode import OF_A_RECORD, bad_rows
from penstock.errors import BadRecordsError, MalformedLineError, SchemaMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets._source import Source

    Ids: TypeAlias = NDArray[np.int64]

OnError: TypeAlias = Literal["raise", "null", "mask"]
"""What a value that does not fit does: raise, become null, or raise only when it is read."""
_FEW, _MANY = 100, 10_000
_REMEDY = "With on_error='null' such values become null, and are counted."


class Decoded(NamedTuple):
    """The columns of some records, null in place of bad values."""

    columns: pa.RecordBatch
    bad: dict[str, list[int]]
    """Field → the numbers of the records whose value is bad."""


def most_bad(length: int) -> int:
    """Return how many of so many records may be set aside: 1 %, but 100 at least.

    >>> most_bad(1000), most_bad(100_000), most_bad(10**9)
    (100, 1000, 10000)
    """
    return min(_MANY, max(_FEW, length // 100))


def decoded(source: Source, ids: Ids, schema: pa.Schema, on_error: OnError, most: int) -> Decoded:
    """Return the fields of some records; `most` records may be set aside by "mask".

    A bad value makes no other value null, except on a line that is not JSON.
    """
    try:
        return Decoded(source._projected(ids, schema), {})
    except OF_A_RECORD as why:
        if on_error == "raise":
            raise located(source, why, ids, schema) from None
    rows: list[int] = []
    for row in _bad_rows(source, ids, schema):
        rows.append(row)
        if on_error == "mask" and len(rows) > most:
            raise too_many(source, ids[rows], schema, most)
    bad: dict[str, list[int]] = {}
    arrays = [_readable(source, ids[rows], field, bad) for field in schema]
    return Decoded(_put_in(source, ids, rows, pa.record_batch(arrays, schema=schema)), bad)


def too_many(source: Source, bad: Ids, schema: pa.Schema, most: int) -> BadRecordsError:
    """Return the error that more records are bad than may be set aside, with the first of them."""
    first = ""
    try:
        source._projected(bad[:1], schema)
    except OF_A_RECORD as why:
        first = f" The first: {located(source, why, bad[:1], schema).fact}"
    return BadRecordsError(
        f"{counted(len(bad), 'record')} or more cannot be read as the types asked for, and at most "
        f"{most:,} are set aside.{first}",
        remedy="Give the fields types that hold their values, such as text or json. Where the "
        "records are bad indeed: on_error='null' of materialize has null in their place, skip= of "
        "a loader leaves them out, and its max_bad= with on_error='mask' allows for more.",
    )


def _bad_rows(source: Source, ids: Ids, schema: pa.Schema) -> Iterator[int]:
    """Yield the rows of bad records; the caller knows that there are some."""

    def read(start: int, stop: int) -> None:
        source._projected(ids[start:stop], schema)

    return (row for row, _ in bad_rows(len(ids), read, OF_A_RECORD, has_bad=True))


def _readable(source: Source, ids: Ids, field: pa.Field, bad: dict[str, list[int]]) -> pa.Array:
    """Return a field of bad records, null where it cannot be read; note those in `bad`."""
    schema = pa.schema([field])
    try:
        return source._projected(ids, schema).column(0)
    except OF_A_RECORD:
        rows = [*_bad_rows(source, ids, schema)]
    bad[field.name] = ids[rows].tolist()
    nulls = pa.record_batch([pa.nulls(len(rows), field.type)], schema=schema)
    return _put_in(source, ids, rows, nulls).column(0)


def _put_in(source: Source, ids: Ids, rows: Sequence[int], those: pa.RecordBatch) -> pa.RecordBatch:
    """Return the fields of some records, with `those` in some rows."""
    others = np.setdiff1d(np.arange(len(ids)), rows)
    kept = source._projected(ids[others], those.schema)
    return joined([kept, those], np.argsort([*others, *rows]))


def located(
    source: Source, why: MalformedLineError | SchemaMismatchError, ids: Ids, schema: pa.Schema
) -> MalformedLineError | SchemaMismatchError:
    """Return the error about a bad record with the line that it stands on, and what can be done."""
    record = getattr(why, "record", None)
    if record is None:
        record = int(ids[next(_bad_rows(source, ids, schema))])
    details: dict[str, object] = {"record": record}
    text = why.fact.rstrip(". ")
    place = record_place(source, record, with_line="line_number" not in vars(why))
    if place is not None:
        details |= {"path": place.path, "offset": place.offset}
        if place.line is not None:
            details["line_number"] = place.line
            text += f". It is line {place.line:,} of {place.path}"
        elif place.path not in text:
            text += f". It lies in {place}"
    vars(why).update(details, fact=f"{text}.")
    why.advise(f"{why.remedy} {_REMEDY}".strip())
    return why
