"""Vectors of a fixed length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from penstock.schema._nodes import Leaf, check_count
from penstock.schema._values import BadSlotError, SlotValues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_LARGEST = float(np.finfo(np.float32).max)


class Vector(Leaf):
    """A list of `n_dim` numbers: float32[n_dim]. NaN, infinities and null are none.

    Args:
        name: As for every leaf.
        n_dim: Numbers of a vector.
        objective: For the model.
    """

    kind = "vector"
    takes_lists = True
    guess = pa.list_(pa.float64())
    n_dim: int

    def __init__(
        self,
        name: str,
        *,
        n_dim: int,
        objective: str = "l2",
        **shared: Any,
    ) -> None:
        check_count(f"Vector {name!r}", "n_dim", n_dim)
        super().__init__(name, n_dim=n_dim, objective=objective, **shared)

    def wanted(self, found: pa.DataType) -> pa.DataType | None:
        is_list = is_.is_list(found) or is_.is_large_list(found) or is_.is_fixed_size_list(found)
        is_number = is_list and (
            is_.is_integer(found.value_type) or is_.is_floating(found.value_type)
        )
        return pa.list_(pa.float64()) if is_number else None

    def from_values(self, values: Sequence[Any]) -> SlotValues:
        content = np.zeros((len(values), self.n_dim), np.float32)
        valued = np.zeros(len(values), np.bool_)
        for slot, value in enumerate(values):
            if value is None:
                continue
            try:
                vector = np.asarray(0 if isinstance(value, str) else value, np.float64)
            except (TypeError, ValueError, OverflowError):
                vector = np.zeros(())
            # None and numbers beyond float32 are not finite either.
            if vector.shape != (self.n_dim,) or not (abs(vector) <= _LARGEST).all():
                why = f"{_shown(value)} is no vector of {self.n_dim} numbers"
                raise BadSlotError(slot, why)
            content[slot], valued[slot] = vector, True
        return SlotValues(valued, {"": content})

    def from_arrow(self, values: pa.Array) -> SlotValues:
        lists = values.cast(pa.list_(pa.float64()))
        lengths = pc.list_value_length(lists)
        numbers = lists.flatten()
        wide = numbers.to_numpy(zero_copy_only=False)
        is_whole = not pc.any(pc.not_equal(lengths, self.n_dim)).as_py()
        if not is_whole or not (abs(wide) <= _LARGEST).all():
            return super().from_arrow(values)  # Which names the slot.
        valued = lists.is_valid().to_numpy(zero_copy_only=False)
        content = np.zeros((len(values), self.n_dim), np.float32)
        content[valued] = wide.reshape(-1, self.n_dim)
        return SlotValues(valued, {"": content})

    def empty(self, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        return {"": np.zeros((*shape, self.n_dim), np.float32)}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}…"  # noqa: PLR2004 (a glance)
