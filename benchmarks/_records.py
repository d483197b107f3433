"""The records that are read and written: nested, about 480 bytes of text, the same in every run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import orjson

from penstock.jsonl import JsonlFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 7
FLAT_COLUMNS = {"id": "int64", "price": "double", "title": "string"}
"""Three fields at the top of each record, with Arrow types."""


def records(count: int, *, nulls: bool = False) -> Iterator[dict[str, object]]:
    """Yield records with integers, floats, strings, a list of objects and a list of strings.

    With `nulls` three in ten have None at the top, and three in ten inside an object.
    """
    chance = random.Random(SEED)
    words = [f"{chance.getrandbits(32):x}" for _ in range(4000)]
    for number in range(count):
        user = {
            "id": chance.randrange(10**6),
            "country": chance.choice(["de", "fr", "us", "jp"]),
            "age": chance.randrange(18, 90),
            "plan": None if nulls and chance.random() < 0.3 else "basic",
        }
        items = [
            {
                "sku": f"{chance.getrandbits(32):08x}",
                "count": chance.randrange(1, 5),
                "price": round(chance.random() * 10, 2),
            }
            for _ in range(chance.randrange(1, 4))
        ]
        yield {
            "id": number,
            "user": user,
            "time": 1_700_000_000 + number,
            "price": round(chance.random() * 100, 2),
            "label": chance.randrange(2),
            "title": " ".join(chance.choices(words, k=10)),
            "items": items,
            "tags": chance.choices(words, k=5),
            "note": None
            if nulls and chance.random() < 0.3
            else " ".join(chance.choices(words, k=6)),
            "score": chance.random(),
        }


def write_lines(path: Path, count: int, *, nulls: bool = False) -> None:
    """Write `count` records as JSON Lines."""
    with path.open("wb") as file:
        for record in records(count, nulls=nulls):
            file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


def write_shards(directory: Path, source: Path, shards: int) -> None:
    """Write the lines of a file as shards of about the same size."""
    lines = source.read_bytes().splitlines(keepends=True)
    directory.mkdir()
    for number in range(shards):
        part = lines[number * len(lines) // shards : (number + 1) * len(lines) // shards]
        (directory / f"part-{number:05}.jsonl").write_bytes(b"".join(part))


def write_large(path: Path, source: Path, size: int) -> int:
    """Repeat a file's lines until there are at least `size` bytes; return the number of lines."""
    text = source.read_bytes()
    lines = text.count(b"\n")
    total = 0
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(text)
            total += lines
    return total


def compress(source: Path, target: Path) -> None:
    """Write a file's text as one zstd frame after another, as Penstock's writer does."""
    with JsonlFile(target).writer_sync() as writer:
        writer.write_raw(source.read_bytes())
