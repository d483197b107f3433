"""Rows of tokens as Arrow: one column of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.decode import fit_batch
from penstock.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets.tokens._source import TokenSource

_MOST_ITEMS = 2**31 - 1


def token_batch(source: TokenSource, ids: NDArray[np.int64]) -> pa.RecordBatch:
    """Return rows as a batch of the source's schema."""
    schema = source.schema
    type_ = schema.types[0]
    if source.sample_size is not None:
        values = pa.array(source._fresh(ids).reshape(-1))  # noqa: SLF001 (what a source is asked for)
        column = pa.FixedSizeListArray.from_arrays(values, type=type_)
    else:
        flat, lengths = source._flat(ids)  # noqa: SLF001
        if len(flat) > _MOST_ITEMS:
            raise OptionError(
                f"{len(ids):,} rows have {len(flat):,} tokens, more than a list column of Arrow "
                "holds. Ask for fewer rows at a time."
            )
        offsets = np.zeros(len(ids) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat), type=type_)
    return pa.RecordBatch.from_arrays([column], schema=schema)


def token_columns(source: TokenSource, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema; whatever is not `tokens` is null."""
    if source.schema.names[0] not in schema.names:
        none = pa.RecordBatch.from_struct_array(pa.array([{}] * len(ids), pa.struct([])))
        return fit_batch(none, schema, ids)
    return fit_batch(token_batch(source, ids), schema, ids)
