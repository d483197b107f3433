"""Pieces of text into records, bad lines set apart."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.decode import decode_as_json, decode_fast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jsonl._text import Piece

_LINES_A_RUN = 1024
_REFUSED_A_RUN = 64
"""A run ends after so many lines, or so many that took a second look: whoever must not be held
for long pauses between two runs."""

Record: TypeAlias = object
"""What one line holds: nearly always a dict."""


class Records(NamedTuple):
    """Records that stand next to each other."""

    items: list[Record]
    text_bytes: int


class BadLine(NamedTuple):
    """A line that is not JSON; what becomes of it is decided where records are handed out."""

    path: str
    number: int
    line: bytes
    reason: Exception


def decode_piece(piece: Piece) -> Iterator[Records | BadLine]:
    """Yield a piece's records in runs, and its bad lines at their places."""
    lines = piece.text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    piece.lines = len(lines)
    rest = iter(lines)
    records: list[Record] = []
    before = 0  # Lines consumed that are not among `records`.
    patience = _REFUSED_A_RUN
    while True:
        try:
            # The hot path: no Python between two records. When a line is refused, the records
            # before it are in the list, so its place is known, and `rest` stands behind it.
            records.extend(map(decode_fast, islice(rest, _LINES_A_RUN)))
            if before + len(records) == len(lines):
                break
            patience = 0
        except (ValueError, RecursionError):
            refused = before + len(records)
            patience -= 1
            line = lines[refused]
            if not line or line.isspace():
                before += 1
            else:
                try:
                    records.append(decode_as_json(line))
                except ValueError as reason:
                    if records:
                        yield Records(records, len(piece.text))
                    yield BadLine(piece.path, piece.first_line + refused, line, reason)
                    records = []
                    before = refused + 1
        if patience <= 0:
            yield Records(records, len(piece.text))
            before += len(records)
            records = []
            patience = _REFUSED_A_RUN
    if records:
        yield Records(records, len(piece.text))
