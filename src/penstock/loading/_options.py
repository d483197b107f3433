"""Checks of a loader's options."""

from __future__ import annotations

from penstock.errors import OptionError
from penstock.order import whole_number


def whole_or_none(name: str, value: int | None) -> int | None:
    """Return a whole number of at least 1, or None as it is."""
    return None if value is None else whole_number(name, value, 1)


def seconds(name: str, value: object) -> float:
    """Return a number of seconds above 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    raise OptionError(f"{name}={value!r}: expected seconds above 0.")


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise for what is none of the choices."""
    # 1 == True, but it is not one of the choices.
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise OptionError(f"{name}={value!r}: expected {' or '.join(map(repr, choices))}.")
