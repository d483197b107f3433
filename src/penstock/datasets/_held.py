"""Some records as a table, with every column that their source is known to have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.decode import unify

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.datasets._source import Source


def held(source: Source, ids: NDArray[np.int64]) -> pa.Table:
    """Return records with all columns of the source's schema, and wider ones where they need it."""
    batch = source._inferred(ids)  # noqa: SLF001 (what a source is asked for)
    if source.schema_is_complete:
        return pa.Table.from_batches([batch])
    none = pa.RecordBatch.from_pylist([], source.schema)
    return unify([none, batch])
