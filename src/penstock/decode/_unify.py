"""One schema for batches of a stream, or of several, and batches under it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.decode._kinds import (
    Fields,
    Foreign,
    Kind,
    Scalar,
    arrow_schema,
    describe,
    join,
    kind_of_array,
    say_nothing,
    settled,
)
from penstock.decode._widen import widen_batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.decode._kinds import OnMixed

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
    mixed: dict[str, str] = {}
    whole = WholeSchema(parts, mixed.setdefault)
    for path, what in mixed.items():
        # Where strings meet other values, the decoder that turned to strings has said so.
        if describe(Scalar.TEXT) not in what:
            _log.warning("field %r holds %s and becomes a string in the unified table", path, what)
    return pa.Table.from_batches([whole.widen(part) for part in parts], whole.schema)


class WholeSchema:
    """The narrowest schema that holds every batch it has seen; it keeps no batch.

    >>> early, late = pa.record_batch({"a": [1]}), pa.record_batch({"a": [0.5], "b": ["new"]})
    >>> whole = WholeSchema([early, late])
    >>> whole.widen(early).to_pydict()
    {'a': [1.0], 'b': [None]}
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], on_mixed: OnMixed = say_nothing) -> None:
        seen: dict[str, _Seen] = {}
        for batch in batches:
            for name, array in zip(batch.schema.names, batch.columns, strict=True):
                seen.setdefault(name, _Seen(name, on_mixed)).add(array)
        self._record = Fields({name: field.kind() for name, field in seen.items()})
        self.schema = arrow_schema(self._record)

    def widen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return one of the batches under the schema of all of them."""
        return widen_batch(batch, self._record)


class _Seen:
    """What one field was seen to hold."""

    def __init__(self, name: str, on_mixed: OnMixed) -> None:
        self._name = name
        self._on_mixed = on_mixed
        self._kind: Kind = Scalar.NULL
        self._type: pa.DataType | None = None
        self._same = True

    def add(self, array: pa.Array) -> None:
        if pa.types.is_null(array.type):
            return
        if self._type is None:
            self._type = array.type
        self._same = self._same and array.type.equals(self._type)
        self._kind = join(self._kind, kind_of_array(array), self._name, self._on_mixed)

    def kind(self) -> Kind:
        if self._type is None:
            return Scalar.NULL
        if self._same:
            return Foreign(self._type)
        return settled(self._kind, self._name, self._on_mixed)
