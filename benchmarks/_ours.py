"""Penstock's side of every comparison, and what only concerns ourselves: memory, the loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pyarrow as pa
from _loop import Holds, holds_during
from _records import FLAT_COLUMNS
from _worker import count, count_async, peak_bytes, serve

from penstock.jsonl import JsonlDir, JsonlFile

_records: list[object] = []
_READERS = _WRITERS = 25


def read(path: str) -> int:
    return count(JsonlFile(path).iter_records_sync())


def read_async(path: str) -> int:
    return asyncio.run(count_async(JsonlFile(path).iter_records()))


def read_shards(path: str) -> int:
    return count(JsonlDir(path).iter_records_sync())


def read_shards_async(path: str) -> int:
    return asyncio.run(count_async(JsonlDir(path).iter_records()))


def arrow(path: str) -> int:
    return sum(batch.num_rows for batch in JsonlFile(path).iter_arrow_batches_sync())


def arrow_flat(path: str) -> int:
    batches = JsonlFile(path).iter_arrow_batches_sync(schema=_flat_schema())
    return sum(batch.num_rows for batch in batches)


def _flat_schema() -> pa.Schema:
    return pa.schema([(name, pa.type_for_alias(type_)) for name, type_ in FLAT_COLUMNS.items()])


def load(path: str) -> int:
    _records[:] = map(orjson.loads, Path(path).read_bytes().splitlines())
    return len(_records)


def write(path: str) -> int:
    with JsonlFile(path).writer_sync() as writer:
        for record in _records:
            writer.write(record)
    return len(_records)


def write_many(path: str) -> int:
    with JsonlFile(path).writer_sync() as writer:
        writer.write_many(_records)
    return len(_records)


def memory(path: str, how: str, records: int) -> tuple[int, int]:
    """Return the peak of memory after a quarter of the records, and at the end."""
    early = done = 0
    for some in _STREAMS[how](JsonlFile(path)):
        done += len(some)
        if not early and done >= records / 4:
            early = peak_bytes()
    return early, peak_bytes()


_STREAMS = {
    # Wrapped one by one, so that every stream is counted the same way.
    "records": lambda file: ((record,) for record in file.iter_records_sync()),
    "batches": lambda file: file.iter_batches_sync(),
    "Arrow batches": lambda file: file.iter_arrow_batches_sync(),
    "Arrow batches of 3 columns": lambda file: file.iter_arrow_batches_sync(schema=_flat_schema()),
}


def hold_idle(seconds: float) -> Holds:
    """Return what a loop with nothing to do measures: the machine's own noise."""
    return asyncio.run(holds_during(asyncio.sleep(seconds)))


def hold_one(path: str) -> Holds:
    """Return how long the loop was held while one reader ran."""
    return asyncio.run(holds_during(count_async(JsonlFile(path).iter_records())))


def hold_many(path: str, directory: str) -> Holds:
    """Return how long the loop was held while 50 readers and writers shared it."""

    async def all_at_once() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_READERS):
                tasks.create_task(count_async(JsonlFile(path).iter_records()))
            for number in range(_WRITERS):
                suffix = ".jsonl.zst" if number % 2 else ".jsonl"
                tasks.create_task(_write_async(f"{directory}/{number}{suffix}"))

    return asyncio.run(holds_during(all_at_once()))


async def _write_async(path: str) -> None:
    async with JsonlFile(path).writer() as writer:
        for record in _records:
            await writer.write(record)


if __name__ == "__main__":
    serve(
        {
            "arrow": arrow,
            "arrow_flat": arrow_flat,
            "hold_idle": hold_idle,
            "hold_many": hold_many,
            "hold_one": hold_one,
            "load": load,
            "memory": memory,
            "read": read,
            "read_async": read_async,
            "read_shards": read_shards,
            "read_shards_async": read_shards_async,
            "write": write,
            "write_many": write_many,
        }
    )
