"""Which columns a schema reads of a source, and how each leaf finds its values in them."""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock._words import warn_once
from penstock.batch import LOOSE
from penstock.datasets import missing_fields, schema_of, type_at, without_maps
from penstock.decode import JSON, decode_line
from penstock.errors import OptionError, SchemaMismatchError
from penstock.schema._placement import Axis, ColumnPlacer, RowPlacer
from penstock.schema._query import EACH, BatchQuery

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.datasets import Source
    from penstock.schema._arrays import Placed
    from penstock.schema._nodes import Leaf
    from penstock.schema._query import Query
    from penstock.schema._tree import Address, Tree

_log = logging.getLogger("penstock.schema")

RECORDS = "penstock.record"
"""The column with whole records, pickled."""
_PATHS, _NULLS = ("auto", "columnar", "rows"), ("slots", "jmespath")
_ODD = frozenset(".[]")
"""Letters of a key that a path of a column cannot have."""


class LeafPlan(NamedTuple):
    """Where a leaf finds its values."""

    query: Query
    axes: tuple[Axis, ...]
    column: str | None
    """The column of a simple path; None where records are walked."""


class ReadPlan(NamedTuple):
    """The columns to read, and the plans of the leaves."""

    fields: dict[str, pa.DataType]
    loose: dict[str, pa.DataType]
    """The same in types that hold every value."""
    leaves: dict[Address, LeafPlan]

    @property
    def walked(self) -> list[str]:
        """The leaves that are read record by record."""
        return [at for at, one in self.leaves.items() if one.column is None]

    @property
    def needs_records(self) -> bool:
        """Whether a query is one of whole records."""
        return any(one.query.names is None for one in self.leaves.values())


def planned(
    tree: Tree, read: Sequence[Address], source: Source | None, *, path: str, nulls: str
) -> ReadPlan:
    """Return how leaves are read from a source; None where it is not known.

    A top-level field that some leaf needs as a whole is walked by all leaves that name it alone.
    """
    for name, given, known in (("path", path, _PATHS), ("null_semantics", nulls, _NULLS)):
        if given not in known:
            raise OptionError(f"{name}={given!r}: expected one of {', '.join(known)}.")
    queries = {address: tree.queries[address] for address in read}
    if nulls == "jmespath":
        queries = {address: BatchQuery(query.text) for address, query in queries.items()}
    schema = None if source is None else _schema_of(source, queries.values())
    found: dict[Address, tuple[str, pa.DataType] | None] = {}
    types: dict[str, set[pa.DataType]] = {}
    for address in read:
        leaf, query, axes = tree.requests[address], queries[address], _axes(tree, address)
        found[address] = one = None if path == "rows" else _column(leaf, query, axes, schema)
        if one is not None:
            types.setdefault(one[0], set()).add(one[1])
    # A column has one type: leaves that need it in several walk the field.
    walked = {at for at, one in found.items() if one is None or len(types[one[0]]) > 1}
    whole = {name for at in walked for name in queries[at].names or ()}
    walked |= {at for at, one in found.items() if one is not None and one[0] in whole}
    leaves, fields = {}, {name: _whole_type(schema, name) for name in sorted(whole)}
    for address, one in found.items():
        column = None
        if one is not None and address not in walked:
            column, fields[column] = one[0], one[1]
        leaves[address] = LeafPlan(queries[address], _axes(tree, address), column)
        _warn_of_depth(tree.requests[address], leaves[address])
    names = dict.fromkeys(name for one in leaves.values() for name in one.query.names or ())
    _warn_of_missing(source, names)
    plan = ReadPlan(fields, dict.fromkeys(names, JSON), leaves)
    if plan.walked:
        _log.info("read record by record: %s", ", ".join(plan.walked))
    return plan


def _schema_of(source: Source, queries: Iterable[Query]) -> pa.Schema | None:
    """Return the types of a source's columns; None where no type holds their values."""
    try:
        return schema_of(source, {name for query in queries for name in query.names or ()})
    except SchemaMismatchError as why:
        _log.info("the types of fields are not known: %s", why)
        return None


def _warn_of_missing(source: Source | None, names: Iterable[str]) -> None:
    if source is not None and source.schema_is_complete:
        for missing in missing_fields(source, names):
            warn_once(_log, f"{missing.text} Leaves that read it are null in every record.")


