"""All records of a source, only some fields, a few tens of thousands at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.datasets._concatenated import Concatenated
from penstock.datasets._table_source import TableSource
from penstock.datasets._views import origins_of
from penstock.datasets.fields._paths import type_at
from penstock.errors import OptionError, SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.datasets._source import Source

ROWS = 65_536
"""Records that are read together."""
_SHOWN = 20


def id_ranges(start: int, stop: int) -> Iterator[NDArray[np.int64]]:
    """Yield the record numbers from `start` to `stop`, `ROWS` at a time."""
    for low in range(start, stop, ROWS):
        yield np.arange(low, min(low + ROWS, stop), dtype=np.int64)


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
    for ids in id_ranges(0, length):
        try:
            yield source.read(ids, list(names))
        except (OptionError, SchemaMismatchError):
            # The schema was made from some records: these have not the field, or another type.
            whole = TableSource(source._inferred(ids))  # noqa: SLF001 (the contract's own)
            known = [name for name in names if type_at(whole.schema, name) is not None]
            there = whole.read(np.arange(len(ids)), known)
            columns = [there[name] if name in known else pa.nulls(len(ids)) for name in names]
            yield pa.RecordBatch.from_arrays(columns, list(names))


def lies_in_files(source: Source) -> bool:
    """Whether all records lie in files, so that the fingerprint holds beyond this process."""
    return all(origin.files for origin in origins_of(source))


def refuse_unknown(source: Source, path: str) -> None:
    """Raise for a field that no record had a value in, unless the schema knows it.

    Nearly always it is misspelt; a result in which it is null everywhere would hide that.
    """
    names = source.schema.names
    if type_at(source.schema, path) is None:
        there = ", ".join(names[:_SHOWN]) + ", …" * (len(names) > _SHOWN)
        raise OptionError(f"no record has a field {path!r}. There are: {there}")
