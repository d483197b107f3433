"""The distinct values of a field, in the order in which the records bring them up."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock._words import counted, warn_once
from penstock.datasets._arrow import id_ranges, lies_in_files, read_fields, refuse_unknown
from penstock.datasets._concatenated import Concatenated
from penstock.datasets._once import from_cache, keep_file
from penstock.datasets._table_source import TableSource
from penstock.datasets.columns._place import state_of
from penstock.datasets.views._views import Chosen, fingerprint_of
from penstock.decode import batches_of_one_type, read_around_bad, uuids_as_texts
from penstock.errors import MalformedLineError, OptionError, SchemaMismatchError, StorageError
from penstock.storage import cache_directory, open_regular

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from penstock.datasets._source import Source

_log = logging.getLogger("penstock.datasets")

_VERSION = 2
"""Raised whenever the same records would give other values, or in another order."""
_COLUMN = "values"
_FEW = 1000
"""Records among which the first value nearly always is."""
_MOST_LEFT_OUT = 10_000
"""Above this number the field has another type; the records are not bad."""
_MAX_INT64 = 2**63 - 1
_KINDS = (pa.string(), pa.binary(), pa.bool_(), pa.int64(), pa.uint64())
is_ = pa.types


def vocabulary(source: Source, name: str, length: int, *, may_be_missing: bool = False) -> pa.Array:
    """Return the distinct values, without null, of a field of the first `length` records.

    They stand in the order of their first appearance, so records that are appended never change
    the place of a value. For records in files they are kept in the cache directory. Values are
    texts, bytes, whole numbers or booleans, of the kind that the first one is of; `name` may be a
    dotted path. Records that cannot be read, or only as another kind, are left out; reading
    them raises. A field that no record has raises, too, unless it `may_be_missing`.

    >>> from penstock.datasets._memory import ListSource
    >>> vocabulary(ListSource([{"a": "y"}, {"a": "x"}, {}, {"a": "y"}]), "a", 4).to_pylist()
    ['y', 'x']
    """
    if not lies_in_files(source):
        return _found(source, name, length, may_be_missing)
    own = (source.fingerprint, state_of(source))
    key = fingerprint_of("vocabulary", *own, str(_VERSION), name, str(length))
    path = cache_directory() / "views" / f"{key}.arrow"
    values = from_cache(path, _mapped_values)
    if values is None:
        values = _found(source, name, length, may_be_missing)
        try:
            _keep(path, values)
        except StorageError as error:
            _log.warning("the vocabulary of %r is found again next time: %s", name, error)
    return values


def words_of(source: Source, name: str) -> list[Any]:
    """Return the vocabulary of the whole source that records come from, as a loader has it."""
    root = root_of(source)
    return _words(vocabulary(root, name, len(root)))


def value_counts(source: Source, name: str) -> dict[Any, int]:
    """Return how many records hold each value of the vocabulary; null has no code.

    >>> from penstock.datasets._memory import ListSource
    >>> value_counts(ListSource([{"a": "y"}, {"a": "x"}, {}, {"a": "y"}]).take([0, 3]), "a")
    {'y': 2, 'x': 0}
    """
    root = root_of(source)
    values = vocabulary(root, name, len(root))
    counts = dict.fromkeys(_words(values), 0)
    for ids in id_ranges(0, len(source)):
        column = _column(source, name, ids, [values.type]).drop_null()
        words, numbers = column.value_counts().flatten()
        for word, count in zip(_words(words), numbers.to_pylist(), strict=True):
            if word in counts:
                counts[word] += count
    return counts


def _words(values: pa.Array) -> list[Any]:
    """Return values of which none is null: integers beside a null would become floats."""
    words: list[Any] = values.to_numpy(zero_copy_only=False).tolist()
    return words


def root_of(source: Source) -> Source:
    """Return what the records of a view come from: all views of one source have the same root."""
    if isinstance(source, Chosen):
        return root_of(source.source)
    if not isinstance(source, Concatenated):
        return source
    roots = {root.fingerprint: root for root in map(root_of, source.sources)}
    return next(iter(roots.values())) if len(roots) == 1 else Concatenated([*roots.values()])


def _found(source: Source, name: str, length: int, may_be_missing: bool) -> pa.Array:  # noqa: FBT001
    first = _first_value(source, name, length)
    if first is None:
        if length and not may_be_missing:
            refuse_unknown(source, name)
        return pa.array([], pa.string())
    types = _types_of(source, name, first)
    places: dict[Any, None] = {}
    # The loader raises for these records when it reads them.
    left_out: list[Exception] = []
    for ids in id_ranges(first, length):
        for _, column in _readable(source, name, ids, types, left_out):
            distinct = column.unique().drop_null()
            places.update(dict.fromkeys(_words(distinct)))
    if left_out:
        bad = counted(len(left_out), "record")
        text = f"the vocabulary of {name!r} is without {bad} that cannot be read, the first: "
        warn_once(_log, f"{text}{left_out[0]}")
    return _array(list(places), types[0])


def _first_value(source: Source, name: str, length: int) -> int | None:
    """Return the first record that has a value, among those that can be read."""
    few = min(_FEW, length)
    for ids in chain([np.arange(few)], id_ranges(few, length)):
        for some, column in _readable(source, name, ids, None, []):
            if column.null_count < len(column):
                return int(some[pc.index(column.is_valid(), True).as_py()])
    return None


def _readable(
    source: Source,
    name: str,
    ids: NDArray[np.int64],
    types: Sequence[pa.DataType] | None,
    left_out: list[Exception],
) -> Iterator[tuple[NDArray[np.int64], pa.Array]]:
    """Yield the numbers and values of those records that can be read as one of `types`, in order.

    Without types as what they are.
    """

    def read(start: int, stop: int) -> pa.Array:
        return _column(source, name, ids[start:stop], types)

    for found in read_around_bad(len(ids), read, (MalformedLineError, SchemaMismatchError)):
        if found.why is None:
            yield ids[found.start : found.stop], found.value
            continue
        left_out.append(found.why)
        if len(left_out) > _MOST_LEFT_OUT:
            raise SchemaMismatchError(
                f"field {name!r} is no category: more than {_MOST_LEFT_OUT:,} records cannot be "
                f"read, or not as what its first value is. The first: {left_out[0]}. To leave "
                f"them without codes, give the values that have some: "
                f"FieldEncoder(types, {{{name!r}: […]}})"
            )


def _column(
    source: Source, name: str, ids: NDArray[np.int64], types: Sequence[pa.DataType] | None
) -> pa.Array:
    if types is None:
        (columns,) = read_fields(source.take(ids), [name], len(ids))
        return columns.column(0)
    first, *others = types
    try:
        return source.read(ids, {name: first}).column(0)
    except SchemaMismatchError:
        for type_ in others:
            with suppress(SchemaMismatchError):
                return source.read(ids, {name: type_}).column(0)
        raise


def _types_of(source: Source, name: str, number: int) -> tuple[pa.DataType, ...]:
    """Return what values are read as: those of the kind that the first one is of.

    The first value stays the first when records are appended.
    """
    whole = source._inferred(np.array([number], np.int64))  # noqa: SLF001 (the contract's own)
    column = TableSource(whole)._projected(np.zeros(1, np.int64), [name])  # noqa: SLF001
    ((_, part),) = batches_of_one_type(column)
    type_ = uuids_as_texts(part.column(0)).type
    if is_.is_dictionary(type_):
        type_ = type_.value_type
    if is_.is_string(type_) or is_.is_large_string(type_) or is_.is_string_view(type_):
        return (pa.string(),)
    if is_.is_binary(type_) or is_.is_large_binary(type_) or is_.is_binary_view(type_):
        return (pa.binary(),)
    if is_.is_boolean(type_):
        return (pa.bool_(),)
    if is_.is_integer(type_):
        return (pa.int64(), pa.uint64())
    raise OptionError(
        f"field {name!r} is no category: record {number:,} holds {type_}, and only texts, bytes, "
        "whole numbers and booleans have codes. Ask for another type (json holds every value), or "
        "balance by another field"
    )


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    if not is_.is_integer(type_):
        return pa.array(values, type_)
    # No type has both, negative and very large ones: those that come first have codes.
    if next((value > 0 for value in values if not 0 <= value <= _MAX_INT64), False):
        return pa.array([value for value in values if value >= 0], pa.uint64())
    return pa.array([value for value in values if value <= _MAX_INT64], pa.int64())


def _mapped_values(path: Path) -> pa.Array:
    with open_regular(path) as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    values = pa.ipc.open_file(pa.py_buffer(mapped)).get_batch(0).column(_COLUMN)
    values.validate(full=True)
    if values.type not in _KINDS or values.null_count:
        raise ValueError("it holds no vocabulary")
    return values


def _keep(path: Path, values: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([values], [_COLUMN])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as file:
        file.write_batch(batch)
    keep_file(path, lambda draft: draft.write(sink.getvalue()))
