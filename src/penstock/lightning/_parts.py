"""Files of predictions: the parts of a rank, published one by one, and all of them in order."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.datasets import ParquetRows
from penstock.decode import empty_batch, fit_batch, unify
from penstock.errors import ObjectNotFoundError
from penstock.storage import join, open_for_writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.lightning._predictions import Columns, PredictionTypes
    from penstock.storage import Store

_PART = re.compile(r"rank-\d{5,}-(\d{5,})\.parquet")
_MERGED = "predictions.parquet"
_GROUP_BYTES = 16 << 20


def files_in(store: Store, folder: str) -> list[str]:
    """Return the names of the files that writers left in a folder."""
    with suppress(ObjectNotFoundError):
        bases = [entry.name.rpartition("/")[2] for entry in store.list(folder)]
        return sorted(base for base in bases if base == _MERGED or _PART.fullmatch(base))
    return []


def next_number(names: Iterable[str]) -> int:
    """Return the first number that no part of any rank has.

    >>> next_number(["rank-00000-00004.parquet", "rank-00001-00002.parquet", "predictions.parquet"])
    5
    """
    return max((int(found[1]) + 1 for name in names if (found := _PART.fullmatch(name))), default=0)


class PredictionParts:
    """The parts of one rank: rows are gathered, written by row groups, and published.

    A part has one schema. Rows that need a wider one begin another part.
    """

    def __init__(
        self, store: Store, folder: str, rank: int, number: int, types: PredictionTypes
    ) -> None:
        self._store, self._folder, self._rank, self._number = store, folder, rank, number
        self._types = types
        self._inputs = pa.schema([])
        """Of all records so far."""
        self._rows: list[tuple[pa.RecordBatch, Columns, Sequence[Any], Sequence[Any]]] = []
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None

    def add(
        self,
        inputs: pa.RecordBatch,
        predictions: Columns,
        sources: Sequence[str | None],
        numbers: Sequence[int | None],
    ) -> None:
        """Add rows; the first ones raise where no part can be published."""
        if not self._rows and self._writer is None:
            open_for_writing(self._store, self._folder, self._name()).discard()
        self._rows.append((inputs, predictions, sources, numbers))
        self._bytes += inputs.nbytes + sum(array.nbytes for array in predictions.values())
        if self._bytes >= _GROUP_BYTES:
            self._write_group()

    def publish(self) -> None:
        """Make all rows that were added visible."""
        self._write_group()
        self._close()

    def discard(self) -> None:
        """Leave nothing behind of rows that are not published."""
        self._rows.clear()
        if self._writer is not None:
            with suppress(OSError):  # On a full disk there is no end to be written.
                self._writer.close()
            self._file.discard()

    def _write_group(self) -> None:
        if not self._rows:
            return
        table = self._table()
        self._rows, self._bytes = [], 0
        if self._writer is not None and not table.schema.equals(self._writer.schema):
            self._close()
        if self._writer is None:
            self._file = open_for_writing(self._store, self._folder, self._name())
            self._writer = pq.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def _name(self) -> str:
        return join(self._folder, f"rank-{self._rank:05d}-{self._number:05d}.parquet")

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._file.close()
            self._writer = None
            self._number += 1

    def _table(self) -> pa.Table:
        batches, predictions, sources, numbers = zip(*self._rows, strict=True)
        whole = unify([empty_batch(self._inputs, 0), *batches])
        self._inputs = whole.schema
        stored = pa.schema([field for field in map(_stored, whole.schema) if field is not None])
        inputs = pa.nulls(sum(batch.num_rows for batch in batches))
        if len(stored):
            fitted = [fit_batch(one, stored, np.arange(one.num_rows)) for one in whole.to_batches()]
            inputs = pa.Table.from_batches(fitted, stored).to_struct_array()
        structs = [
            self._types.struct(columns, batch.num_rows)
            for columns, batch in zip(predictions, batches, strict=True)
        ]
        return pa.table(
            {
                "inputs": inputs,
                "predictions": pa.chunked_array(structs),
                "source": pa.chunked_array(sources, pa.string()),
                "row": pa.chunked_array(numbers, pa.int64()),
            }
        )


def _stored(field: pa.Field) -> pa.Field | None:
    """Return a field without objects that have no field, which Parquet does not hold."""
    type_ = field.type
    if pa.types.is_struct(type_):
        inner = [part for part in map(_stored, type_) if part is not None]
        return field.with_type(pa.struct(inner)) if inner else None
    if pa.types.is_list(type_):
        item = _stored(type_.value_field)
        return None if item is None else field.with_type(pa.list_(item))
    return field


def merge_parts(store: Store, folder: str, names: Sequence[str]) -> str:
    """Write the rows of parts, in the order of source and row, into one file; return its name.

    In memory are source and row of all rows, and what `ParquetRows` keeps.
    """
    rows = ParquetRows([store.path(join(folder, name)) for name in names])
    identity = pa.table(rows.read(np.arange(len(rows)), ["source", "row"]))
    identity = pa.table(
        {"source": identity["source"].fill_null(""), "row": identity["row"].fill_null(-1)}
    )
    keys = [(name, "ascending") for name in identity.column_names]
    order = pc.sort_indices(identity, sort_keys=keys).to_numpy()
    size = int(np.diff(rows.blocks).max())
    with (
        open_for_writing(store, folder, join(folder, _MERGED)) as file,
        pq.ParquetWriter(file, rows.schema) as writer,
    ):
        for start in range(0, len(order), size):
            ids = order[start : start + size].astype(np.int64)
            writer.write_batch(rows.read(ids, rows.schema.names))
    return _MERGED