def _warn_of_depth(leaf: Leaf, plan: LeafPlan) -> None:
    lists, arrays = (plan.query.steps or ()).count(EACH), len(plan.axes)
    if lists > arrays + leaf.takes_lists:
        text = "%s: %s goes into %d lists, and %d arrays stand above the leaf"
        _log.warning(text, leaf.address, plan.query.text, lists, arrays)


def _whole_type(schema: pa.Schema | None, name: str) -> pa.DataType:
    """Return the type to read a field in whose records are walked."""
    found = None if schema is None else type_at(schema, name)
    plain = JSON if found is None else without_maps(found)
    # JSON would hold a map as pairs, without the names of keys and values.
    return JSON if plain == found else plain


def _axes(tree: Tree, address: Address) -> tuple[Axis, ...]:
    return tuple(Axis(one.max_length, one.overflow) for one in tree.above(address)[1:])


def _column(
    leaf: Leaf, query: Query, axes: Sequence[Axis], schema: pa.Schema | None
) -> tuple[str, pa.DataType] | None:
    """Return the column that holds a leaf's values, and its type; None where there is none."""
    steps = query.steps
    if not steps or not isinstance(steps[0], str):
        return None
    names = [step for step in steps if isinstance(step, str)]
    lists = sum(step is EACH for step in steps)
    if lists > len(axes) or any(not name or _ODD & set(name) for name in names):
        return None
    steps = (*steps, *[EACH] * (len(axes) - lists))
    path = "".join(f".{step}" if isinstance(step, str) else "[]" for step in steps)[1:]
    if schema is None:
        type_ = leaf.guess
    elif len(steps) > 1 and path in schema.names:
        return None  # A field of that very name would be read in its place.
    else:
        found = type_at(schema, path.rstrip("[]") if len(steps) > len(query.steps or ()) else path)
        inner = None if found is None else _inside(found, steps)
        wanted = None if inner is None else leaf.wanted(inner)
        if wanted is None:
            return None
        type_ = wanted
    for step in steps:
        type_ = type_ if isinstance(step, str) else pa.list_(type_)
    return path, type_


def _inside(type_: pa.DataType, steps: Sequence[object]) -> pa.DataType | None:
    """Return the type of the values inside of the lists of a path."""
    for step in steps:
        if not isinstance(step, str):
            is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
            if not is_list and not pa.types.is_fixed_size_list(type_):
                return None
            type_ = type_.value_type
    return type_


class BatchColumns:
    """The columns of one batch, as its leaves ask for them."""

    def __init__(self, columns: pa.RecordBatch) -> None:
        self._columns = columns
        self._is_loose = LOOSE in (columns.schema.metadata or {})
        self._placer = ColumnPlacer(len(columns))
        self._known: dict[str, list[Any]] = {}

    def placed(self, plan: LeafPlan) -> Placed:
        """Return the slots that records have, and their values."""
        query, axes, column = plan
        if column is not None and not self._is_loose:  # Only values that fit have its type.
            return *self._placer.place(self._columns[column], query.steps or (), axes), ()
        return row_slots(self._records(query.names), query, axes)

    def _records(self, names: Sequence[str] | None) -> list[Any]:
        if names is None:
            return self._values(RECORDS)
        values = [self._values(name) for name in names]
        if not names:
            return [{} for _ in range(len(self._columns))]
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]

    def _values(self, name: str) -> list[Any]:
        if name not in self._known:
            column = self._columns[name]
            is_json = pa.types.is_string(column.type)
            values = (column.cast(pa.binary()) if is_json else column).to_pylist()
            if is_json or name == RECORDS:
                # Pickles are of our own process or worker.
                read = decode_line if is_json else pickle.loads
                values = [None if one is None else read(one) for one in values]
            self._known[name] = values
        return self._known[name]


def row_slots(records: Sequence[Any], query: Query, axes: Sequence[Axis]) -> Placed:
    """Return the slots and values of one leaf, record by record."""
    placer = RowPlacer(query, axes)
    placer.place(records)
    return np.array(placer.slots, np.int64), placer.values, placer.odd
