"""The bad rows of a batch, where reading the whole batch only says that there are some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from penstock.errors import MalformedLineError, SchemaMismatchError

Errors = tuple[type[Exception], ...]
OF_A_RECORD = (MalformedLineError, SchemaMismatchError)
"""Errors of single records; every other error is one of all that are read together."""


class RowRange(NamedTuple):
    """Rows that were read together, or one row that cannot be read."""

    start: int
    stop: int
    value: Any
    """The result of reading good rows."""
    why: Exception | None
    """The error of a bad row; None for good rows."""


def read_around_bad(
    length: int, read: Callable[[int, int], object], errors: Errors, *, has_bad: bool = False
) -> Iterator[RowRange]:
    """Yield ranges that cover `length` rows in order: good ones, and each bad row by itself.

    `read(start, stop)` reads some rows and raises one of `errors` if one of them is bad. With
    `has_bad` the caller has tried all rows together before.

    A range that fails is halved; behind a bad row ranges grow again from one row by doubling. So
    each good row is in one successful call, a bad row among n costs about 2 log n calls, and n bad
    rows cost n + log n.

    >>> read = lambda start, stop: [6 // n for n in (3, 0, 2, 1)[start:stop]]
    >>> for found in read_around_bad(4, read, (ZeroDivisionError,)):
    ...     print(found.start, found.value or found.why)
    0 [2]
    1 integer division or modulo by zero
    2 [3]
    3 [6]
    """
    start, size, bad_before = 0, length, length if has_bad else 0
    while start < length:
        if start < bad_before:
            size = max(1, (bad_before - start) // 2)
        stop = min(start + size, length)
        try:
            value = read(start, stop)
        except errors as why:
            bad_before = stop
            if stop - start > 1:
                continue
            yield RowRange(start, stop, None, why)
            start, size = stop, 1
        else:
            yield RowRange(start, stop, value, None)
            start, size = stop, 2 * size


def bad_rows(
    length: int, read: Callable[[int, int], object], errors: Errors, *, has_bad: bool = False
) -> Iterator[tuple[int, Any]]:
    """Yield the number of each bad row, ascending, with its error; see `read_around_bad`."""
    for found in read_around_bad(length, read, errors, has_bad=has_bad):
        if found.why is not None:
            yield found.start, found.why
