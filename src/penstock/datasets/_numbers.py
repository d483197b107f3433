"""Numbers of records as a user gives them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from penstock.errors import RecordIndexError


def record_number(which: Any, length: int) -> int:
    """Return the number, from 0 on, of one of so many records; an unknown one raises."""
    try:
        if isinstance(which, bool):
            raise TypeError  # noqa: TRY301 (True is 1 to Python, and a mistake here)
        number = operator.index(which)
    except TypeError:
        raise TypeError(
            f"records are numbered: expected an integer, a slice or a list of integers, "
            f"not {type(which).__name__}"
        ) from None
    if not -length <= number < length:
        raise RecordIndexError(f"there is no record {which}: there are {length:,}.")
    return number % length


def record_numbers(ids: Any, length: int) -> np.ndarray:
    """Return the numbers, from 0 on as int64, of some of so many records; an unknown one raises."""
    if isinstance(ids, slice):
        return np.arange(*ids.indices(length), dtype=np.int64)
    # The array of a loader: the checks below cost a fifth of gathering a batch. Without a sign
    # a negative number is a large one.
    is_plain = type(ids) is np.ndarray and ids.dtype == np.int64 and ids.ndim == 1 and ids.size
    if is_plain and ids.view(np.uint64).max() < length:
        found: np.ndarray = ids
        return found
    numbers = np.asarray(ids)
    if not numbers.size:
        return np.empty(0, np.int64)
    if numbers.dtype == bool or not np.issubdtype(numbers.dtype, np.integer):
        raise TypeError(f"records are numbered by integers, not {numbers.dtype}")
    if numbers.ndim != 1:
        shown = "one number" if not numbers.ndim else f"{numbers.ndim} axes"
        raise TypeError(f"expected a flat list of record numbers, not {shown}")
    bad = numbers[(numbers < -length) | (numbers >= length)]
    if bad.size:
        raise RecordIndexError(f"there is no record {bad[0]}: there are {length:,}.")
    numbers = numbers.astype(np.int64, copy=False)
    return np.where(numbers < 0, numbers + length, numbers)
