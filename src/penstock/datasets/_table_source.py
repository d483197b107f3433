"""An Arrow table, or anything that gives one, as a source."""

from __future__ import annotations

import hashlib
import io
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.datasets._source import Source
from penstock.datasets.fields._paths import doubled
from penstock.decode import as_records, empty_batch, fit_batch, plain_form, to_plain_form
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

_HASHED_ROWS = 65_536
_MOST_PAST = 1000
"""Lengths that a table is tried to have had before."""
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")


class TableSource(Source):
    """The rows of a table in memory: Arrow, or whatever hands over an Arrow stream.

    That is a pyarrow table, batch or reader, a polars or pandas frame. Its data are shared, not
    copied, where the library allows it, and they travel along when the source is pickled. A
    reader is read to its end at once. The index of a pandas frame is a column if it has a name.

    >>> source = TableSource(pa.table({"a": [1, 2, 3]}))
    >>> source[-1], source.read([2, 0], {"a": "float32"}).to_pydict()
    ({'a': 3}, {'a': [3.0, 1.0]})
    """

    schema_is_complete = True
    may_hold_bad_texts = True

    def __init__(self, table: Any) -> None:
        self._table = plain_table(table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of names, types and values; the same however the table is cut into chunks."""
        return self._print(len(self))

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        yield from super()._past(least, most)
        # It may have been a shorter table of the same rows. Each length is hashed by itself: with
        # too many possible lengths only the present one is known.
        least, most = max(least, 0), min(most, len(self) - 1)
        if most - least < _MOST_PAST:
            for length in range(least, most + 1):
                yield length, self._print(length)

    def _print(self, length: int) -> str:
        """Return the fingerprint of the first rows."""
        digest = hashlib.blake2b(digest_size=16)
        with pa.ipc.new_stream(pa.PythonFile(ArrowSink(digest.update), "w"), self.schema) as stream:
            for start in range(0, length, _HASHED_ROWS):
                rows = np.arange(start, min(start + _HASHED_ROWS, length), dtype=np.int64)
                # Taken, not sliced: a slice keeps bits of its neighbours.
                stream.write_batch(_one_batch(self._table.take(pa.array(rows))))
        return digest.hexdigest()

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    @property
    def blocks(self) -> NDArray[np.int64]:
        sizes = [batch.num_rows for batch in self._table.to_batches()]
        return np.concatenate([[0], np.cumsum([size for size in sizes if size])]).astype(np.int64)

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        return as_records(self._inferred(ids), ids)

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        there = set(self.schema.names)
        return fit_batch(self._batch(ids, [n for n in schema.names if n in there]), schema, ids)

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        return self._batch(ids, self.schema.names)

    def _batch(self, ids: NDArray[np.int64], names: list[str]) -> pa.RecordBatch:
        if not names:
            return empty_batch(pa.schema([]), len(ids))
        table = self._table.select(names)
        if len(ids) and (np.diff(ids) == 1).all():
            table = table.slice(int(ids[0]), len(ids))
        else:
            table = table.take(pa.array(ids))
        batch = _one_batch(table)
        arrays = [_without_unused(column) for column in batch.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def plain_table(what: Any) -> pa.Table:
    """Return the table that something is or hands over, in types that rows can be taken out of."""
    return _without_rare_forms(_as_table(what)).unify_dictionaries()


def _as_table(what: Any) -> pa.Table:
    if isinstance(what, pa.RecordBatch):
        what = pa.Table.from_batches([what])  # `pa.table` cuts off names at a NUL.
    if hasattr(what, "__arrow_c_stream__") or hasattr(what, "__arrow_c_array__"):
        try:
            table = what if isinstance(what, pa.Table) else pa.table(what)
        except (pa.ArrowException, TypeError, ValueError) as why:
            raise OptionError(f"{type(what).__name__} gives no Arrow table: {why}") from None
    elif hasattr(what, "to_numpy") and hasattr(what, "columns"):
        table = pa.Table.from_pandas(what)  # pandas before 2.2 gives no stream.
    else:
        raise OptionError(
            f"expected an Arrow table or a data frame, not {type(what).__name__}. "
            f"Give anything with __arrow_c_stream__"
        )
    names = table.schema.names
    if twice := doubled(names):
        raise OptionError(
            f"the table has {', '.join(map(repr, twice))} more than once: a record has one value "
            f"for a name. Rename the columns"
        )
    if b"pandas" in (table.schema.metadata or {}):
        table = table.drop_columns([name for name in names if _UNNAMED_INDEX.fullmatch(name)])
    return table.replace_schema_metadata(None)


def _without_rare_forms(table: pa.Table) -> pa.Table:
    """Return a table of plain forms: Arrow cannot take rows out of string views, as polars gives.

    The fields lose their metadata, too: what is left of a column is its name, type and values.
    """
    schema = pa.schema(
        [pa.field(field.name, plain_form(field.type), field.nullable) for field in table.schema]
    )
    columns = [
        pa.chunked_array([to_plain_form(chunk) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def _without_unused(column: pa.Array) -> pa.Array:
    """Return a column whose dictionary is no longer than it: to check and read it takes time."""
    is_dictionary = pa.types.is_dictionary(column.type)
    if not is_dictionary or len(column.dictionary) <= len(column) or column.type.ordered:
        return column
    return column.dictionary_decode().dictionary_encode().cast(column.type)


class ArrowSink(io.RawIOBase):
    """A file for Arrow's writers, whose bytes a function takes."""

    def __init__(self, take: Callable[[memoryview], object]) -> None:
        super().__init__()
        self._take = take

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with memoryview(data) as view:
            self._take(view)
            return view.nbytes
