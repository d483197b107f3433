"""Lines read once: the records among them, and the lines that are set aside."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from penstock.decode import blank_lines, decode_as_json, decode_fast
from penstock.index._parts import LongLine
from penstock.index.checked._checks import Aside
from penstock.index.profile._values import UNREADABLE
from penstock.jsonl import reason_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.index._parts import LinePiece
    from penstock.index.checked._checks import Look

_NEWLINE = 10
JSON_NAMES: dict[type, str] = {
    list: "an array",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


class LineCheck:
    """Finds the records among lines, and keeps the lines that are set aside.

    Without `validate` every line that is not blank is a record, as in a plain scan.
    """

    def __init__(self, look: Look) -> None:
        self._checks, self._profile, self._on_rows = look
        self.records = 0
        self.aside: list[Aside] = []

    def add(self, piece: LinePiece | LongLine) -> None:
        """Add the next lines."""
        if isinstance(piece, LongLine):
            self.aside.append(Aside(piece.newlines, piece.offset, piece.size, self._too_long()))
            return
        places, ends = _places(piece.text)
        lines = piece.text.split(b"\n")[: len(places)] if self._checks else []
        numbers = np.arange(len(places))
        blank = blank_lines(piece.text, places[:, 0], ends)
        if blank.any():
            lines = list(compress(lines, ~blank))
            places, numbers = places[~blank], numbers[~blank]
        reasons, values = self._read(lines, places[:, 1]) if self._checks else ({}, [])
        for number in sorted(reasons):
            offset, size = places[number].tolist()
            newlines = piece.newlines + int(numbers[number])
            self.aside.append(Aside(newlines, piece.offset + offset, size, reasons[number]))
        if reasons:
            is_record = np.ones(len(places), bool)
            is_record[list(reasons)] = False
            places = places[is_record]
        if len(places):
            places[:, 0] += piece.offset
            self._on_rows(places)
            self.records += len(places)
            if self._profile is not None:
                self._profile.add(values, self._profile.records)

    def _read(
        self, lines: list[bytes], sizes: NDArray[np.int64]
    ) -> tuple[dict[int, str], list[object]]:
        """Return the lines to set aside with their reasons, and the values of the others."""
        most = self._checks.max_line_bytes
        if most is None or not (is_long := sizes > most).any():
            return self._decoded(lines)
        long = np.flatnonzero(is_long).tolist()
        reasons = dict.fromkeys(long, self._too_long())
        numbers = np.flatnonzero(~is_long).tolist()
        others, values = self._decoded(list(compress(lines, ~is_long)))
        return reasons | {numbers[n]: reason for n, reason in others.items()}, values

    def _decoded(self, lines: list[bytes]) -> tuple[dict[int, str], list[object]]:
        reasons: dict[int, str] = {}
        values: list[object] = []
        rest = iter(lines)
        while True:
            try:
                # No Python between two lines. When a line fails, those before it are in the list,
                # so its number is known, and `rest` continues behind it.
                values.extend(map(decode_fast, rest))
                break
            except (ValueError, RecursionError):
                number = len(values) + len(reasons)
                try:
                    values.append(decode_as_json(lines[number]))
                except ValueError as why:
                    if self._checks.validate:
                        reasons[number] = reason_text(why)
                    else:
                        values.append(UNREADABLE)
        if self._checks.validate and not set(map(type, values)) <= {dict}:
            self._find_others(reasons, values, len(lines))
            values = [value for value in values if type(value) is dict]
        return reasons, values

    def _find_others(self, reasons: dict[int, str], values: list[object], lines: int) -> None:
        """Add the lines that are JSON but not objects."""
        numbers = [number for number in range(lines) if number not in reasons]
        for number, value in zip(numbers, values, strict=True):
            if type(value) is not dict:
                reasons[number] = f"{JSON_NAMES[type(value)]}, not an object"

    def _too_long(self) -> str:
        return f"longer than {self._checks.max_line_bytes:,} bytes"


def _places(text: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return offset and bytes of each line, int64[lines, 2], and where each ends."""
    stops = np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE) + 1
    ends = stops - 1
    if not text.endswith(b"\n"):
        stops, ends = np.append(stops, len(text)), np.append(ends, len(text))
    places = np.empty((len(stops), 2), np.int64)
    places[0, 0] = 0
    places[1:, 0] = stops[:-1]
    np.subtract(stops, places[:, 0], out=places[:, 1])
    return places, ends
