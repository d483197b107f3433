"""A batch as others see it: text, Arrow, TorchRec, tensordict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock._lazy import require
from penstock.batch._jagged import Jagged
from penstock.batch._parts import Categories, Masked, Padded
from penstock.errors import OptionError

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


def text_of(batch: Batch) -> str:
    """Return a line that says how many rows and which fields there are.

    >>> import torch
    >>> from penstock.batch import Batch
    >>> tags = Jagged(torch.tensor([1, 2]), lengths=torch.tensor([0, 2]))
    >>> text_of(Batch({"tags": tags, "name": ["a", "b"]}, valid=torch.tensor([True, False])))
    'Batch of 2 rows, 1 of them valid: tags Jagged int64, name list'
    """
    rows = f"{len(batch):,} row" + ("" if len(batch) == 1 else "s")
    if batch.valid is not None:
        rows += f", {int(batch.valid.sum()):,} of them valid"
    fields = ", ".join(f"{name} {_kind(value)}" for name, value in batch.items())
    return f"Batch of {rows}: {fields}" if fields else f"Batch of {rows}, no fields"


def _kind(value: Any) -> str:
    if isinstance(value, Jagged):
        return f"Jagged {_kind(value.values).partition('[')[0]}"
    if isinstance(value, Masked | Padded):
        return f"{type(value).__name__} {_kind(value.values)}"
    if isinstance(value, Categories):
        return f"Categories of {len(value.vocabulary):,}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        sizes = ", ".join(map(str, value.shape))
        device = "" if str(getattr(value, "device", "cpu")) == "cpu" else f" on {value.device}"
        return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]{device}"
    return type(value).__name__


def as_torchrec(batch: Batch) -> Any:
    """Return the `Jagged` fields as one `KeyedJaggedTensor`."""
    torchrec = require("torchrec", extra="torchrec", purpose="Batch.as_torchrec")
    torch = require("torch", extra="torch", purpose="Batch.as_torchrec")
    fields = {name: value for name, value in batch.items() if isinstance(value, Jagged)}
    if not fields:
        raise OptionError(
            f"no field of this batch is jagged, and TorchRec's tensor is made of such: ask for "
            f"list<int64>. There are: {', '.join(batch) or 'none'}"
        )
    types = {}
    for name, value in fields.items():
        if isinstance(value.values, Jagged) or value.values.ndim != 1:
            raise OptionError(
                f"field {name!r} holds lists of lists, and TorchRec has lists of numbers only: "
                f"leave it out, as in Batch({{'tags': batch['tags']}}).as_torchrec()"
            )
        types[name] = value.values.dtype
    if len(set(types.values())) > 1:
        shown = ", ".join(f"{name} {str(kind)[6:]}" for name, kind in types.items())
        raise OptionError(
            f"TorchRec has one type for the values of all fields, and here are {shown}: give the "
            f"fields one type, or leave some out"
        )
    return torchrec.KeyedJaggedTensor(
        keys=list(fields),
        values=torch.cat([value.values for value in fields.values()]),
        lengths=torch.cat([value.lengths for value in fields.values()]),
    )


def as_tensordict(batch: Batch) -> Any:
    """Return the fields as a `TensorDict`."""
    tensordict = require("tensordict", extra="lightning", purpose="Batch.as_tensordict")
    rows = [len(batch)]
    by_row = batch.by_row

    def entry(value: Any) -> Any:
        if isinstance(value, Jagged):
            return value.to_nested()
        if isinstance(value, Masked):
            return tensordict.TensorDict({"values": value.values, "mask": value.mask}, rows)
        if isinstance(value, Padded):
            return tensordict.TensorDict({"values": value.values, "lengths": value.lengths}, rows)
        if isinstance(value, Categories):
            return value.codes
        if isinstance(value, list):
            # A stack has at least one.
            return tensordict.NonTensorStack(*value) if value else tensordict.NonTensorData([], [0])
        return value

    entries = {
        name: entry(value) if name in by_row else tensordict.NonTensorData(value, rows)
        for name, value in batch.items()
    }
    return tensordict.TensorDict(entries, batch_size=rows)
