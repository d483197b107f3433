"""`Batch`: the input of a training step."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from penstock._lazy import require
from penstock._words import counted
from penstock.batch._parts import Categories, Jagged, Masked, Movable, Padded, tensor
from penstock.decode import json_texts
from penstock.errors import OptionError

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray


class Batch(Movable, Mapping[str, Any]):
    """Some records as tensors: a mapping from field to tensor, `Jagged` or what its type says.

    `len(batch)` is the number of rows. Batches do not change; a new one is made of a mapping:
    `Batch({**batch, "weight": weight}, ids=batch.ids, valid=batch.valid)`. A subclass keeps its
    other attributes, unchanged, when a batch is moved.

    >>> import torch
    >>> batch = Batch({"price": torch.tensor([0.5, 2.0])}, ids=torch.tensor([7, 3]))
    >>> batch
    Batch of 2 rows: price float32[2]
    >>> batch["price"], len(batch), list(batch)
    (tensor([0.5000, 2.0000]), 2, ['price'])
    """

    __slots__ = ("_fields", "bins", "ids", "valid")

    ids: torch.Tensor | None
    """The record number of each row, int64[B]; None for a batch made without."""
    valid: torch.Tensor | None
    """Which rows count, bool[B]; None when all do."""
    bins: torch.Tensor | None
    """Of a `PackingPlan`: the first row of each bin, and at last B, int64[bins + 1]; else None."""

    def __init__(
        self,
        fields: Mapping[str, Any],
        ids: torch.Tensor | NDArray[np.int64] | None = None,
        valid: torch.Tensor | NDArray[np.bool_] | None = None,
        bins: torch.Tensor | NDArray[np.int64] | None = None,
    ) -> None:
        """Make a batch of fields, record numbers and which rows count, as tensors or arrays."""
        self._fields = dict(fields)
        self.ids = _tensor(ids)
        self.valid = _tensor(valid)
        self.bins = _tensor(bins)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except KeyError:
            there = ", ".join(map(repr, self._fields)) or "none"
            text = f"there is no field {name!r} in this batch; there are: {there}"
            raise KeyError(text) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    # The dict's own views: those of `Mapping` would take the number of rows for their length.
    def keys(self) -> KeysView[str]:
        """Return the names of the fields."""
        return self._fields.keys()

    def values(self) -> ValuesView[Any]:
        """Return what the fields hold."""
        return self._fields.values()

    def items(self) -> ItemsView[str, Any]:
        """Return the names of the fields, each with what it holds."""
        return self._fields.items()

    def __len__(self) -> int:
        if self.ids is not None:
            return len(self.ids)
        return next((len(v) for v in self._fields.values() if hasattr(v, "__len__")), 0)

    @property
    def by_row(self) -> set[str]:
        """The fields that have a value for each row; others are of the batch as a whole.

        >>> Batch({"n": [5, 7], "cu_seqlens": [0, 3, 8], "max_seqlen": 5}).by_row
        {'n'}
        """
        rows = len(self)
        return {name for name, value in self._fields.items() if _rows(value) == rows}

    # Tensors compare by element, so two batches have no single answer to `==`.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def _parts(self) -> tuple[Any, ...]:
        return (*self._fields.values(), self.ids, self.valid, self.bins)

    def _of(self, *parts: Any) -> Self:
        *values, ids, valid, bins = parts
        # A copy, so that a subclass keeps its other attributes.
        other = copy(self)
        other._fields = dict(zip(self._fields, values, strict=True))
        other.ids, other.valid, other.bins = ids, valid, bins
        return other

    def as_torchrec(self) -> Any:
        """Return the `Jagged` fields as TorchRec's `KeyedJaggedTensor`, a key for each field."""
        torchrec = require("torchrec", extra="torchrec", purpose="Batch.as_torchrec")
        torch = require("torch", extra="torch", purpose="Batch.as_torchrec")
        fields = {name: value for name, value in self.items() if isinstance(value, Jagged)}
        if not fields:
            raise OptionError(
                "no field of this batch is jagged, as those of type list<int64> are: TorchRec's "
                f"tensor is made of such. There are: {', '.join(self) or 'none'}"
            )
        types = {}
        for name, value in fields.items():
            if isinstance(value.values, Jagged) or value.values.ndim != 1:
                raise OptionError(
                    f"field {name!r} holds lists of lists, and TorchRec has lists of numbers only: "
                    "leave it out, as in Batch({'tags': batch['tags']}).as_torchrec()"
                )
            types[name] = str(value.values.dtype).removeprefix("torch.")
        if len(set(types.values())) > 1:
            shown = ", ".join(f"{name} {kind}" for name, kind in types.items())
            raise OptionError(
                f"TorchRec has one type for the values of all fields, not {shown}: give the fields "
                "one type, or leave some out"
            )
        return torchrec.KeyedJaggedTensor(
            keys=list(fields),
            values=torch.cat([value.values for value in fields.values()]),
            lengths=torch.cat([value.lengths for value in fields.values()]),
        )

    def as_tensordict(self) -> Any:
        """Return the fields as a `TensorDict` of as many rows.

        Lists are nested tensors; fields of several tensors are tensordicts of them, by name.
        Fields that are not `by_row` are data without rows, which does not move with the rest.
        """
        tensordict = require("tensordict", extra="lightning", purpose="Batch.as_tensordict")
        rows, by_row = [len(self)], self.by_row

        def entry(value: Any) -> Any:
            if isinstance(value, Jagged):
                return value.to_nested()
            if isinstance(value, Masked | Padded):
                parts = zip(value.__slots__, value, strict=True)
                return tensordict.TensorDict(dict(parts), rows)
            if isinstance(value, Categories):
                return value.codes
            if hasattr(value, "tensors"):
                return tensordict.TensorDict(value.tensors(), rows)
            if isinstance(value, list) and value:
                return tensordict.NonTensorStack(*value)
            # A stack has at least one.
            return tensordict.NonTensorData([], [0]) if isinstance(value, list) else value

        entries = {
            name: entry(value) if name in by_row else tensordict.NonTensorData(value, rows)
            for name, value in self.items()
        }
        return tensordict.TensorDict(entries, batch_size=rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand the fields to polars, pandas, pyarrow or duckdb; values are copied to the host.

        Lists are lists, and a missing value is null. Fields that are not `by_row` have no place in
        a table, and are left out.
        """
        by_row = self.by_row
        columns = {name: _column(value) for name, value in self.items() if name in by_row}
        table = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        return table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        rows = counted(len(self), "row")
        if self.valid is not None:
            rows += f", {int(self.valid.sum()):,} of them valid"
        fields = ", ".join(f"{name} {_kind(value)}" for name, value in self.items())
        return f"Batch of {rows}: {fields}" if fields else f"Batch of {rows}, no fields"


def user_batch(made: Any, ids: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> Any:
    """Return a `Batch` of a mapping; a `Batch`, of whatever class, as itself; others as they are.

    Arrays become tensors. All fields have a row for each record; a callable that needs other
    fields returns a `Batch`, which is not checked. Other objects have no place for `valid`, and
    are refused where some rows do not count.
    """
    if isinstance(made, Mapping):
        batch = made if isinstance(made, Batch) else _of_mapping(made, len(ids))
        return _completed(batch, ids, valid)
    if getattr(made, "num_rows", len(ids)) != len(ids):
        raise OptionError(
            f"encode returned {counted(made.num_rows, 'row')} of Arrow, and the batch has "
            f"{counted(len(ids), 'record')}. Return a row for each of them."
        )
    if valid is None:
        return made
    raise OptionError(
        f"encode returned {type(made).__qualname__}, which has no place for `valid`, and "
        f"of {counted(len(ids), 'row')} in this batch {int((~valid).sum()):,} do not count: they "
        "fill it up, or stand for records that were bad or skipped. Return a dict of tensors, or "
        "see to it that all rows count: drop_last=True, on_error='raise'."
    )


def _of_mapping(made: Mapping[str, Any], rows: int) -> Batch:
    for name, value in made.items():
        is_part = isinstance(value, Jagged | Masked | Padded | Categories)
        if (is_part or hasattr(value, "shape")) and (own := _rows(value)) not in (None, rows):
            raise OptionError(
                f"encode returned {counted(own or 0, 'row')} for field {name!r}, and the batch has "
                f"{counted(rows, 'record')}. Return a row for each of them; to have other fields, "
                "too, return a penstock.Batch."
            )
    return Batch({name: _as_tensor(value) for name, value in made.items()})


def _as_tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
        return value
    try:
        # In the byte order of this machine; no copy where it is that already.
        return tensor(value.astype(value.dtype.newbyteorder("="), copy=False))
    except TypeError:
        return value  # Torch has no tensor of this type, such as 16-byte floats.


def _completed(batch: Batch, ids: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> Batch:
    """Add record numbers to a batch, and combine its `valid` with the loader's."""
    for name, own, given in (("ids", batch.ids, ids), ("valid", batch.valid, valid)):
        if own is not None and len(own) != len(ids):
            raise OptionError(
                f"encode returned a batch with {counted(len(own), 'value')} in `{name}`, and it "
                f"has {counted(len(ids), 'record')}. Leave it out, or have one for each."
            )
        if given is not None:
            added = tensor(given) if own is None else tensor(given).to(own.device)
            setattr(batch, name, added & own if name == "valid" and own is not None else added)
    return batch


def _rows(value: Any) -> int | None:
    """Return how many rows there are in a field; None for one number."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return shape[0] if len(shape) else None
    return len(value) if hasattr(value, "__len__") else None


def _tensor(values: Any) -> torch.Tensor | None:
    is_made = values is None or hasattr(values, "record_stream")
    return values if is_made else tensor(values)


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
    if hasattr(value, "detach"):
        return _dense(_numpy(value))
    value = value.tensors() if hasattr(value, "tensors") else value
    if isinstance(value, dict):
        filled = {name: part for name, part in value.items() if part != {}}
        return pa.StructArray.from_arrays([*map(_column, filled.values())], [*filled])
    try:
        return pa.array(value)
    except (pa.ArrowException, OverflowError):  # Objects of `json` that no Arrow type holds.
        return json_texts(value)


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
