"""Streams whose records say what they are; worker processes import them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import penstock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.datasets import Stream

UNIT = 1000
"""Record i of unit u holds u × this + i."""


class Reading:
    """Reads units of given sizes; small, picklable, and compared by nothing."""

    def __init__(self, sizes: Sequence[int], chunk: int = 0) -> None:
        self.sizes = sizes
        self.chunk = chunk
        """Rows of a record batch; 0 for dicts."""

    def __call__(self, unit: int, start: int = 0) -> Iterator[Any]:
        numbers = range(UNIT * unit + start, UNIT * unit + self.sizes[unit])
        if not self.chunk:
            yield from ({"n": number, "word": word(number)} for number in numbers)
            return
        for at in range(0, len(numbers), self.chunk):
            part = numbers[at : at + self.chunk]
            yield pa.record_batch({"n": part, "word": [word(number) for number in part]})


def word(number: int) -> str:
    return f"w{number * number % 7}"


def flow(
    sizes: Sequence[int],
    *,
    chunk: int = 0,
    mapped: bool = False,
    drawn: int | None = None,
    **options: Any,
) -> Stream:
    """Return all units, or in each epoch so many that are drawn."""
    units = range(len(sizes)) if drawn is None else DrawnUnits(len(sizes), drawn)
    found = penstock.stream(units, Reading(sizes, chunk), **options)
    return found.map(several) if mapped else found


class DrawnUnits:
    """The units of an epoch: so many of the first ones, drawn with replacement."""

    def __init__(self, units: int, count: int) -> None:
        self.units, self.count = units, count

    def __call__(self, epoch: int) -> list[int]:
        found: list[int] = np.random.default_rng([7, epoch]).choice(self.units, self.count).tolist()
        return found


def several(record: dict[str, Any]) -> Any:
    """Drop, keep or multiply: none to three records, as a list, a dict or a generator."""
    count = record["n"] % 4
    made = ({"n": 10 * record["n"] + sub, "word": record["word"]} for sub in range(count))
    return next(made) if count == 1 else list(made) if count == 2 else made


def all_of(
    sizes: Sequence[int], *, mapped: bool = False, units: Sequence[int] | None = None
) -> list[int]:
    """Return what the records of a stream, or of some of its units, hold, in order."""
    units = range(len(sizes)) if units is None else units
    numbers = [UNIT * unit + at for unit in units for at in range(sizes[unit])]
    return [10 * n + sub for n in numbers for sub in range(n % 4)] if mapped else numbers


def rows(batch: Any) -> list[int]:
    """Return what the rows of a batch hold that count."""
    values: list[int] = (
        [None if one is None else one["n"] for one in batch]
        if isinstance(batch, list)
        else batch["n"].tolist()
    )
    if batch.valid is None:
        return values
    return [value for value, counts in zip(values, batch.valid, strict=True) if counts]


class Noting:
    """Notes in a file what is opened and closed."""

    def __init__(self, log: str, size: int = 100) -> None:
        self.log, self.size = log, size

    def __call__(self, unit: int, start: int = 0) -> Iterator[dict[str, int]]:
        self._note(f"open {unit} {start}")
        try:
            for at in range(start, self.size):
                yield {"n": UNIT * unit + at}
        finally:
            self._note(f"close {unit}")

    def _note(self, line: str) -> None:
        with Path(self.log).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def counting() -> Iterator[dict[str, int]]:
    for number in range(10):
        yield {"n": number}
