"""Lines of JSON text as the values that Python's `json` gives, and the lines that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import compress
from operator import itemgetter
from typing import NamedTuple

import msgspec

OnBad = Callable[[int, bytes, Exception], None]
"""Called for each line that cannot be read: its index in the text (from 0, blank lines counted),
its bytes without the newline, and why. It raises, or returns and the line is left out."""

Record = dict[str, object]

JSON_NAMES: dict[type, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
}
"""What a value of a type is called, where an object is expected."""

HOLDS_ALL = (
    "Give the field a type that holds all its values: text holds every string, number and boolean, "
    "list<text> lists of them, json every value that JSON has."
)
"""What to do about a value that does not fit, where field types are given."""

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
        raise ValueError("nested too deeply") from None


class ParsedRecords(NamedTuple):
    """The objects of a text, where each came from, and what had to be set aside."""

    rows: list[Record]
    lines: list[tuple[int, bytes]]  # of each row: index in the text, bytes without newline
    bad: list[tuple[int, bytes, Exception]]  # of each line: the same, and why it is none
    plain: bool  # every line is as RFC 8259 has it: finite numbers, no lone surrogates

    def without(self, misfits: dict[int, Exception]) -> ParsedRecords:
        """Return the records with some rows (by row number) moved to the bad lines."""
        kept = [row for row in range(len(self.rows)) if row not in misfits]
        return ParsedRecords(
            [self.rows[row] for row in kept],
            [self.lines[row] for row in kept],
            self.bad + [(*self.lines[row], why) for row, why in misfits.items()],
            self.plain,
        )

    def report(self, on_bad: OnBad) -> None:
        """Report every bad line to `on_bad`, in the order of the text."""
        for bad in sorted(self.bad, key=itemgetter(0)):
            on_bad(*bad)


def read_records(text: bytes) -> ParsedRecords:
    """Return the object of every line that is not blank, as `decode_line` reads it."""
    every = text.split(b"\n")
    lines = list(compress(enumerate(every), map(bytes.strip, every)))
    try:
        values = [decode_fast(line) for _, line in lines]
    except (ValueError, RecursionError):
        pass
    else:
        if all(type(value) is dict for value in values):
            return ParsedRecords(values, lines, [], plain=True)
    return _read_each(lines)


def _read_each(lines: list[tuple[int, bytes]]) -> ParsedRecords:
    records = ParsedRecords([], [], [], plain=False)
    for index, line in lines:
        try:
            value = decode_line(line)
        except ValueError as why:
            records.bad.append((index, line, why))
            continue
        if isinstance(value, dict):
            records.rows.append(value)
            records.lines.append((index, line))
        else:
            reason = f"a record is a JSON object, and this line is {JSON_NAMES[type(value)]}"
            records.bad.append((index, line, ValueError(reason)))
    return records
