"""Batches of one stream, or of several, as one table."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.decode._kinds import (
    NULL,
    TEXT,
    Fields,
    Foreign,
    Kind,
    arrow_schema,
    describe,
    join,
    settled,
)
from penstock.decode._seen import kind_of_array
from penstock.decode._widen import widen_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_log = logging.getLogger("penstock.decode")


def unify(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return all batches as one table under the narrowest schema that holds every value.

    Where types alone do not decide, the values do: int64 and uint64 make uint64 when nothing is
    negative, else strings. A field that a batch does not have is null there.

    >>> import pyarrow as pa
    >>> early = pa.record_batch({"a": [1, 2]})
    >>> late = pa.record_batch({"a": [0.5], "b": ["new"]})
    >>> unify([early, late]).to_pydict()
    {'a': [1.0, 2.0, 0.5], 'b': [None, None, 'new']}
    """
    parts = list(batches)
    if not parts:
        return pa.schema([]).empty_table()
    schema = parts[0].schema
    if all(part.schema.equals(schema) for part in parts):
        return pa.Table.from_batches(parts, schema)
    names = dict.fromkeys(name for part in parts for name in part.schema.names)
    record = Fields({name: _common_kind(name, parts) for name in names})
    return pa.Table.from_batches(
        [widen_batch(part, record) for part in parts], arrow_schema(record)
    )


def _common_kind(name: str, parts: Sequence[pa.RecordBatch]) -> Kind:
    arrays = [part.column(name) for part in parts if part.schema.get_field_index(name) >= 0]
    first = next((array.type for array in arrays if not pa.types.is_null(array.type)), None)
    if first is None:
        return NULL
    if all(array.type.equals(first) or pa.types.is_null(array.type) for array in arrays):
        return Foreign(first)
    mixed: dict[str, str] = {}
    kind: Kind = NULL
    for array in arrays:
        kind = join(kind, kind_of_array(array), name, mixed.setdefault)
    kind = settled(kind, name, mixed.setdefault)
    for path, what in mixed.items():
        # Where strings meet other values, the decoder that turned to strings has said so.
        if describe(TEXT) not in what:
            _log.warning("field %r holds %s and becomes a string in the unified table", path, what)
    return kind
