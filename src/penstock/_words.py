"""Counts and lists of names in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def counted(count: int, noun: str, verbs: tuple[str, str] | None = None) -> str:
    """Return a count with its noun, and the one of two verbs that goes with it.

    >>> counted(1, "file"), counted(12345, "record"), counted(1, "row", ("is", "are"))
    ('1 file', '12,345 records', '1 row is')
    """
    nouns = f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
    return nouns if verbs is None else f"{nouns} {verbs[count != 1]}"


def few(names: Sequence[str], most: int) -> str:
    """Return the first names of many, and how many more there are.

    >>> few(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
