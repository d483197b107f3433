"""Numbers of records as a user gives them."""

from __future__ import annotations

import operator
from typing import Any

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
