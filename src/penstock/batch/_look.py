"""A batch at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.batch._jagged import Jagged
from penstock.batch._parts import Categories, Masked, Padded

if TYPE_CHECKING:
    from penstock.batch._batch import Batch


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
