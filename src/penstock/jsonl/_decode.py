"""Pieces of text into records, bad lines set apart."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.decode import decode_as_json, decode_fast

if TYPE_CHECKING:
    from penstock.jsonl._text import TextPiece

_LINES_A_RUN = 1024
_REFUSED_A_RUN = 64
"""A run ends after so many lines, or so many that took a second look, so that an event loop can
pause between two runs."""

Record: TypeAlias = object
"""What one line holds: nearly always a dict."""


class DecodedRun(NamedTuple):
    """Records that stand next to each other."""

    items: list[Record]
    text_bytes: int


class MalformedLine(NamedTuple):
    """A line that is not JSON; the error policy handles it where records are handed out."""

    path: str
    number: int
    line: bytes
    reason: Exception


def decode_piece(piece: TextPiece) -> Iterator[DecodedRun | MalformedLine]:
    """Yield a piece's records in runs, and its bad lines at their places."""
    lines = piece.text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    piece.lines = len(lines)
    for first in range(0, len(lines), _LINES_A_RUN):
        records = yield from _decode_run(piece, lines[first : first + _LINES_A_RUN], first)
        if records or len(lines) > _LINES_A_RUN:
            yield DecodedRun(records, len(piece.text))


def _decode_run(
    piece: TextPiece, lines: list[bytes], first: int
) -> Generator[DecodedRun | MalformedLine, None, list[Record]]:
    """Yield records and bad lines up to the last bad one; return the records behind it."""
    numbers: Sequence[int] = range(first, first + len(lines))
    rest = iter(lines)
    records: list[Record] = []
    before = 0  # Lines consumed that are not among `records`.
    patience = _REFUSED_A_RUN
    while True:
        try:
            # The hot path: no Python between two records. When a line is refused, the records
            # before it are in the list, so its place is known, and `rest` stands behind it.
            records.extend(map(decode_fast, rest))
        except (ValueError, RecursionError):
            refused = before + len(records)
            patience -= 1
            line = lines[refused]
            if not line or line.isspace():
                # All blank lines of the run go at once: there may be nothing else.
                filled = list(map(bytes.strip, lines))
                numbers, lines = list(compress(numbers, filled)), list(compress(lines, filled))
                rest = iter(lines[refused:])
                continue
            try:
                records.append(decode_as_json(line))
            except ValueError as reason:
                if records:
                    yield DecodedRun(records, len(piece.text))
                yield MalformedLine(piece.path, piece.first_line + numbers[refused], line, reason)
                records = []
                before = refused + 1
        else:
            return records
        if patience <= 0:
            yield DecodedRun(records, len(piece.text))
            before += len(records)
            records = []
            patience = _REFUSED_A_RUN
