"""A source some of whose fields are gathered from columns."""

# ruff: noqa: SLF001 (it asks its source through the methods of the contract)

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock._words import counted
from penstock.datasets._concatenated import Concatenated
from penstock.datasets._inexact import refuse_rounded
from penstock.datasets._once import Once
from penstock.datasets._projection import has_types, typed_fields
from penstock.datasets.columns._bad import decoded
from penstock.datasets.columns._folder import Column, column_name, find_column, is_news
from penstock.datasets.columns._place import Freshness, are_unchanged
from penstock.datasets.fields._paths import steps_of, type_at
from penstock.datasets.views._views import Chosen, OverSource, origins_of
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets._source import Fields, Source

_log = logging.getLogger("penstock.datasets")
_MOST_PLANS = 64


class ColumnSpec(NamedTuple):
    """Which column: enough to find it again in another process."""

    root: str
    path: str
    type: pa.DataType
    nulled: bool = False
    """Whether it has null in place of values that do not fit."""

    @property
    def folder(self) -> Path:
        return Path(self.root) / column_name(self.path, self.type, nulled=self.nulled)

    def find(self, freshness: Freshness) -> Column | None:
        """Return the column, unless it is gone, damaged, or of other records."""
        column = find_column(Path(self.root), self.path, self.type, nulled=self.nulled)
        return column if column is not None and freshness.holds(column.meta) else None


class Materialized(OverSource):
    """A source and columns of it; see `Source.materialize`.

    Records, numbers, files and fingerprint are those of the source. Fields with columns are
    gathered from them, other fields are read from the source. So is a field whose column is gone
    or stale when a process first needs it.
    """

    def __init__(
        self,
        source: Source,
        specs: Iterable[ColumnSpec],
        found: Mapping[ColumnSpec, Column] | None = None,
    ) -> None:
        """Read with the columns of `specs`; `found` are those that this process has opened.

        Of a field the last spec counts.
        """
        super().__init__(source)
        self.by_field = {(spec.path, spec.type): spec for spec in specs}
        self.specs = tuple(self.by_field.values())
        self._known = found or {}
        self._opened: Once[dict[tuple[str, pa.DataType], Column]] = Once()
        self._plans: dict[object, tuple[Fields, GatherPlan]] = {}

    @property
    def _bare(self) -> Source:
        return self.source

    _has_columns = True

    def _find(self) -> dict[tuple[str, pa.DataType], Column]:
        freshness = Freshness(self.source)
        now, found, length = freshness.files, {}, len(self.source)
        for field, spec in self.by_field.items():
            column = self._known.get(spec)
            # What was found once stays of these records, unless their files change.
            if not (column and column.is_whole() and are_unchanged(column.meta.files, now)):
                column = spec.find(freshness)
            if column is not None and column.meta.length == length:
                found[field] = column
        return found

    def _open(self) -> dict[tuple[str, pa.DataType], Column]:
        found = self._find()
        specs = self.by_field.items()
        gone = [spec for field, spec in specs if field not in found and is_news(spec.folder)]
        if gone:
            _log.warning(
                "%s in %s gone, damaged or of other records: fields are decoded anew for each "
                "batch: %s. To make columns again: source.materialize(…)",
                counted(len(gone), "column"),
                gone[0].root,
                ", ".join(spec.path for spec in gone),
            )
        return found

    def __getitem__(self, which: Any) -> Any:
        return self.source[which]

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        # Here a name is only a name, which may also be a path to somewhere else.
        if all(len(steps_of(name)) == 1 for name in schema.names):
            return self.plan(schema).read(ids)
        return self.source._columns(ids, schema)

    def _projected(self, ids: NDArray[np.int64], fields: Fields) -> pa.RecordBatch:
        if has_types(fields):
            return self.plan(fields).read(ids)
        schema = self._named(fields)
        if schema is not None:
            # Else these records hold something wider than the schema knows.
            with suppress(SchemaMismatchError):
                batch = self.plan(schema, tuple(schema.names)).read(ids)
                if not self.schema_is_complete:
                    refuse_rounded(batch)
                return batch
        return self.source._projected(ids, fields)

    def plan(self, fields: Fields, key: object = None) -> GatherPlan:
        """Return how fields with types are read; they are looked at when they first come."""
        if key is None:
            # The address of a schema is its own while it is kept.
            key = tuple(fields.items()) if isinstance(fields, Mapping) else id(fields)
        try:
            known = self._plans.get(key)
        except TypeError:  # Not a type: reading it raises.
            known, key = None, object()
        if known is None:
            schema = typed_fields(self.source, fields, lambda: self.source.schema)
            opened = self._opened.get(self._open)
            known = fields, GatherPlan(self.source, schema, self.by_field, opened)
            self._plans = self._plans if len(self._plans) < _MOST_PLANS else {}
            self._plans[key] = known
        return known[1]

    def _named(self, fields: Fields) -> pa.Schema | None:
        """Return names with the types of the schema, if there are columns of all of them."""
        if isinstance(fields, str) or not all(isinstance(name, str) for name in fields):
            return None
        known = self.source.schema
        typed = [(name, type_at(known, name)) for name in fields]
        found = self._opened.get(self._open)
        if len(set(fields)) < len(typed) or not all(
            field in found and not pa.types.is_null(field[1]) for field in typed
        ):
            return None
        return pa.schema(typed)

    def __reduce__(self) -> tuple[object, ...]:
        return Materialized, (self.source, self.specs)


