"""How fields are gathered from columns, and from the source where those have nothing to say."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.datasets._join_batches import joined
from penstock.datasets.columns._bad import decoded
from penstock.datasets.columns._folder import column_name, find_column
from penstock.datasets.columns._warnings import is_news

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from penstock.datasets._source import Source
    from penstock.datasets.columns._folder import Column
    from penstock.datasets.columns._place import Freshness


_log = logging.getLogger("penstock.datasets")


class ColumnSpec(NamedTuple):
    """Which column: enough to find it again in another process."""

    root: str
    path: str
    type: pa.DataType
    nulled: bool = False
    """Whether it has null in place of values that do not fit."""

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return Path(self.root) / column_name(self.path, self.type, nulled=self.nulled)

    def find(self, freshness: Freshness, opened: Column | None = None) -> Column | None:
        """Return the column, unless it is gone, damaged, or of other records.

        `opened` is the column if this process has opened it before, and is checked again.
        """
        if opened is not None and opened.is_whole():
            return opened if freshness.holds(opened.meta) else None
        try:
            column = find_column(Path(self.root), self.path, self.type, nulled=self.nulled)
        except OSError as why:
            if is_news(self.folder):
                _log.warning("a column cannot be used: %s", why)
            return None
        if column is None or len(column.bad) != column.meta.bad:
            return None
        return column if freshness.holds(column.meta) else None


class GatherPlan:
    """How the fields of one schema are read, found out once."""

    def __init__(
        self,
        origin: Source,
        schema: pa.Schema,
        specs: Iterable[ColumnSpec],
        found: Mapping[tuple[str, pa.DataType], Column],
    ) -> None:
        self._origin = origin
        self._schema = schema
        nulled = {(spec.path, spec.type) for spec in specs if spec.nulled}
        self._columns = [found.get((field.name, field.type)) for field in schema]
        self._nulled = [(field.name, field.type) in nulled for field in schema]
        there = [column for column in self._columns if column is not None]
        self._bad = np.concatenate([np.empty(0, np.int64), *(column.bad for column in there)])
        self._length = min((column.meta.length for column in there), default=0)
        self._is_short = self._length < len(self._origin)
        self._is_plain = (
            len(there) == len(schema)
            and not self._is_short
            and not len(self._bad)
            and all(field.nullable for field in schema)
            and len(schema) > 0
        )

    @property
    def knows_bad(self) -> bool:
        """Whether the columns know of bad records."""
        return len(self._bad) > 0

    def known_bad(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some records the columns know to be bad."""
        return np.isin(ids, self._bad) if len(self._bad) else np.zeros(len(ids), np.bool_)

    def read(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        """Return the fields of some records."""
        if self._is_plain:
            arrays = [column.take(ids) for column in self._columns]  # type: ignore[union-attr]
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._is_short and len(ids) and int(ids.max()) >= self._length:
            return self._read_apart(ids)
        return self._gathered(ids)

    def _read_apart(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        """Read what was appended since the columns were made from the source."""
        is_new = ids >= self._length
        if is_new.all() or not len(self._schema):
            return self._read(ids, range(len(self._schema)))
        new = self._read(ids[is_new], range(len(self._schema)))
        back = np.empty(len(ids), np.int64)
        back[~is_new] = np.arange(len(ids) - new.num_rows)
        back[is_new] = np.arange(len(ids) - new.num_rows, len(ids))
        return joined([self._gathered(ids[~is_new]), new], back)

    def _gathered(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        is_bad = self.known_bad(ids)
        if is_bad.any():
            # Decoding says what is wrong with them, in whichever field it finds it first.
            self._read(ids[is_bad], range(len(self._schema)))
        arrays: dict[int, pa.Array] = {}
        for at, (field, column) in enumerate(zip(self._schema, self._columns, strict=True)):
            if column is None or (len(column.bad) and is_bad.any()):
                continue
            array = column.take(ids)
            if field.nullable or not array.null_count:
                arrays[at] = array
        others = [at for at in range(len(self._schema)) if at not in arrays]
        if len(others) == len(self._schema):
            return self._read(ids, others)
        if others:
            arrays |= zip(others, self._read(ids, others).columns, strict=True)
        ordered = [arrays[at] for at in range(len(self._schema))]
        return pa.RecordBatch.from_arrays(ordered, schema=self._schema)

    def _read(self, ids: NDArray[np.int64], which: Iterable[int]) -> pa.RecordBatch:
        """Read some fields from the source, as their columns would be."""
        places = list(which)
        schema = self._schema
        if len(places) < len(schema):
            schema = pa.schema([schema.field(at) for at in places])
        if not any(self._nulled[at] for at in places):
            return self._decoded(ids, schema)
        arrays: dict[int, pa.Array] = {}
        for nulled in (False, True):
            some = [at for at in places if self._nulled[at] is nulled]
            part = pa.schema([self._schema.field(at) for at in some])
            if some and nulled:
                batch = decoded(self._origin, ids, part, "null", 0).columns
                arrays |= zip(some, batch.columns, strict=True)
            elif some:
                arrays |= zip(some, self._decoded(ids, part).columns, strict=True)
        return pa.RecordBatch.from_arrays([arrays[at] for at in places], schema=schema)

    def _decoded(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        return self._origin._projected(ids, schema)  # noqa: SLF001 (the contract's own)
