"""Whole numbers that a user gave."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from penstock.errors import OptionError


def whole_number(name: str, value: SupportsIndex, least: int) -> int:
    """Return a number that was given by this name, or say what is wrong with it."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < least:
        raise OptionError(f"{name}={value!r}: expected a whole number, {least} or more.")
    return number
