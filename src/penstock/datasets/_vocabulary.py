"""The distinct values of a field, in the order in which the records bring them up."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.datasets._kept import keep_file
from penstock.datasets._reading import lies_in_files, read_fields, refuse_unknown
from penstock.datasets._views import fingerprint_of
from penstock.errors import OptionError, SchemaMismatchError, StorageError
from penstock.storage import cache_directory

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets._source import Source

_log = logging.getLogger("penstock.datasets")

_VERSION = 1
"""Raised whenever the same records would give other values, or in another order."""
_COLUMN = "values"
_MAX_INT64 = 2**63 - 1
is_ = pa.types


def vocabulary(source: Source, name: str, length: int) -> pa.Array:
    """Return the distinct values, without null, of a field of the first `length` records.

    They stand in the order of their first appearance, so records that are appended never change
    the place of a value. For records in files they are kept in the cache directory. Values are
    texts, bytes, whole numbers or booleans; `name` may be a dotted path.

    >>> from penstock.datasets._memory import ListSource
    >>> vocabulary(ListSource([{"a": "y"}, {"a": "x"}, {}, {"a": "y"}]), "a", 4).to_pylist()
    ['y', 'x']
    """
    if not lies_in_files(source):
        return _found(source, name, length)
    key = fingerprint_of("vocabulary", source.fingerprint, str(_VERSION), name, str(length))
    path = cache_directory() / "views" / f"{key}.arrow"
    values = _kept(path)
    if values is None:
        values = _found(source, name, length)
        try:
            _keep(path, values)
        except StorageError as error:
            _log.warning("the vocabulary of %r is found again next time: %s", name, error)
    return values


def _found(source: Source, name: str, length: int) -> pa.Array:
    places: dict[Any, None] = {}
    kinds: dict[str, pa.DataType] = {}
    for columns in read_fields(source, [name], length):
        column = columns.column(0)
        if is_.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.null_count == len(column):
            continue
        kinds[_kind(column.type, name)] = column.type
        if len(kinds) > 1:
            raise SchemaMismatchError(
                f"field {name!r} is no category: it holds {' and '.join(kinds)}, and values "
                f"of one kind have codes. Make them all of one kind"
            )
        distinct = column.unique().drop_null()
        places.update(dict.fromkeys(distinct.to_numpy(zero_copy_only=False).tolist()))
    if not kinds and length:
        refuse_unknown(source, name)
    return _array(list(places), next(iter(kinds), "texts"))


def _kind(type_: pa.DataType, name: str) -> str:
    if is_.is_string(type_) or is_.is_large_string(type_) or is_.is_string_view(type_):
        return "texts"
    if is_.is_binary(type_) or is_.is_large_binary(type_) or is_.is_binary_view(type_):
        return "bytes"
    if is_.is_boolean(type_):
        return "booleans"
    if is_.is_integer(type_):
        return "whole numbers"
    raise OptionError(
        f"field {name!r} is no category: it holds {type_}, and only texts, bytes, whole numbers "
        f"and booleans have codes. Ask for a type that holds it"
    )


def _array(values: list[Any], kind: str) -> pa.Array:
    if kind == "whole numbers":
        return pa.array(values, pa.uint64() if max(values) > _MAX_INT64 else pa.int64())
    types = {"texts": pa.string(), "bytes": pa.binary(), "booleans": pa.bool_()}
    return pa.array(values, types[kind])


def _kept(path: Path) -> pa.Array | None:
    try:
        values = pa.ipc.open_file(path.read_bytes()).get_batch(0).column(_COLUMN)
        values.validate(full=True)
    except FileNotFoundError:
        return None
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        _log.warning("%s cannot be used and is made again: %s", path, error)
        return None
    return values


def _keep(path: Path, values: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([values], [_COLUMN])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as file:
        file.write_batch(batch)
    keep_file(path, sink.getvalue())
