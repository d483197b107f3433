"""Fields decoded once: columns that are there, those that are missing, and what they would cost."""

# ruff: noqa: SLF001 (a view is asked for what it is made of)

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from penstock.datasets._arrow import schema_of_all
from penstock.datasets._inexact import refuse_numbers
from penstock.datasets._projection import typed_fields
from penstock.datasets._source import Source
from penstock.datasets.columns._build import Building, ColumnsEstimate, only_column_builder
from penstock.datasets.columns._columns import SourceColumns
from penstock.datasets.columns._folder import Column, ColumnMeta, drop_columns, list_columns
from penstock.datasets.columns._materialized import ColumnSpec, Materialized, without_columns
from penstock.datasets.columns._place import Freshness, column_place
from penstock.datasets.columns._write import check_type
from penstock.datasets.views._views import bare_origins
from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError
from penstock.index import read_meta
from penstock.storage import path_below

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from penstock.datasets._source import Fields
    from penstock.datasets.columns._bad import OnError
    from penstock.work import View

_POLICIES = ("raise", "null", "mask")


def materialize(  # noqa: PLR0913 (as users give them)
    source: Source,
    fields: Fields,
    path: str | os.PathLike[str] | None = None,
    progress: bool | View | None = True,  # noqa: FBT001, FBT002
    *,
    on_error: OnError = "raise",
    workers: int | None = None,
) -> Source:
    """Return the same records with columns of these fields; see `Source.materialize`.

    >>> from penstock.datasets._memory import ListSource
    >>> source = ListSource([{"price": 2, "tags": ["a"]}, {"price": 3}])
    >>> source.materialize({"price": "float32"}).read([1, 0, 1], {"price": "float32"}).to_pydict()
    {'price': [3.0, 2.0, 3.0]}
    """
    if on_error not in _POLICIES:
        raise OptionError(f"on_error={on_error!r}: expected one of {', '.join(_POLICIES)}.")
    schema = typed_fields(source, fields, lambda: schema_of_all(source))
    refuse_numbers(schema, source)
    for field in schema:
        check_type(field.name, field.type)
    origins = bare_origins(source)
    if path is not None and len({origin.fingerprint for origin in origins}) > 1:
        raise OptionError(
            f"path={os.fspath(path)!r}: a folder holds the columns of one source, and these "
            f"records come from {len(origins)}. Materialise each of them before they are put "
            "together."
        )
    # A bar belongs in a terminal; elsewhere a view is given.
    how = Building(on_error, workers, None if progress is True else progress)
    return source._over(lambda origin: _materialized(origin, schema, path, how))


def missing_columns(source: Source, schema: pa.Schema, *, most_bad: int = 0) -> Source:
    """Return the same records with columns of all these fields; those that are there stay.

    Reading a record that cannot be decoded raises. Up to `most_bad` records may be bad, and in any
    case as many as `on_error="mask"` allows.

    >>> import pyarrow as pa
    >>> from penstock.datasets._memory import ListSource
    >>> source = ListSource([{"a": "x", "b": 2}]).materialize({"a": "int8"}, on_error="null")
    >>> schema = pa.schema({"a": pa.int8(), "b": pa.int8()})
    >>> missing_columns(source, schema).read([0], schema).to_pydict()
    {'a': [None], 'b': [2]}
    """
    how = Building("mask", most_bad=most_bad, warns_of_unknown=False)
    return source._over(
        lambda origin: _materialized(origin, without_columns(origin, schema), None, how)
    )


def _materialized(
    source: Source, schema: pa.Schema, path: str | os.PathLike[str] | None, how: Building
) -> Materialized:
    origin = source._bare
    found = SourceColumns(origin, path, how.on_error).ensured(schema, how) if len(origin) else {}
    return _with(source, found)


def _with(source: Source, found: Mapping[ColumnSpec, Column]) -> Materialized:
    """Return a source with these columns, and with those that it has of other fields."""
    known = source.specs if isinstance(source, Materialized) else ()
    return Materialized(source._bare, (*known, *found), found)


