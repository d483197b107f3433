"""Pieces of text into records, bad lines set apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.decode import decode_as_json, decode_fast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jsonl._text import Piece

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
    while True:
        try:
            # The hot path: no Python between two records. When a line is refused, the records
            # before it are in the list, so its place is known, and `rest` stands behind it.
            records.extend(map(decode_fast, rest))
            break
        except (ValueError, RecursionError):
            refused = before + len(records)
        line = lines[refused]
        if not line or line.isspace():
            before += 1
            continue
        try:
            records.append(decode_as_json(line))
        except ValueError as reason:
            if records:
                yield Records(records, len(piece.text))
            yield BadLine(piece.path, piece.first_line + refused, line, reason)
            records = []
            before = refused + 1
    if records:
        yield Records(records, len(piece.text))
