"""Arguments that count something."""

from __future__ import annotations

from penstock.errors import OptionError


def positive(name: str, value: int) -> int:
    """Return a whole number above 0, or say which argument is none.

    >>> positive("batch_size", 8)
    8
    """
    # numpy's integers count too; True does not, although Python has it equal to 1.
    if isinstance(value, bool) or not hasattr(value, "__index__") or value <= 0:
        message = f"{name}={value!r}: expected a whole number above 0."
        raise OptionError(message)
    return value.__index__()
