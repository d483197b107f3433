"""One schema for a whole stream, found in one pass and applied to each batch in a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.decode._kinds import NULL, Fields, Foreign, Kind, arrow_schema, join, settled
from penstock.decode._seen import kind_of_array
from penstock.decode._widen import widen_batch

if TYPE_CHECKING:
    from collections.abc import Iterable


class WholeSchema:
    """The narrowest schema that holds every batch it has seen, as `unify` would choose it.

    Unlike `unify` it keeps no batch: what a field was seen to hold is all it remembers.

    >>> early, late = pa.record_batch({"a": [1]}), pa.record_batch({"a": [0.5], "b": ["new"]})
    >>> whole = WholeSchema([early, late])
    >>> whole.widen(early).to_pydict()
    {'a': [1.0], 'b': [None]}
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        seen: dict[str, _Seen] = {}
        for batch in batches:
            for name, array in zip(batch.schema.names, batch.columns, strict=True):
                seen.setdefault(name, _Seen(name)).add(array)
        self._record = Fields({name: field.kind() for name, field in seen.items()})
        self.schema = arrow_schema(self._record)

    def widen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return one of the batches under the schema of all of them."""
        return widen_batch(batch, self._record)


class _Seen:
    """What one field was seen to hold."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kind: Kind = NULL
        self._type: pa.DataType | None = None
        self._same = True

    def add(self, array: pa.Array) -> None:
        if pa.types.is_null(array.type):
            return
        if self._type is None:
            self._type = array.type
        self._same = self._same and array.type.equals(self._type)
        self._kind = join(self._kind, kind_of_array(array), self._name, _say_nothing)

    def kind(self) -> Kind:
        if self._type is None:
            return NULL
        if self._same:
            return Foreign(self._type)
        return settled(self._kind, self._name, _say_nothing)


def _say_nothing(path: str, what: str) -> None:
    """Ignore it: the warning came with the batch."""
