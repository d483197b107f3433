"""Text, lines and records of JSON Lines files, with their places."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from penstock.decode import decode_fast, decode_line
from penstock.jsonl import read_pieces, reason_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.jsonl import JsonlFile

_log = logging.getLogger("penstock.cli")
_TEXT_BYTES = 64 << 10
_SHOWN_BYTES = 60
_WARNED = 10


class LineText(NamedTuple):
    """Some whole lines of a file."""

    path: str
    """As the user named the file."""
    first_line: int
    """Lines count from 1, blank ones too."""
    text: bytes


class Line(NamedTuple):
    """A line that is not blank."""

    path: str
    number: int
    text: bytes
    """Without the newline."""
    value: object
    problem: Exception | None = None
    """Why it is not JSON."""


def texts_of(file: JsonlFile, advance: Callable[[int], object]) -> Iterator[LineText]:
    """Yield a file's text in pieces; `advance` gets the bytes that were read, in this thread."""
    read = shown = 0

    def count(size: int) -> None:
        nonlocal read
        read += size  # In the thread that reads.

    pieces = read_pieces([file.source()], _TEXT_BYTES, count)
    with closing(pieces):  # type: ignore[type-var]
        for piece in pieces:
            yield LineText(file.path, piece.first_line, piece.text)
            more = read - shown
            shown += more
            advance(more)


def read_fast(text: LineText) -> list[object] | None:
    """Return the values of all lines, or None where a line is blank, bad or unusual."""
    try:
        return list(map(decode_fast, text.text.removesuffix(b"\n").split(b"\n")))
    except (ValueError, RecursionError):
        return None


def read_lines(text: LineText) -> Iterator[Line]:
    """Yield the lines, decoded as `iter_records` does it: slower than `read_fast`."""
    for number, line in enumerate(text.text.split(b"\n"), text.first_line):
        if line and not line.isspace():
            try:
                yield Line(text.path, number, line, decode_line(line))
            except ValueError as problem:
                yield Line(text.path, number, line, None, problem)


def describe(bad: Line) -> str:
    """Return the place of a bad line, the reason, and its beginning."""
    reason = "" if bad.problem is None else reason_text(bad.problem)
    return f"{bad.path}:{bad.number}: {reason}; the line begins {begins(bad.text)}"


def begins(line: bytes) -> str:
    r"""Return the beginning of a line, with escapes for control characters.

    >>> print(begins(b'{"a": \x00\xff}'))
    b'{"a": \x00\xff}'
    """
    return f"{line[:_SHOWN_BYTES]!r}{' …' if len(line) > _SHOWN_BYTES else ''}"


class Skipped:
    """Counts bad lines that are skipped, and warns of the first ones."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, bad: Line) -> None:
        """Count a line."""
        self.count += 1
        if self.count <= _WARNED:
            _log.warning("skipped %s", describe(bad))

    def finish(self) -> None:
        """Warn of the total, if not every line was named."""
        if self.count > _WARNED:
            _log.warning("%d bad lines were skipped; penstock check lists them", self.count)
