"""The records of the loading job: about 460 bytes, of which three scalars and a list are wanted."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import _records
import orjson

if TYPE_CHECKING:
    from pathlib import Path

_SEED = 13
_LARGEST_TAG = 10**6
_MOST_TAGS = 10


def write_tagged(path: Path, count: int) -> None:
    """Write records whose tags are 1 to 10 integers, as JSON Lines."""
    chance = random.Random(_SEED)
    with path.open("wb") as file:
        for record in _records.records(count):
            tags = range(chance.randint(1, _MOST_TAGS))
            record["tags"] = [chance.randrange(_LARGEST_TAG) for _ in tags]
            file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
