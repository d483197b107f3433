"""A source some of whose fields are gathered from columns."""

# ruff: noqa: SLF001 (it asks its origin through the methods of the contract)

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.datasets._concatenated import Concatenated
from penstock.datasets._once import Once
from penstock.datasets._projection import typed_fields
from penstock.datasets._source import Source
from penstock.datasets._views import Chosen, origins_of
from penstock.datasets.columns._place import Freshness
from penstock.datasets.columns._plan import ColumnSpec, GatherPlan
from penstock.datasets.columns._warnings import is_news
from penstock.datasets.fields._grammar import arrow_type
from penstock.datasets.fields._paths import steps_of, type_at
from penstock.datasets.fields._tensor_types import type_text
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penstock.datasets._source import Fields, Location
    from penstock.datasets.columns._folder import Column

_log = logging.getLogger("penstock.datasets")
_MOST_PLANS = 64


class Materialized(Source):
    """A source and columns of it; see `Source.materialize`.

    Records, numbers, files and fingerprint are those of the source. Fields with columns are
    gathered from them, other fields are read from the source. So is a field whose column is gone
    or stale when a process first needs it.
    """

    def __init__(
        self,
        origin: Source,
        specs: Iterable[ColumnSpec],
        found: Mapping[ColumnSpec, Column] | None = None,
    ) -> None:
        """Read with the columns of `specs`; `found` are those that this process has opened."""
        self.origin = origin
        self.specs = tuple(specs)
        self._prepare(found)

    def _prepare(self, found: Mapping[ColumnSpec, Column] | None = None) -> None:
        self._known = found or {}
        self._opened = Once(self._open)
        self._plans: dict[object, tuple[object, GatherPlan]] = {}

    def _find(self) -> dict[tuple[str, pa.DataType], Column]:
        freshness = Freshness(self.origin)
        found: dict[tuple[str, pa.DataType], Column] = {}
        for spec in self.specs:
            column = spec.find(freshness, self._known.get(spec))
            if column is not None:
                found[spec.path, spec.type] = column
        return found

    def _open(self) -> dict[tuple[str, pa.DataType], Column]:
        found = self._find()
        gone = [spec for spec in self.specs if (spec.path, spec.type) not in found]
        news = [spec for spec in gone if is_news(spec.folder)]
        if news:
            _log.warning(
                "%d columns in %s are gone, damaged or of other records, and their fields are "
                "decoded anew for each batch: %s. To make them again: source.materialize(…)",
                len(news),
                news[0].root,
                ", ".join(spec.path for spec in news),
            )
        return found

    @property
    def _bare(self) -> Source:
        return self.origin

    @property
    def _has_columns(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self.origin)

    @property
    def fingerprint(self) -> str:
        """That of the source."""
        return self.origin.fingerprint

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        return self.origin._past(least, most)

    @property
    def schema(self) -> pa.Schema:
        """That of the source."""
        return self.origin.schema

    @property
    def schema_is_complete(self) -> bool:
        """Whether the schema is known to hold for every record."""
        return self.origin.schema_is_complete

    @property
    def files(self) -> list[str]:
        """Those of the source."""
        return self.origin.files

    @property
    def blocks(self) -> NDArray[np.int64]:
        """Those of the source."""
        return self.origin.blocks

    def location(self, which: Any) -> Location:
        """Return where a record lies, or each of an array of them."""
        return self.origin.location(which)

    def raw(self, which: int) -> bytes:
        """Return a record's own bytes, where it has some."""
        return self.origin.raw(which)

    def __getitem__(self, which: Any) -> Any:
        """Return the record of a number, or a list for a slice, a list or an array of them."""
        return self.origin[which]

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        return self.origin._records(ids)

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        return self.origin._inferred(ids)

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        # Here a name is only a name, which may also be a path to somewhere else.
        if all(len(steps_of(name)) == 1 for name in schema.names):
            return self._planned(id(schema), schema, schema).read(ids)
        return self.origin._columns(ids, schema)

    def _projected(self, ids: NDArray[np.int64], fields: Fields) -> pa.RecordBatch:
        if isinstance(fields, pa.Schema):
            # Nothing else about it is looked at when the same one comes again.
            return self._planned(id(fields), fields, fields).read(ids)
        if isinstance(fields, Mapping):
            return self._planned(tuple(fields.items()), None, fields).read(ids)
        schema = self._named(fields)
        if schema is not None:
            try:
                return self._planned(tuple(schema.names), None, schema).read(ids)
            except SchemaMismatchError:
                pass  # These records hold something wider than the schema knows.
        return self.origin._projected(ids, fields)

    def _planned(self, key: object, anchor: object, fields: Fields) -> GatherPlan:
        """Return the plan for some fields; `anchor` lives as long as a key that is its address."""
        try:
            known = self._plans.get(key)
        except TypeError:  # Not a type: reading it raises.
            known, key = None, object()
        if known is None:
            schema = typed_fields(self.origin, fields, lambda: self.origin.schema)
            known = anchor, GatherPlan(self.origin, schema, self.specs, self._opened.get())
            if len(self._plans) >= _MOST_PLANS:
                self._plans = {}
            self._plans[key] = known
        return known[1]

    def _named(self, fields: Fields) -> pa.Schema | None:
        """Return names with the types of the schema, if there are columns of all of them."""
        if isinstance(fields, str) or not all(isinstance(name, str) for name in fields):
            return None
        known = self.origin.schema
        types = [type_at(known, name) for name in fields]
        found = self._opened.get()
        if len(set(fields)) < len(types) or not all(
            item in found and not pa.types.is_null(item[1])
            for item in zip(fields, types, strict=True)
        ):
            return None
        return pa.schema([*zip(fields, types, strict=True)])

    def __getstate__(self) -> dict[str, Any]:
        specs: dict[str, list[tuple[str, str | pa.DataType, bool]]] = {}
        for root, path, type_, nulled in self.specs:
            text = type_text(type_)
            small = text if _is_spelt(text, type_) else type_
            specs.setdefault(root, []).append((path, small, nulled))
        return {"origin": self.origin, "specs": specs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.origin = state["origin"]
        self.specs = tuple(
            ColumnSpec(root, path, arrow_type(type_), nulled)
            for root, some in state["specs"].items()
            for path, type_, nulled in some
        )
        self._prepare()


def _is_spelt(text: str, type_: pa.DataType) -> bool:
    """Whether a text stands for exactly this type; most types pickle to ten times its size."""
    try:
        return str(arrow_type(text)) == str(type_)
    except ValueError:
        return False


def has_columns(source: Source, schema: pa.Schema) -> bool:
    """Whether all records of a source come with columns of all these fields.

    >>> from penstock.datasets._memory import ListSource
    >>> source = ListSource([{"a": 1}]).materialize({"a": "int8"})
    >>> has_columns(source.take([0]), pa.schema({"a": pa.int8()}))
    True
    """
    wanted = {(field.name, field.type) for field in schema}
    return all(
        isinstance(origin, Materialized)
        and wanted <= {(spec.path, spec.type) for spec in origin.specs}
        for origin in origins_of(source)
    )


def without_columns(source: Source, schema: pa.Schema) -> pa.Schema:
    """Return the fields that have no column for some records of a source."""
    found: set[tuple[str, pa.DataType]] | None = None
    for origin in origins_of(source):
        specs = origin.specs if isinstance(origin, Materialized) else ()
        own = {(spec.path, spec.type) for spec in specs}
        found = own if found is None else found & own
    return pa.schema([field for field in schema if (field.name, field.type) not in (found or ())])


def gone_columns(source: Source, schema: pa.Schema) -> list[str]:
    """Return the fields whose columns are gone, damaged or of other records.

    That is as it was when this process first needed them, or else as it is now.
    """
    wanted = {(field.name, field.type) for field in schema}
    gone = []
    for origin in origins_of(source):
        if isinstance(origin, Materialized):
            known = origin._opened.known()
            found = origin._find() if known is None else known
            missing = wanted.difference(found)
            gone += [spec.path for spec in origin.specs if (spec.path, spec.type) in missing]
    return gone


def knows_bad(source: Source, schema: pa.Schema) -> bool:
    """Whether columns know of bad records at all."""
    return any(
        isinstance(origin, Materialized) and origin._planned(id(schema), schema, schema).knows_bad
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
        return source._planned(id(schema), schema, schema).known_bad(ids)
    if isinstance(source, Chosen):
        return known_bad(source.source, source._chosen(ids), schema)
    if isinstance(source, Concatenated) and len(ids):
        shares, back = source._shares(ids)
        parts = [known_bad(source.sources[number], own, schema) for number, own in shares]
        found: NDArray[np.bool_] = np.concatenate(parts)[back]
        return found
    return np.zeros(len(ids), np.bool_)
