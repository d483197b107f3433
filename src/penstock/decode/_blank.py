"""Which lines of a text are blank, however many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NEWLINE, _SPACE = b"\n "
_WHITE = b" \t\r\v\f"


def blank_lines(
    text: bytes | memoryview, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    r"""Return which of the lines that lie one behind the other hold nothing but white space.

    A line ends where its newline stands, or with the text.

    >>> blank_lines(b"one\n\n \t\n two", np.array([0, 4, 5, 8]), np.array([3, 4, 7, 12])).tolist()
    [False, True, True, False]
    """
    blank: NDArray[np.bool_] = starts == ends
    # White space and what else lies below it; where no line begins so, nothing more is looked at.
    begin = np.frombuffer(text, np.uint8).take(starts, mode="clip") if len(text) else starts
    doubtful = np.flatnonzero((begin <= _SPACE) & ~blank)
    if len(doubtful):
        first, last = int(doubtful[0]), int(doubtful[-1])
        part = bytes(text[int(starts[first]) : int(ends[last])]).translate(None, _WHITE) + b"\n"
        stops = np.flatnonzero(np.frombuffer(part, np.uint8) == _NEWLINE)
        blank[first : last + 1] = np.diff(stops, prepend=-1) == 1
    return blank
