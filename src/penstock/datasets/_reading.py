"""All records of a source, only some fields, a few tens of thousands at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datasets._concatenated import Concatenated
from penstock.datasets._views import origins_of
from penstock.errors import OptionError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.datasets._source import Source

_STRETCH = 65_536
_SHOWN = 20


def read_fields(source: Source, names: Sequence[str], length: int) -> Iterator[pa.RecordBatch]:
    """Yield the named fields (or dotted paths) of the first `length` records, in order.

    A field has the type that the source's schema says, or else the one that these records need.
    """
    if isinstance(source, Concatenated):
        # One by one, because a field may have another type in each.
        for one, own in zip(source.sources, source.sizes, strict=True):
            share = min(own, length)
            yield from read_fields(one, names, share)
            length -= share
        return
    for start in range(0, length, _STRETCH):
        ids = np.arange(start, min(start + _STRETCH, length))
        try:
            yield source.read(ids, list(names))
        except (OptionError, SchemaMismatchError):
            # The schema was made from some records: these have not the field, or another type.
            whole = source._inferred(ids)  # noqa: SLF001 (the contract's own)
            columns = [_inside(whole, name) for name in names]
            yield pa.RecordBatch.from_arrays(columns, list(names))


def _inside(batch: pa.RecordBatch, path: str) -> pa.Array:
    """Return the column at a dotted path, null where there is none."""
    if path in batch.schema.names:
        return batch.column(path)
    name, *steps = path.split(".")
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows)
    array = batch.column(name)
    for step in steps:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(step) < 0:
            return pa.nulls(batch.num_rows)
        array = pc.struct_field(array, step)
    return array


def lies_in_files(source: Source) -> bool:
    """Whether all records lie in files, so that the fingerprint holds beyond this process."""
    return all(origin.files for origin in origins_of(source))


def refuse_unknown(source: Source, path: str) -> None:
    """Raise for a field that no record had a value in, unless the schema knows it.

    Nearly always it is misspelt; a result in which it is null everywhere would hide that.
    """
    schema = source.schema
    if path in schema.names:
        return
    inner: pa.Schema | pa.StructType = schema
    for name in path.split("."):
        names = [field.name for field in inner]
        if name not in names:
            there = ", ".join(schema.names[:_SHOWN])
            more = ", …" if len(schema.names) > _SHOWN else ""
            raise OptionError(f"no record has a field {path!r}. There are: {there}{more}")
        inner = inner.field(names.index(name)).type
        if not pa.types.is_struct(inner):
            inner = pa.struct([])
