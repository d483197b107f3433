"""The peer: flyteplugins-jsonl, run by the Python of an environment of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
from _worker import count, count_async, serve
from flyteplugins.jsonl import JsonlDir, JsonlFile

_records: list[object] = []


def read(path: str) -> int:
    return count(JsonlFile(path=path).iter_records_sync())


def read_async(path: str) -> int:
    return asyncio.run(count_async(JsonlFile(path=path).iter_records()))


def read_shards(path: str) -> int:
    return count(JsonlDir(path=path).iter_records_sync())


def read_shards_async(path: str) -> int:
    return asyncio.run(count_async(JsonlDir(path=path).iter_records()))


def arrow(path: str) -> int:
    return sum(batch.num_rows for batch in JsonlFile(path=path).iter_arrow_batches_sync())


def load(path: str) -> int:
    _records[:] = map(orjson.loads, Path(path).read_bytes().splitlines())
    return len(_records)


def write(path: str) -> int:
    with JsonlFile(path=path).writer_sync() as writer:
        for record in _records:
            writer.write(record)
    return len(_records)


def write_many(path: str) -> int:
    with JsonlFile(path=path).writer_sync() as writer:
        writer.write_many(_records)
    return len(_records)


if __name__ == "__main__":
    serve(
        {
            "arrow": arrow,
            "load": load,
            "read": read,
            "read_async": read_async,
            "read_shards": read_shards,
            "read_shards_async": read_shards_async,
            "write": write,
            "write_many": write_many,
        }
    )