def columns_of(
    source: Source, schema: pa.Schema, path: str | os.PathLike[str] | None = None
) -> Source | None:
    """Return the same records with columns of all these fields; None where one of them is missing.

    Nothing is built; columns that are published beside remote data are fetched. Those that a source
    has stay as they are; of the others only columns in which nothing was made null are used.

    >>> import pyarrow as pa
    >>> from penstock.datasets._memory import ListSource
    >>> source, schema = ListSource([{"a": 1}]), pa.schema({"a": pa.int8()})
    >>> _ = source.materialize(schema)
    >>> columns_of(source, schema).read([0], schema).to_pydict()
    {'a': [1]}
    """
    has_all = True

    def change(origin: Source) -> Source:
        nonlocal has_all
        bare = origin._bare
        fields = without_columns(origin, schema)
        found = SourceColumns(bare, path).existing(fields) if has_all and len(bare) else {}
        if found is None:
            has_all = False
            return origin
        return _with(origin, found)

    changed = source._over(change)
    return changed if has_all else None


def estimate_columns(
    source: Source, schema: pa.Schema, path: str | os.PathLike[str] | None = None
) -> ColumnsEstimate:
    """Return what it would take to build the columns of these fields that are missing."""
    # A source may be part of a view more than once.
    places = [SourceColumns(origin, path) for origin in bare_origins(source)]
    once = {one.place.root: one for one in places}
    costs = [cost for one in once.values() for cost in one.costs(schema)]
    return ColumnsEstimate(
        sum(cost.seconds for cost in costs),
        sum(cost.bytes for cost in costs),
        sum(cost.records for cost in costs),
        str(places[0].place.root),
    )


class ListedColumn(NamedTuple):
    """A column that is there."""

    meta: ColumnMeta
    stale: bool | None
    """Whether it is of other records, so that it is built anew when it is asked for.

    None without an index."""
    folder: str
    """Where it lies."""


def list_columns_of(
    where: Source | Iterable[Path], path: str | os.PathLike[str] | None = None
) -> list[ListedColumn]:
    """Return all columns on this machine of the sources that some records lie in.

    In folders without a source those are listed that are there, whatever they are of.
    """
    if not isinstance(where, Source):
        return [ListedColumn(meta, None, str(one)) for one in where for meta in list_columns(one)]
    found: dict[str, list[ListedColumn]] = {}
    for origin in bare_origins(where):
        freshness = Freshness(origin)
        for root in column_place(origin, path).roots:
            found[str(root)] = [
                ListedColumn(meta, not freshness.holds(meta), str(root))
                for meta in list_columns(root)
            ]
    return [column for some in found.values() for column in some]


def drop_columns_of(
    where: Source | Iterable[Path],
    names: Collection[str] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> list[ColumnMeta]:
    """Remove the columns of these fields, or all; a process that uses one keeps it."""
    if isinstance(where, Source):
        where = [column_place(origin, path).root for origin in bare_origins(where)]
    dropped = []
    for folder in where:
        if list_columns(folder):  # Else it may be a folder of something else.
            with only_column_builder(folder):
                dropped += drop_columns(folder, names)
    return dropped


def files_of_entry(entry: Path) -> list[str] | None:
    """Return the local files that an index or columns in the cache directory were made from.

    None where that is not known: of remote data, of views, and where metadata is damaged.
    """
    with suppress(CorruptIndexError, ObjectNotFoundError):
        meta = read_meta(str(entry))
        if meta is not None and meta.base is not None:
            names = [file.path for file in [*meta.files, *meta.empty]]
            files = [path_below(meta.base, name) or "" for name in names] or [meta.base]
        else:
            files = [file.path for column in list_columns(entry) for file in column.files]
        if files and all(map(os.path.isabs, files)):
            return files
    return None
