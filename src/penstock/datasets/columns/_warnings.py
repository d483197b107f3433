"""Warnings that a process gives once."""

from __future__ import annotations

_warned: set[str] = set()


def is_news(about: object) -> bool:
    """Whether there was no warning about this yet; the caller gives it now.

    >>> is_news("a column"), is_news("a column")
    (True, False)
    >>> made_anew("a column")
    >>> is_news("a column")
    True
    """
    is_new = str(about) not in _warned
    _warned.add(str(about))
    return is_new


def made_anew(about: object) -> None:
    """Let what may be wrong with this be news again."""
    _warned.discard(str(about))
