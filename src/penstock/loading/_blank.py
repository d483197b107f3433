"""Rows that stand in for records that cannot be read; nobody counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray


def filled_rows(columns: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    """Return a batch with a row for each of `rows`: that of `columns`, or for -1 a stand-in.

    A stand-in repeats the first row, which is known to be good; without one it holds zeros.

    >>> batch = pa.record_batch({"n": [5, 7]})
    >>> filled_rows(batch, np.array([-1, 0, 1]))["n"].to_pylist()
    [5, 5, 7]
    >>> filled_rows(batch.slice(0, 0), np.array([-1, -1]))["n"].to_pylist()
    [0, 0]
    """
    if not columns.num_rows:
        blank = [_blank(field.type) for field in columns.schema]
        arrays = [
            pa.array([value] * len(rows), field.type)
            for value, field in zip(blank, columns.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=columns.schema)
    return columns.take(pa.array(np.maximum(rows, 0)))


def _blank(kind: pa.DataType) -> Any:  # noqa: ANN401 (one value of an Arrow type)
    if pa.types.is_dictionary(kind):
        return _blank(kind.value_type)
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return 0
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ""
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return b""
    if pa.types.is_fixed_size_list(kind):
        return [_blank(kind.value_type)] * kind.list_size
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return []
    if pa.types.is_struct(kind):
        return {field.name: _blank(field.type) for field in kind}
    return None
