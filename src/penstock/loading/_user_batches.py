"""Batches of a user's own code, with `ids` and `valid` added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock._lazy import require
from penstock.batch import Batch, Categories, Jagged, Masked, Padded, tensor
from penstock.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def user_batch(made: Any, ids: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> Any:  # noqa: ANN401
    """Return a `Batch` of a mapping; a `Batch`, of whatever class, as itself; others as they are.

    Arrays become tensors. All fields have a row for each record; a callable that needs other
    fields returns a `Batch`, which is not checked. Other objects have no place for `valid`, and
    are refused where some rows do not count.

    >>> user_batch({"n": np.array([5, 7])}, np.array([3, 1]), np.array([True, False]))
    Batch of 2 rows, 1 of them valid: n int64[2]
    >>> user_batch("anything", np.array([3, 1]), None)
    'anything'
    """
    if isinstance(made, Mapping):
        require("torch", extra="torch", purpose="a batch of tensors")
        return _completed(made if isinstance(made, Batch) else _batch(made, len(ids)), ids, valid)
    if getattr(made, "num_rows", len(ids)) != len(ids):
        raise OptionError(
            f"encode returned {made.num_rows:,} rows of Arrow, and there are {len(ids):,} records "
            "in this batch. Return a row for each of them."
        )
    if valid is None:
        return made
    raise OptionError(
        f"encode returned {type(made).__qualname__}, which has no place for `valid`, and "
        f"{int((~valid).sum()):,} of the {len(ids):,} rows of this batch do not count: they fill "
        "it up, or stand for records that were bad or skipped. Return a dict of tensors, or see "
        "to it that all rows count: drop_last=True, on_error='raise'."
    )


def _batch(made: Mapping[str, Any], rows: int) -> Batch:
    for name, value in made.items():
        own = _rows(value)
        if own not in (None, rows):
            raise OptionError(
                f"encode returned {own:,} rows for field {name!r}, and there are {rows:,} records "
                "in this batch. Return a row for each of them; to have other fields, too, return "
                "a penstock.Batch."
            )
    return Batch({name: _as_tensor(value) for name, value in made.items()})


def _rows(value: Any) -> int | None:  # noqa: ANN401 (anything)
    """Return how many rows there are in a value that has some."""
    if isinstance(value, Jagged | Masked | Padded | Categories):
        return len(value)
    shape = getattr(value, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else None


def _as_tensor(value: Any) -> Any:  # noqa: ANN401 (anything)
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
                f"encode returned a batch with {len(own):,} values in `{name}`, and there are "
                f"{len(ids):,} records in it. Leave it out, or have one for each."
            )
        if given is not None:
            added = tensor(given) if own is None else tensor(given).to(own.device)
            setattr(batch, name, added & own if name == "valid" and own is not None else added)
    return batch
