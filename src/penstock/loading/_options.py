"""Options of a loader as a user gives them, checked."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from penstock.errors import OptionError
from penstock.order import Skips, whole_number

if TYPE_CHECKING:
    from penstock.order._skips import Skip

    Skipped: TypeAlias = Skip | str | os.PathLike[str] | None
    """Record numbers and (start, stop) ranges; or the path of a file with them."""

_LINE = re.compile(r"(\d+)(?:\s*:\s*(\d+))?")


def whole_or_none(name: str, value: int | None) -> int | None:
    """Return a whole number of at least 1, or None as it is."""
    return None if value is None else whole_number(name, value, 1)


def seconds(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    raise OptionError(f"{name}={value!r}: expected seconds above 0.")


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    # 1 == True, but it is not one of the choices.
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise OptionError(f"{name}={value!r}: expected {' or '.join(map(repr, choices))}.")


def read_skips(skip: Skipped, length: int) -> tuple[tuple[int, int], ...]:
    """Return sorted (start, stop) ranges below `length`.

    A file has a number or `start:stop` on each line; a `#` begins a comment.

    >>> read_skips([7, (2, 4), 3], 10)
    ((2, 4), (7, 8))
    """
    if skip is None:
        return ()
    entries = _of_file(Path(skip)) if isinstance(skip, str | os.PathLike) else skip
    return Skips(entries, length).ranges


def _of_file(path: Path) -> list[tuple[int, int]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise OptionError(f"skip={str(path)!r}: cannot read this file: {failure}.") from None
    pairs = []
    for number, line in enumerate(text.splitlines(), start=1):
        entry = line.partition("#")[0].strip()
        if found := _LINE.fullmatch(entry):
            pairs.append((int(found[1]), int(found[2] or int(found[1]) + 1)))
        elif entry:
            raise OptionError(
                f"skip: line {number} of {path} is {entry!r}; write a record number, or "
                "start:stop for a range."
            )
    return pairs
