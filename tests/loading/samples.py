"""Small sources of every kind with the same records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import penstock
from penstock.jsonl import JsonlDir

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.datasets import Source

KINDS = ("jsonl", "zst", "csv", "parquet", "memory", "split", "taken", "joined")
TYPES = {"n": "int64", "x": "float32", "tags": "list<int64>"}
FLAT_TYPES = {"n": "int64", "x": "float32"}


def record(number: int) -> dict[str, Any]:
    return {"n": number, "x": number / 8, "tags": list(range(number % 4)), "text": f"t{number}"}


def write_jsonl(path: Path, count: int, start: int = 0) -> Path:
    lines = (json.dumps(record(number)) + "\n" for number in range(start, start + count))
    path.write_text("".join(lines), encoding="utf-8")
    return path


def make(kind: str, folder: Path, count: int) -> Source:
    """Return a source of `count` records, with those of `record` in it."""
    records = [record(number) for number in range(count)]
    if kind == "jsonl":
        return penstock.open(write_jsonl(folder / "a.jsonl", count))
    if kind == "zst":
        with JsonlDir(str(folder / "zst")).writer_sync(".jsonl.zst") as writer:
            writer.write_many(records)
        return penstock.open(folder / "zst")
    if kind == "csv":
        table = pa.Table.from_pylist(records).select(["n", "x", "text"])
        pyarrow.csv.write_csv(table, folder / "a.csv")
        return penstock.open(folder / "a.csv")
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), folder / "a.parquet", row_group_size=100)
        return penstock.open(folder / "a.parquet")
    if kind == "memory":
        return penstock.open(records)
    if kind == "split":
        return penstock.open(write_jsonl(folder / "a.jsonl", count)).split(a=0.5, b=0.5)[0]
    if kind == "taken":
        whole = penstock.open(write_jsonl(folder / "a.jsonl", count))
        return whole.take(list(range(count - 1, -1, -2)))
    half = penstock.open(write_jsonl(folder / "a.jsonl", count // 2))
    rest = penstock.open(write_jsonl(folder / "b.jsonl", count - count // 2, count // 2))
    return half + rest


def ids_of(batches: Iterable[Any]) -> list[list[int]]:
    return [batch.ids.tolist() for batch in batches]


def flat(batches: Iterable[Any]) -> list[int]:
    return [number for batch in batches for number in batch.ids.tolist()]
