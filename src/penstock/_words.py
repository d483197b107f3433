"""Counts and lists of names in messages, and messages that are not repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging
    from collections.abc import Hashable, Sequence

_warned: set[Hashable] = set()


def counted(count: int, noun: str, verbs: tuple[str, str] | None = None) -> str:
    """Return a count with its noun, and the one of two verbs that goes with it.

    >>> counted(1, "file"), counted(12345, "record"), counted(1, "row", ("is", "are"))
    ('1 file', '12,345 records', '1 row is')
    """
    nouns = f"{count:,} {noun if count == 1 else plural(noun)}"
    return nouns if verbs is None else f"{nouns} {verbs[count != 1]}"


def plural(noun: str) -> str:
    """Return the plural of a noun.

    >>> plural("file"), plural("record batch")
    ('files', 'record batches')
    """
    return noun + ("es" if noun.endswith("ch") else "s")


def few(names: Sequence[str], most: int) -> str:
    """Return the first names of many, and how many more there are.

    >>> few(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def warn_once(log: logging.Logger, message: str, key: Hashable = None) -> None:
    """Log a warning, once a process for each `key`, or else for each message."""
    key = message if key is None else key
    if key not in _warned:
        _warned.add(key)
        log.warning("%s", message, stacklevel=2)
