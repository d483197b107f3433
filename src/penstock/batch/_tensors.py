"""Plain arrays into tensors, without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from penstock.batch._jagged import Jagged
from penstock.batch._parts import Categories, Masked, Padded
from penstock.datasets import Category, Dense, ListOf, Number, Optional, UpTo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.datasets import FieldType


def tensor(array: NDArray[Any]) -> torch.Tensor:
    """Return a tensor over the memory of an array; over a copy if that is read-only."""
    flags = array.flags
    # `np.require` does the same in ten times the time.
    if not (flags.c_contiguous and flags.writeable):
        array = np.array(array, order="C")
    return torch.from_numpy(array)


def decorated(type_: FieldType, arrays: Any, vocabulary: Sequence[Any]) -> Any:
    """Return the value of a batch for the arrays that `_arrays.encoded` made of a column."""
    match type_:
        case Number() | Dense():
            return tensor(arrays)
        case Category():
            return Categories(tensor(arrays), vocabulary)
        case Optional():
            return Masked(*map(tensor, arrays))
        case UpTo():
            return Padded(*map(tensor, arrays))
        case ListOf() if isinstance(arrays, tuple):
            values, offsets = arrays
            return Jagged(decorated(type_.item, values, ()), offsets=tensor(offsets))
    return arrays
