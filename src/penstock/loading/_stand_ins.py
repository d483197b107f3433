"""Rows in place of records that cannot be used: blank, and no copy of another record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

is_ = pa.types


def filled_rows(
    columns: pa.RecordBatch, rows: NDArray[np.int64], null_fields: Collection[str] = ()
) -> pa.RecordBatch:
    """Return a batch with a row for each of `rows`: that of `columns`, or for -1 a stand-in.

    A stand-in is blank: null in `null_fields` and in types without a blank value, else 0 or empty.
    """
    at = pa.array(np.where(rows < 0, len(columns), rows))
    arrays = []
    for field, column in zip(columns.schema, columns.columns, strict=True):
        value = None if field.name in null_fields else _blank(field.type)
        blank = pa.array([value], field.type)
        arrays.append(pa.concat_arrays([column, blank]).take(at))
    return pa.RecordBatch.from_arrays(arrays, schema=columns.schema)


def _blank(kind: pa.DataType) -> Any:  # noqa: ANN401 (one value of an Arrow type)
    if is_.is_boolean(kind):
        return False
    if is_.is_interval(kind):
        return None
    if is_.is_integer(kind) or is_.is_floating(kind) or is_.is_temporal(kind):
        return 0
    if is_.is_fixed_size_list(kind):
        return [_blank(kind.value_type)] * kind.list_size
    if is_.is_struct(kind):
        return {field.name: _blank(field.type) for field in kind}
    if is_.is_list(kind) or is_.is_large_list(kind):
        return []
    is_text = is_.is_string(kind) or is_.is_large_string(kind)
    is_bytes = is_.is_binary(kind) or is_.is_large_binary(kind)
    return "" if is_text else b"" if is_bytes else None


def blank_like(value: Any) -> Any:  # noqa: ANN401 (a value of a record)
    """Return a value of the same shape in which all is 0, empty, or None.

    >>> blank_like({"n": np.int64(3), "name": "a", "pairs": [(1.5, True)]})
    {'n': np.int64(0), 'name': '', 'pairs': [(0.0, False)]}
    """
    if isinstance(value, Mapping):
        return {name: blank_like(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return getattr(value, "_make", type(value))(map(blank_like, value))  # Of a named tuple.
    if isinstance(value, np.ndarray):
        return np.zeros_like(value)
    if hasattr(value, "new_zeros"):  # A tensor.
        return value.new_zeros(value.shape)
    return type(value)() if isinstance(value, int | float | str | bytes | np.generic) else None
