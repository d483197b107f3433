"""The columns of one source: which are there, which are missing, and how they come about."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.datasets._missing_fields import missing_fields
from penstock.datasets.columns._bad import OnError, decoded
from penstock.datasets.columns._build import (
    Building,
    Wanted,
    build,
    only_column_builder,
    remove_finished,
)
from penstock.datasets.columns._estimate import ColumnsEstimate, estimated
from penstock.datasets.columns._folder import column_name
from penstock.datasets.columns._place import OTHER_FOLDER, ColumnPlace, Freshness, column_place
from penstock.datasets.columns._plan import ColumnSpec
from penstock.datasets.columns._remote import fetch_columns, find_published, publish_columns
from penstock.errors import CorruptIndexError
from penstock.storage import is_remote

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from penstock.datasets._source import Source
    from penstock.datasets.columns._folder import Column
    from penstock.datasets.columns._remote import Published

_log = logging.getLogger("penstock.datasets")


class SourceColumns:
    """The columns of one source that is no view."""

    def __init__(
        self,
        origin: Source,
        path: str | os.PathLike[str] | None = None,
        on_error: OnError = "mask",
    ) -> None:
        self._origin = origin
        self._on_error = on_error
        self.place: ColumnPlace = column_place(origin, path)
        self._publishes = path is not None and is_remote(path)
        self._freshness = Freshness(origin)
        self._kinds = (False, True) if on_error == "null" else (False,)

    def ensured(self, schema: pa.Schema, how: Building) -> dict[ColumnSpec, Column]:
        """Return columns of all fields; build those that are missing."""
        found = self._all_found(schema)
        if len(found) == len(schema):
            remove_finished(self.place.root, lambda units: not self.missing(units))
        else:
            with only_column_builder(self.place.root):
                # The builder before may have built them, and files may have changed.
                self._freshness = Freshness(self._origin)
                fields = self.missing(schema)
                if published := self._published(fields, 1):
                    fetch_columns(published, self.place)
                    fields = self.missing(pa.schema(fields))
                if fields:
                    if how.warns_of_unknown:
                        self._warn_of_unknown(fields)
                    wanted = [Wanted(field, self._begun(field)) for field in fields]
                    build(self._origin, wanted, self.place.root, how, self._freshness)
                found = self._all_found(schema)
                if len(found) < len(schema):
                    raise self._unusable(schema)
        if self._publishes:
            folders = [(spec.folder, column.meta) for spec, column in found.items()]
            publish_columns(folders, self.place, self._freshness)
        return found

    def existing(self, schema: pa.Schema) -> dict[ColumnSpec, Column] | None:
        """Return columns of all fields; None where one of them is missing."""
        if self.place.beside is not None:
            self._fetch(schema)
        found = self._all_found(schema)
        return found if len(found) == len(schema) else None

    def _fetch(self, schema: pa.Schema) -> None:
        """Fetch what is published of those that are missing."""
        length = len(self._origin)
        if self._published(self.missing(schema), length):
            with only_column_builder(self.place.root):
                # The builder before may have fetched them.
                fetch_columns(self._published(self.missing(schema), length), self.place)

    def missing(self, schema: pa.Schema) -> list[pa.Field]:
        """Return the fields without a column of all records."""
        return [field for field in schema if self._found(field) is None]

    def cost(self, schema: pa.Schema) -> ColumnsEstimate:
        """Return what it takes to build those that are missing."""
        fields = self.missing(schema)
        starts = {field.name: Wanted(field, self._begun(field)).start for field in fields}
        costs = [
            estimated(
                self._origin, pa.schema([f for f in fields if starts[f.name] == start]), start
            )
            for start in set(starts.values())
        ]
        return ColumnsEstimate(
            sum(cost.seconds for cost in costs),
            sum(cost.bytes for cost in costs),
            max((cost.records for cost in costs), default=0),
            str(self.place.root),
        )

    def _all_found(self, schema: pa.Schema) -> dict[ColumnSpec, Column]:
        """Return the columns, up to the first that is missing."""
        all_found = {}
        for field in schema:
            found = self._found(field)
            if found is None:
                break
            all_found[found[0]] = found[1]
        return all_found

    def _found(self, field: pa.Field) -> tuple[ColumnSpec, Column] | None:
        """Return the column of a field that serves under the policy, if it has all records."""
        length = len(self._origin)
        for spec, column in self._candidates(field):
            if column.meta.length == length:
                return spec, column
        return None

    def _begun(self, field: pa.Field) -> Column | None:
        """Return the column of the first records, if data was only appended to them."""
        found = [column for _, column in self._candidates(field)]
        return max(found, key=lambda column: column.meta.length, default=None)

    def _candidates(self, field: pa.Field) -> list[tuple[ColumnSpec, Column]]:
        found = []
        for nulled in self._kinds:
            for root in self.place.roots:
                spec = ColumnSpec(str(root), field.name, field.type, nulled)
                column = spec.find(self._freshness)
                if column is None or (len(column.bad) and self._on_error == "null"):
                    continue
                if len(column.bad) and self._on_error == "raise":
                    self._refuse(field, column)
                found.append((spec, column))
        return found

    def _refuse(self, field: pa.Field, column: Column) -> None:
        """Raise what decoding a bad record raises."""
        schema = pa.schema([pa.field(field.name, field.type)])
        decoded(self._origin, column.bad[:1], schema, "raise", 0)

    def _published(self, fields: Sequence[pa.Field], least: int) -> Published:
        """Return what is published of some fields: so many records, and more than there are."""
        if self.place.beside is None:
            return {}
        wanted = []
        for field in fields:
            begun = Wanted(field, self._begun(field)).start
            for nulled in self._kinds:
                name = column_name(field.name, field.type, nulled=nulled)
                wanted.append((name, max(least, begun + 1)))
        return find_published(wanted, self.place, self._freshness)

    def _unusable(self, schema: pa.Schema) -> CorruptIndexError:
        return CorruptIndexError(
            f"columns were written to {self.place.root} and cannot be read from there: "
            f"{', '.join(field.name for field in self.missing(schema))}. Give another folder: "
            f"{OTHER_FOLDER}.",
            path=str(self.place.root),
        )

    def _warn_of_unknown(self, fields: Sequence[pa.Field]) -> None:
        for missing in missing_fields(self._origin, [field.name for field in fields]):
            _log.warning("%s Where it is missing its column is null", missing.text)
