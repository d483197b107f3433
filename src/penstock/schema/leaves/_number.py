"""Numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_

from penstock.schema._nodes import Leaf, check_bool
from penstock.schema._values import BadSlotError, SlotValues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


_NO_NUMBERS = (bytes, list, tuple, dict, np.datetime64, np.timedelta64)
"""What numpy takes for numbers, or measures item by item."""


class Number(Leaf):
    """A number: float32. NaN and infinities are null.

    Args:
        name: As for every leaf.
        raise_on_nan: True refuses NaN and infinities.
        jitter: For the model, as are all options that follow.
    """

    kind = "number"
    guess = pa.float64()
    raise_on_nan: bool

    def __init__(  # noqa: PLR0913 (options by name)
        self,
        name: str,
        *,
        raise_on_nan: bool = False,
        jitter: float = 0.0,
        n_bands: int = 8,
        offset: int = 4,
        alpha: float | None = None,
        objective: str = "mae",
        **shared: Any,
    ) -> None:
        check_bool(f"Number {name!r}", "raise_on_nan", raise_on_nan)
        own: dict[str, Any] = {
            "raise_on_nan": raise_on_nan,
            "jitter": jitter,
            "n_bands": n_bands,
            "offset": offset,
            "alpha": alpha,
        }
        super().__init__(name, **own, objective=objective, **shared)

    def wanted(self, found: pa.DataType) -> pa.DataType | None:
        if is_.is_integer(found) or is_.is_floating(found):
            return pa.float64()
        return found if is_.is_boolean(found) or is_.is_string(found) else None

    def from_values(self, values: Sequence[Any]) -> SlotValues:
        floats = np.array([*map(_number, range(len(values)), values)], np.float64)
        return self._of_floats(floats, lambda slot: values[slot] is not None and values[slot] != "")

    def from_arrow(self, values: pa.Array) -> SlotValues:
        if is_.is_string(values.type):
            return super().from_arrow(values)
        floats = values.cast(pa.uint8()) if is_.is_boolean(values.type) else values
        floats = floats.cast(pa.float64(), safe=False)
        return self._of_floats(
            floats.to_numpy(zero_copy_only=False), lambda slot: values[slot].is_valid
        )

    def _of_floats(
        self, values: NDArray[np.float64], is_given: Callable[[int], bool]
    ) -> SlotValues:
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        valued = np.isfinite(narrow)
        if self.raise_on_nan:
            for slot in np.flatnonzero(~valued).tolist():
                if is_given(slot):
                    raise BadSlotError(slot, f"{values[slot]} is no finite number (raise_on_nan)")
        narrow[~valued] = 0
        return SlotValues(valued, {"": narrow})

    def empty(self, shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        return {"": np.zeros(shape, np.float32)}


def _number(slot: int, value: Any) -> float:
    if value is None or (isinstance(value, str) and not value):  # As an empty field of CSV.
        return float("nan")
    try:
        is_plain = isinstance(value, int | float | str)
        if is_plain or (not isinstance(value, _NO_NUMBERS) and not np.ndim(value)):
            return float(value)
    except (TypeError, ValueError):
        pass
    except OverflowError:
        return float("nan")
    raise BadSlotError(slot, f"{value!r} is no number")
