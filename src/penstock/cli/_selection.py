"""Some records of a stream: by number, by range, or a uniform sample."""

from __future__ import annotations

import math
import random
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.cli._reading import Skipped, read_lines, texts_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from penstock.cli._terminal import Progress
    from penstock.jsonl import JsonlFile

T = TypeVar("T")

_BELOW_ONE = 1 - 2**-53
"""Limit of a weight: a huge sample would round it to 1, which has no logarithm."""


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
        skipped = Skipped()
        for file in self._files:
            for text in texts_of(file, self._progress.add):
                for line in read_lines(text):
                    if line.problem is not None:
                        skipped.add(line)
                        continue
                    self.total += 1
                    yield Record(self.total - 1, f"{line.path}:{line.number}", line.value)
        skipped.finish()
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
