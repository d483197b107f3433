"""A batch as Arrow columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.batch._jagged import Jagged
from penstock.batch._parts import Categories, Masked, Padded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.batch._batch import Batch


def record_batch(batch: Batch) -> pa.RecordBatch:
    """Return one column for each field that is by row: lists for lists, null for no value.

    >>> import torch
    >>> from penstock.batch import Batch
    >>> tags = Jagged(torch.tensor([1, 2]), lengths=torch.tensor([0, 2]))
    >>> record_batch(Batch({"tags": tags, "x": torch.tensor([0.5, 1.5])})).to_pydict()
    {'tags': [[], [1, 2]], 'x': [0.5, 1.5]}
    """
    by_row = batch.by_row
    columns = {name: _column(value) for name, value in batch.items() if name in by_row}
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _column(value: Any) -> pa.Array:
    if isinstance(value, Jagged):
        return pa.LargeListArray.from_arrays(_numpy(value.offsets), _column(value.values))
    if isinstance(value, Masked):
        return _dense(_numpy(value.values), _numpy(value.mask))
    if isinstance(value, Padded):
        return _column(Jagged.from_padded(value.values, value.lengths))
    if isinstance(value, Categories):
        codes = _numpy(value.codes)
        return pa.DictionaryArray.from_arrays(
            pa.array(codes, mask=codes < 0), pa.array(value.vocabulary)
        )
    return _dense(_numpy(value)) if hasattr(value, "detach") else pa.array(value)


def _dense(values: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> pa.Array:
    nulls = None if mask is None else ~mask
    if values.ndim == 1:
        return pa.array(values, mask=nulls)
    array = pa.array(values.reshape(-1))
    for size in values.shape[:0:-1]:
        array = pa.FixedSizeListArray.from_arrays(array, size)
    if nulls is None:
        return array
    return pa.FixedSizeListArray.from_arrays(array.values, values.shape[1], mask=pa.array(nulls))


def _numpy(tensor: Any) -> NDArray[Any]:
    host = tensor.detach().cpu()
    # NumPy has no bfloat16.
    array: NDArray[Any] = (host.float() if str(host.dtype) == "torch.bfloat16" else host).numpy()
    return array
