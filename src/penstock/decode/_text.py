"""Quick questions about a whole text, asked before a decoder that does not ask them itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PIECE = 1 << 18
_NEWLINE, _RETURN, _OPEN, _CLOSE, _ZERO, _SPACE = b"\n\r{}0 "
_WHITE = b" \t\r\v\f"

# Python refuses to read an integer of more than 4,300 digits. Of a run that long every 256th byte
# is a digit, at least 16 times in a row.
_STRIDE = 256
_DIGITS = b"0123456789"
_DIGITS_TO_ZERO = bytes(_ZERO if byte in _DIGITS else 0 for byte in range(256))
_SAMPLED_RUN = b"0" * 16

_DIGITS_OF_WIDE = 16
"""Digits of 2**53, from where on integers may have no equal float."""
_MINUS_ZERO = re.compile(rb"-0\s*[,\]}]")
_WIDE_INTEGER = re.compile(rb"[:\[,\s]-?[1-9][0-9]{15,}\s*[,\]}]")


def is_utf8(text: bytes) -> bool:
    """Return whether the text is UTF-8; much faster than decoding it, without holding the GIL."""
    if text.isascii():
        return True
    import pyarrow as pa  # noqa: PLC0415 (opening an index needs none)

    type_, width = (pa.string(), np.int32) if len(text) < 1 << 31 else (pa.large_string(), np.int64)
    offsets = np.array([0, len(text)], width)
    whole = pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def may_hold_endless_number(text: bytes) -> bool:
    """Return True for any text with an integer that Python refuses for its length."""
    sampled = text[::_STRIDE].translate(_DIGITS_TO_ZERO)
    found = sampled.find(_SAMPLED_RUN)
    while found >= 0:
        # Of lists of long numbers, such as embeddings, nearly every byte is a digit, too.
        run = text[found * _STRIDE : (found + len(_SAMPLED_RUN) - 1) * _STRIDE]
        last_other = len(run.rstrip(_DIGITS))
        if not last_other:
            return True
        found = sampled.find(_SAMPLED_RUN, found + -(-last_other // _STRIDE))
    return False


def count_object_lines(text: bytes, ends: NDArray[np.int64] | None = None) -> int | None:
    """Return how many lines are not blank, or None unless each of them is `{` … `}`.

    A caller that knows where the newlines are saves half of the time.

    With a decoder that takes JSON values one after the other wherever they stand, as many values
    as lines then means one value a line: a value across lines would hold `}`, a newline and `{`
    in a row, which no JSON value does.
    """
    if not text:
        return 0
    bytes_ = np.frombuffer(text, np.uint8)
    if ends is None:
        # In pieces that leave the text in the processor's cache for the decoder that follows.
        pieces = [
            np.flatnonzero(bytes_[start : start + _PIECE] == _NEWLINE) + start
            for start in range(0, len(text), _PIECE)
        ]
        ends = np.concatenate(pieces)
        if not text.endswith(b"\n"):
            ends = np.append(ends, len(text))
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    if text.startswith(b"{"):
        # The common case, without a blank line or a carriage return.
        whole = (bytes_[starts] == _OPEN) & (bytes_[ends - 1] == _CLOSE)
        if whole.all():
            return len(whole)
    ends = ends - ((starts < ends) & (bytes_[ends - 1] == _RETURN))
    filled = starts < ends
    starts, ends = starts[filled], ends[filled]
    whole = (bytes_[starts] == _OPEN) & (bytes_[ends - 1] == _CLOSE)
    return len(whole) if whole.all() else None


def may_hold_wide_integer(text: bytes) -> bool:
    """Return True for any text with an integer of 16 or more digits."""
    digits = np.frombuffer(text, np.uint8) - _ZERO < len(_DIGITS)
    run = 1
    while run < _DIGITS_OF_WIDE:
        step = min(run, _DIGITS_OF_WIDE - run)
        digits = digits[:-step] & digits[step:]
        run += step
    return bool(digits.any()) and _WIDE_INTEGER.search(text) is not None


def may_hold_minus_zero(text: bytes) -> bool:
    """Return True for any text with the integer `-0`, to Python plain 0 and to Arrow -0.0."""
    return _MINUS_ZERO.search(text) is not None


def may_hold_foreign_numbers(text: bytes) -> bool:
    """Return True for any text with `Inf` or `-NaN`, which Arrow reads and Python does not."""
    # Four searches for plain bytes take a fraction of the time of one for a pattern.
    return b"-NaN" in text or text.count(b"Inf") > text.count(b"Infinity")


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
