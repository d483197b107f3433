"""`Batch`: the input of a training step."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from penstock._lazy import require
from penstock.batch._moving import Movable

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterator, KeysView, ValuesView
    from typing import Self

    import numpy as np
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

    __slots__ = ("_fields", "ids", "valid")

    ids: torch.Tensor | None
    """The record number of each row, int64[B]; None for a batch made without."""
    valid: torch.Tensor | None
    """Which rows count, bool[B]; None when all do."""

    def __init__(
        self,
        fields: Mapping[str, Any],
        ids: torch.Tensor | NDArray[np.int64] | None = None,
        valid: torch.Tensor | NDArray[np.bool_] | None = None,
    ) -> None:
        """Make a batch of fields, record numbers and which rows count, as tensors or arrays."""
        self._fields = dict(fields)
        self.ids = _tensor(ids)
        self.valid = _tensor(valid)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._fields[name]
        except KeyError:
            there = ", ".join(map(repr, self._fields)) or "none"
            raise KeyError(
                f"there is no field {name!r} in this batch; there are: {there}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __contains__(self, name: object) -> bool:
        return name in self._fields

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
        return (*self._fields.values(), self.ids, self.valid)

    def _of(self, *parts: Any) -> Self:
        *values, ids, valid = parts
        # A copy, so that a subclass keeps its other attributes.
        other = copy(self)
        other._fields = dict(zip(self._fields, values, strict=True))
        other.ids, other.valid = ids, valid
        return other

    def as_torchrec(self) -> Any:
        """Return the `Jagged` fields as TorchRec's `KeyedJaggedTensor`, a key for each field."""
        from penstock.batch._conversions import as_torchrec  # noqa: PLC0415 (torchrec, when asked for)

        return as_torchrec(self)

    def as_tensordict(self) -> Any:
        """Return the fields as a `TensorDict` of as many rows.

        Lists are nested tensors; fields of several tensors are tensordicts of them, by name.
        Fields that are not `by_row` are data without rows, which does not move with the rest.
        """
        from penstock.batch._conversions import as_tensordict  # noqa: PLC0415 (tensordict, likewise)

        return as_tensordict(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Hand the fields to polars, pandas, pyarrow or duckdb; values are copied to the host.

        Those that are not `by_row` have no place in a table, and are left out.
        """
        from penstock.batch._conversions import record_batch  # noqa: PLC0415 (pyarrow)

        return record_batch(self).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        from penstock.batch._conversions import text_of  # noqa: PLC0415 (only when used)

        return text_of(self)


def _rows(value: Any) -> int | None:
    """Return how many rows there are in a field; None for one number."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return shape[0] if len(shape) else None
    return len(value) if hasattr(value, "__len__") else None


def _tensor(values: Any) -> torch.Tensor | None:
    if values is None or hasattr(values, "record_stream"):
        return values  # type: ignore[no-any-return] # a tensor, or nothing
    require("torch", extra="torch", purpose="a batch of tensors")
    from penstock.batch._tensors import tensor  # noqa: PLC0415 (torch)

    return tensor(values)
