"""Some records of a stream: by number, by range, or a uniform sample."""

from __future__ import annotations

import math
import random
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from penstock.cli._reading import GoodLine, Skipped, UnreadableLine, read_fast, read_lines, texts_of
from penstock.errors import MalformedLineError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Sequence

    from penstock.cli._reading import LineText
    from penstock.cli._terminal import Progress
    from penstock.jsonl import JsonlFile

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_BELOW_ONE = 1 - 2**-53
"""Limit of a weight: a huge sample would round it to 1, which has no logarithm."""


class Numbered(NamedTuple):
    """A record, its number in the dataset, and where it stands."""

    number: int
    path: str
    line: int
    value: object

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.path}:{self.line}"


class Stretch(Protocol[T_co]):
    """Items with numbers from `first` to before `end`."""

    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    def take(self, numbers: Collection[int]) -> Iterator[tuple[int, T_co]]:
        """Yield the items with these numbers, each with its number."""
        ...


class NumberedText(NamedTuple):
    """Some text and the numbers of its records."""

    first: int
    end: int
    text: LineText

    def take(self, numbers: Collection[int]) -> Iterator[tuple[int, Numbered]]:
        """Yield the records with these numbers, each with its number."""
        if not any(number in numbers for number in range(self.first, self.end)):
            return
        lines = [line for line in read_lines(self.text) if isinstance(line, GoodLine)]
        if len(lines) != self.end - self.first:
            # Each was read before, from a place where the stack has room for one level more.
            raise MalformedLineError(f"{self.text.path}: a line is nested too deeply to be shown.")
        for number, line in enumerate(lines, self.first):
            if number in numbers:
                yield number, Numbered(number, self.text.path, line.number, line.value)


class RecordStream:
    """All records in order, some at a time; bad lines are skipped with a warning."""

    def __init__(self, files: Sequence[JsonlFile], progress: Progress) -> None:
        self._files = files
        self._progress = progress
        self.total = 0
        """Records read so far."""
        self.ended = False

    def __iter__(self) -> Generator[NumberedText]:
        skipped = Skipped()
        for file in self._files:
            for text in texts_of(file, self._progress.add):
                first = self.total
                values = read_fast(text)
                if values is not None:
                    self.total += len(values)
                else:
                    self.total += sum(_is_good(line, skipped) for line in read_lines(text))
                yield NumberedText(first, self.total, text)
        skipped.finish()
        self.ended = True


def _is_good(line: GoodLine | UnreadableLine, skipped: Skipped) -> bool:
    if isinstance(line, UnreadableLine):
        skipped.add(line)
        return False
    return True


def sliced(batches: Iterator[Stretch[T]], which: slice) -> Iterator[T]:
    """Yield the records of a range, negative bounds counted from the end.

    Reads no further than necessary; holds as much text as a negative bound reaches back.
    """
    start, stop = which.start or 0, which.stop
    held: deque[Stretch[T]] = deque()
    reach = max(0, -start, -stop if stop is not None else 0)
    total = 0
    for batch in batches:
        held.append(batch)
        total = batch.end
        # These lie before the last `reach` records.
        while held and total - held[0].end >= reach:
            settled = held.popleft()
            if start >= 0:
                last = stop if stop is not None and stop >= 0 else total
                yield from (record for _, record in settled.take(range(start, last)))
        if start >= 0 and stop is not None and 0 <= stop <= total:
            return
    chosen = range(*which.indices(total))
    for batch in held:
        yield from (record for _, record in batch.take(chosen))


def sampled(batches: Iterable[Stretch[T]], size: int, seed: int) -> Iterator[T]:
    """Yield a uniform sample without repetition, in order; the same for the same seed.

    A reservoir that draws how far to jump instead of a number a record (Li 1994, algorithm L).
    """
    chance = random.Random(seed)  # noqa: S311 (not a secret)
    kept: list[tuple[int, T]] = []

    def shrunk() -> float:
        return math.exp(math.log(chance.random() or 0.5) / size)

    def jump() -> int:
        return (
            math.floor(math.log(chance.random() or 0.5) / math.log1p(-min(weight, _BELOW_ONE))) + 1
        )

    weight = shrunk()
    following = size - 1 + jump()
    for batch in batches:
        drawn = set(range(batch.first, min(size, batch.end)))
        places: dict[int, int] = {}
        while following < batch.end:
            drawn.add(following)
            places[following] = chance.randrange(size)
            weight *= shrunk()
            following += jump()
        for number, record in batch.take(drawn):
            if number in places:
                kept[places[number]] = number, record
            else:
                kept.append((number, record))
    yield from (record for _, record in sorted(kept, key=lambda pair: pair[0]))


class _Numbers(NamedTuple):
    """Numbers without records."""

    first: int
    end: int

    def take(self, numbers: Collection[int]) -> Iterator[tuple[int, int]]:
        return ((number, number) for number in sorted(numbers))


def sampled_numbers(total: int, size: int, seed: int) -> list[int]:
    """Return the numbers that `sampled` draws from so many records, without any record.

    >>> sampled_numbers(10, 3, seed=1) == sampled_numbers(10, 3, seed=1)
    True
    """
    return list(sampled([_Numbers(0, total)], size, seed))
