"""Text, lines and records of the files that a PATH names, with their places."""

from __future__ import annotations

import logging
from contextlib import closing
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.decode import decode_fast, decode_line
from penstock.jsonl import read_pieces, reason_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jsonl import JsonlFile

_log = logging.getLogger("penstock.cli")
_TEXT_BYTES = 64 << 10
_SHOWN_BYTES = 60
_TOLD = 10


class Text(NamedTuple):
    """Some whole lines of a file."""

    path: str
    """As the user named the file."""
    first_line: int
    """Lines count from 1, blank ones too."""
    text: bytes


class Line(NamedTuple):
    """A record where it stands."""

    number: int
    text: bytes
    """Without the newline."""
    value: object


class BadLine(NamedTuple):
    """A line that is not JSON."""

    path: str
    number: int
    text: bytes
    reason: Exception


class Watch(Protocol):
    """Whoever wants to know how much was read; see `penstock.cli._terminal.Progress`."""

    def read(self, count: int) -> None:
        """Note that bytes were read, in any one thread."""
        ...

    def show(self) -> None:
        """Tell of it, in the thread that wants the text."""
        ...


def texts_of(file: JsonlFile, progress: Watch) -> Iterator[Text]:
    """Yield a file's text in pieces; the progress moves along."""
    pieces = read_pieces([file.source()], _TEXT_BYTES, progress.read)
    with closing(pieces):  # type: ignore[type-var]
        for piece in pieces:
            yield Text(file.path, piece.first_line, piece.text)
            progress.show()


def lines_of(text: Text) -> list[bytes]:
    """Return the lines without their newlines."""
    lines = text.text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def read_fast(text: Text) -> list[object] | None:
    """Return the values of all lines, or None where a line needs a closer look."""
    try:
        return list(map(decode_fast, lines_of(text)))
    except (ValueError, RecursionError):
        return None


def read_line(text: Text, index: int, line: bytes) -> Line | BadLine | None:
    """Return the record or bad line at an index; None for a blank line.

    Decoded as `iter_records` does it.
    """
    number = text.first_line + index
    if not line or line.isspace():
        return None
    try:
        return Line(number, line, decode_line(line))
    except ValueError as reason:
        return BadLine(text.path, number, line, reason)


def read_lines(text: Text) -> Iterator[Line | BadLine]:
    """Yield records and bad lines one by one: slower, but each with its place."""
    lines = lines_of(text)
    for index, line in compress(enumerate(lines), map(bytes.strip, lines)):
        read = read_line(text, index, line)
        if read is not None:
            yield read


def describe(bad: BadLine) -> str:
    """Return where a bad line is, what is wrong with it, and how it begins."""
    return f"{bad.path}:{bad.number}: {reason_text(bad.reason)}; the line begins {begins(bad.text)}"


def begins(line: bytes) -> str:
    r"""Return the beginning of a line, in a form that no terminal misreads.

    >>> print(begins(b'{"a": \x00\xff}'))
    b'{"a": \x00\xff}'
    """
    return f"{line[:_SHOWN_BYTES]!r}{' …' if len(line) > _SHOWN_BYTES else ''}"


class Skipped:
    """Counts the bad lines that are passed over, and warns of the first few."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, bad: BadLine) -> None:
        """Note a line."""
        self.count += 1
        if self.count <= _TOLD:
            _log.warning("skipped %s", describe(bad))

    def finish(self) -> None:
        """Say how many there were, if not each was told."""
        if self.count > _TOLD:
            _log.warning("%d bad lines were skipped; penstock check lists them", self.count)
