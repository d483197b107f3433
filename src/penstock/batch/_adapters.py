"""Batches as other libraries know them: TorchRec, tensordict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._lazy import require
from penstock.batch._jagged import Jagged
from penstock.batch._parts import Categories, Masked, Padded
from penstock.errors import OptionError

if TYPE_CHECKING:
    from penstock.batch._batch import Batch


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
