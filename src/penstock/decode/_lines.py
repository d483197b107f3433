"""One line of JSON text into the value that Python's `json` gives for it."""

from __future__ import annotations

import json

import msgspec

# msgspec keeps integers of any size (orjson turns those beyond 64 bit into floats) and is as fast.
decode_fast = msgspec.json.Decoder().decode


def decode_line(line: bytes) -> object:
    """Return the value of one line; raise `ValueError` when Python's `json` refuses it too.

    >>> decode_line(b'{"n": 123456789012345678901234567890}')
    {'n': 123456789012345678901234567890}
    """
    try:
        return decode_fast(line)
    except (ValueError, RecursionError):
        return decode_as_json(line)


def decode_as_json(line: bytes) -> object:
    r"""Return what `json.loads` makes of a line that the fast decoder refused (NaN, `\ud800` …)."""
    try:
        # Decoded here, not by `json`: it would guess UTF-16 for a line that holds NUL bytes.
        return json.loads(line.decode("utf-8"))
    except RecursionError:
        message = "nested too deeply"
        raise ValueError(message) from None
