"""Preprocessors that worker processes import, without torch."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    Record = dict[str, Any]


def shifted(record: Record, by: float = 1) -> Record:
    return {**record, "x": record["x"] + by}


def some(record: Record, times: int = 2) -> Iterator[Record]:
    """Drop every fourth record, and yield others several times."""
    if record["x"] % 4 != 1:
        yield from [{**record, "x": record["x"] + number / 10} for number in range(times)]


def placed(record: Record) -> Record:
    """Write down in which reader it runs, of how many, and a random number."""
    from penstock.lightning import shard_info

    index, count = shard_info()
    return {**record, "x": index + count / 100, "drawn": random.random()}


def inverse(record: Record) -> Record:
    return {"x": 1 / (record["x"] - 7)}
