"""Counting records without parsing them."""

from __future__ import annotations

import numpy as np

from penstock.decode import blank_lines

_NEWLINE = ord("\n")


def count_records(text: bytes) -> int:
    r"""Return how many lines of a text are not blank.

    >>> count_records(b'{"a": 1}\n\n  \r\n{"a": 2}')
    2
    """
    bytes_ = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(bytes_ == _NEWLINE)
    if text and not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    if not len(ends):
        return 0
    starts = np.concatenate((np.zeros(1, ends.dtype), ends[:-1] + 1))
    return len(ends) - int(np.count_nonzero(blank_lines(text, starts, ends)))
