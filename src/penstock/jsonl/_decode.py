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
    done = 0
    while done < len(lines):
        records: list[Record] = []
        try:
            # The hot path: no Python between two records. When a line is refused, the records
            # before it are in the list, so its place is known.
            records.extend(map(decode_fast, lines[done:] if done else lines))
        except (ValueError, RecursionError):
            refused = done + len(records)
            try:
                if not lines[refused].isspace() and lines[refused]:
                    records.append(decode_as_json(lines[refused]))
            except ValueError as reason:
                if records:
                    yield Records(records, len(piece.text))
                yield BadLine(piece.path, piece.first_line + refused, lines[refused], reason)
                records = []
            done = refused + 1
        else:
            done = len(lines)
        if records:
            yield Records(records, len(piece.text))