class GatherPlan:
    """How the fields of one schema are read, found out once."""

    def __init__(
        self,
        origin: Source,
        schema: pa.Schema,
        specs: Mapping[tuple[str, pa.DataType], ColumnSpec],
        found: Mapping[tuple[str, pa.DataType], Column],
    ) -> None:
        self._origin, self._schema, self._specs = origin, schema, specs
        self._columns: list[Column | None] = []
        bad = [np.empty(0, np.int64)]
        is_nullable = True
        for field in schema:
            column = found.get((field.name, field.type))
            self._columns.append(column)
            bad += [] if column is None else [column.bad]
            is_nullable = is_nullable and field.nullable
        self.bad = np.concatenate(bad)
        """Records that the columns know to be bad."""
        has_all = len(schema) > 0 and None not in self._columns
        self._is_plain = has_all and is_nullable and not len(self.bad)

    def known_bad(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.isin(ids, self.bad) if len(self.bad) else np.zeros(len(ids), np.bool_)

    def read(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        if self._is_plain:
            arrays = [column.take(ids) for column in self._columns]  # type: ignore[union-attr]
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        is_bad = self.known_bad(ids)
        if is_bad.any():
            # Decoding says what is wrong with them, in whichever field it finds it first.
            self._read(ids[is_bad], self._schema)
        taken: dict[str, pa.Array] = {}
        for field, column in zip(self._schema, self._columns, strict=True):
            if column is not None and not (len(column.bad) and is_bad.any()):
                array = column.take(ids)
                if field.nullable or not array.null_count:
                    taken[field.name] = array
        others = pa.schema([field for field in self._schema if field.name not in taken])
        if not taken:
            return self._read(ids, others)
        if len(others):
            taken |= zip(others.names, self._read(ids, others).columns, strict=True)
        ordered = [taken[name] for name in self._schema.names]
        return pa.RecordBatch.from_arrays(ordered, schema=self._schema)

    def _read(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        """Read fields from the source, as their columns would be."""
        specs = [self._specs.get((field.name, field.type)) for field in schema]
        are_nulled = [spec is not None and spec.nulled for spec in specs]
        if not any(are_nulled):
            return self._origin._projected(ids, schema)
        arrays = []
        for field, is_nulled in zip(schema, are_nulled, strict=True):
            own = pa.schema([field])
            if is_nulled:
                arrays += decoded(self._origin, ids, own, "null", 0).columns.columns
            else:
                arrays += self._origin._projected(ids, own).columns
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def without_columns(source: Source, schema: pa.Schema) -> pa.Schema:
    """Return the fields that have no column for some records of a source.

    >>> from penstock.datasets._memory import ListSource
    >>> source = ListSource([{"a": 1}]).materialize({"a": "int8"})
    >>> without_columns(source.take([0]), pa.schema({"a": pa.int8(), "b": pa.int8()})).names
    ['b']
    """
    if not source._has_columns:
        return schema
    missing: set[pa.Field] = set()
    for origin in origins_of(source):
        known = origin.by_field if isinstance(origin, Materialized) else {}
        missing.update([field for field in schema if (field.name, field.type) not in known])
    return pa.schema([field for field in schema if field in missing])


def gone_columns(source: Source, schema: pa.Schema) -> list[str]:
    """Return the fields whose columns are gone, damaged or of other records.

    That is as it was when this process first needed them, or else as it is now.
    """
    wanted = {(field.name, field.type) for field in schema}
    gone = []
    for origin in origins_of(source):
        if isinstance(origin, Materialized):
            known = origin._opened.known()
            missing = wanted.difference(origin._find() if known is None else known)
            gone += [path for path, type_ in origin.by_field if (path, type_) in missing]
    return gone


def knows_bad(source: Source, schema: pa.Schema) -> bool:
    """Whether columns know of bad records at all."""
    return any(
        isinstance(origin, Materialized) and len(origin.plan(schema).bad)
        for origin in origins_of(source)
    )


def known_bad(source: Source, ids: NDArray[np.int64], schema: pa.Schema) -> NDArray[np.bool_]:
    """Return which of some records columns know to be bad; nothing else is read.

    >>> from penstock.datasets._memory import ListSource
    >>> source = ListSource([{"a": 1}, {"a": "x"}]).materialize({"a": "int8"}, on_error="mask")
    >>> known_bad(source.take([1, 0]), np.array([0, 1]), pa.schema({"a": pa.int8()})).tolist()
    [True, False]
    """
    if isinstance(source, Materialized):
        return source.plan(schema).known_bad(ids)
    if isinstance(source, Chosen):
        return known_bad(source.source, source._chosen(ids), schema)
    if isinstance(source, Concatenated):
        shares, back = source._shares(ids)
        parts = [known_bad(source.sources[number], own, schema) for number, own in shares]
        found: NDArray[np.bool_] = np.concatenate(parts)[back]
        return found
    return np.zeros(len(ids), np.bool_)
