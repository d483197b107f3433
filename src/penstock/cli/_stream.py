"""JSON Lines as a stream: text, lines, records, and some of them by number, sample or condition."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock import datasets
from penstock.decode import decode_fast, decode_line
from penstock.errors import OptionError
from penstock.jsonl import ErrorPolicy, MalformedLine, read_pieces

if TYPE_CHECKING:
    from penstock.cli._terminal import Progress
    from penstock.jsonl import JsonlFile, TextPiece

T = TypeVar("T")

_TEXT_BYTES = 64 << 10
_MOST = 1024
"""Records that a condition is asked about at a time."""
_BELOW_ONE = 1 - 2**-53
"""Limit of a weight: a huge sample would round it to 1, which has no logarithm."""


class Line(NamedTuple):
    """A record and its line."""

    number: int
    text: bytes
    """Without the newline."""
    value: object


def texts_of(file: JsonlFile, progress: Progress) -> Iterator[TextPiece]:
    """Yield a file's text in pieces, and show the progress of reading it."""
    with closing(read_pieces([file.source()], _TEXT_BYTES, progress.read)) as pieces:  # type: ignore[type-var]
        for piece in pieces:
            piece.path = file.path  # As the user named it.
            yield piece
            progress.show()


def read_fast(text: TextPiece) -> list[object] | None:
    """Return the values of all lines, or None where a line is blank, bad or unusual."""
    try:
        return list(map(decode_fast, text.text.removesuffix(b"\n").split(b"\n")))
    except (ValueError, RecursionError):
        return None


def read_lines(text: TextPiece) -> Iterator[Line | MalformedLine]:
    """Yield the lines that are not blank, decoded as `iter_records` does it."""
    for number, line in enumerate(text.text.split(b"\n"), text.first_line):
        if line and not line.isspace():
            try:
                yield Line(number, line, decode_line(line))
            except ValueError as reason:
                yield MalformedLine(text.path, number, line, reason)


class Record(NamedTuple):
    """A record, its number in the dataset, and where it stands."""

    number: int
    place: str
    value: object


class RecordStream:
    """All records in order; bad lines are skipped with a warning."""

    def __init__(self, files: Sequence[JsonlFile], progress: Progress) -> None:
        self._files = files
        self._progress = progress
        self.total = 0
        """Records read so far."""
        self.ended = False

    def __iter__(self) -> Generator[Record]:
        policy = ErrorPolicy("skip")
        for file in self._files:
            for text in texts_of(file, self._progress):
                for line in read_lines(text):
                    if isinstance(line, MalformedLine):
                        policy.handle(line)
                        continue
                    self.total += 1
                    yield Record(self.total - 1, f"{text.path}:{line.number}", line.value)
        policy.finish()
        self.ended = True


def sliced(records: Iterator[T], which: slice) -> Iterator[T]:
    """Yield the records of a range, negative bounds counted from the end.

    Reads no further than necessary; holds as many records as a negative bound reaches back.
    """
    start, stop = which.start or 0, which.stop
    if start >= 0 and (stop is None or stop >= 0):
        yield from islice(records, start, stop)
    elif start >= 0:
        held: deque[T] = deque()
        for record in islice(records, start, None):
            held.append(record)
            if len(held) > -stop:
                yield held.popleft()
    else:
        total, last = 0, deque[tuple[int, T]](maxlen=-start)
        for total, record in enumerate(records, 1):
            last.append((total - 1, record))
        chosen = range(*which.indices(total))
        yield from (record for number, record in last if number in chosen)


def _draws(size: int, seed: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers of records that enter a sample, each with its place there.

    A reservoir that draws how far to jump instead of a number a record (Li 1994, algorithm L).
    """
    chance = random.Random(seed)  # noqa: S311 (not a secret)

    def log() -> float:
        return math.log(chance.random() or 0.5)

    yield from ((number, number) for number in range(size))
    number, weight = size - 1, math.exp(log() / size)
    while True:
        number += math.floor(log() / math.log1p(-min(weight, _BELOW_ONE))) + 1
        yield number, chance.randrange(size)
        weight *= math.exp(log() / size)


def sampled(records: Iterable[T], size: int, seed: int) -> Iterator[T]:
    """Yield a uniform sample without repetition, in order; the same for the same seed."""
    kept: dict[int, tuple[int, T]] = {}
    draws = _draws(size, seed)
    drawn, place = next(draws)
    for number, record in enumerate(records):
        if number == drawn:
            kept[place] = number, record
            drawn, place = next(draws)
    yield from (record for _, record in sorted(kept.values(), key=lambda pair: pair[0]))


def sampled_numbers(total: int, size: int, seed: int) -> list[int]:
    """Return the numbers that `sampled` draws from so many records, without any record.

    >>> sampled_numbers(10, 3, seed=1) == list(sampled(range(10), 3, seed=1))
    True
    """
    kept: dict[int, int] = {}
    for number, place in _draws(size, seed):
        if number >= total:
            break
        kept[place] = number
    return sorted(kept.values())


class StreamCondition:
    """Decides as `source.where` does, some records at a time."""

    def __init__(self, text: str) -> None:
        self._condition = datasets.TextCondition(text)
        self._names = list(self._condition.names(datasets.ListSource([{}])))
        self._unseen = dict.fromkeys(self._names)

    def among(self, records: list[Record]) -> list[Record]:
        """Return the records for which the condition holds."""
        values = [one.value if isinstance(one.value, dict) else {} for one in records]
        # Types are inferred, so only the fields of the condition are looked at.
        keys = {
            name if any(name in value for value in values) else name.partition(".")[0]
            for name in self._names
        }
        rows = datasets.ListSource([{key: value.get(key) for key in keys} for value in values])
        found, start = [], 0
        for columns in datasets.read_fields(rows, self._names, len(rows)):
            for name, column in zip(self._names, columns.columns, strict=True):
                if column.null_count < len(column):
                    self._unseen.pop(name, None)
            found += [records[start + row] for row in self._condition.rows(columns).tolist()]
            start += columns.num_rows
        return found

    def filter(self, records: Iterator[Record]) -> Iterator[Record]:
        """Yield the records that match."""
        step = 8  # The first matches need not wait for many records.
        while some := list(islice(records, step)):
            yield from self.among(some)
            step = min(2 * step, _MOST)

    def refuse_unseen(self) -> None:
        """Raise where no record had a field: it is misspelt, nearly always."""
        for name in self._unseen:
            raise OptionError(f"--where: no record has a field {name!r}.")
