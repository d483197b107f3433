"""Small sources of every kind with the same records."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import penstock
from penstock.jsonl import JsonlDir

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.datasets import Source

IN_ORDER = ("gz",)
"""What can only be read from its beginning."""
ANY_ORDER = (
    *("jsonl", "zst", "csv", "csv-files", "parquet", "parquet-files"),
    *("memory", "table", "pandas", "polars", "map-style"),
    *("split", "taken", "where", "joined"),
)
KINDS = (*ANY_ORDER, *IN_ORDER)
FLAT = ("csv", "csv-files")
"""What has no lists."""
TYPES = {"n": "int64", "x": "float32", "tags": "list<int64>"}
FLAT_TYPES = {"n": "int64", "x": "float32"}


def record(number: int) -> dict[str, Any]:
    return {"n": number, "x": number / 8, "tags": list(range(number % 4)), "text": f"t{number}"}


def write_jsonl(path: Path, count: int, start: int = 0) -> Path:
    lines = (json.dumps(record(number)) + "\n" for number in range(start, start + count))
    path.write_text("".join(lines), encoding="utf-8")
    return path


class MapStyle:
    """What torch calls a map-style dataset."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.records[number]


def make(kind: str, folder: Path, count: int) -> Source:
    """Return a source of records of `record`: of the first `count`, or of some of those."""
    if kind in {"split", "taken", "where", "joined"}:
        return _view(kind, folder, count)
    records = [record(number) for number in range(count)]
    table = pa.Table.from_pylist(records)
    cut = count // 3
    parts = [table[:cut], table[cut:]]
    if kind == "jsonl":
        return penstock.open(write_jsonl(folder / "a.jsonl", count))
    if kind == "gz":
        text = write_jsonl(folder / "a.jsonl", count).read_bytes()
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(text, 1))
        return penstock.open(folder / "a.jsonl.gz")
    if kind == "zst":
        with JsonlDir(str(folder / "zst")).writer_sync(".jsonl.zst") as writer:
            writer.write_many(records)
        return penstock.open(folder / "zst")
    if kind in FLAT:
        for number, part in enumerate([table] if kind == "csv" else parts):
            pyarrow.csv.write_csv(part.drop(["tags"]), folder / f"{number}.csv")
        return penstock.open(folder)
    if kind in {"parquet", "parquet-files"}:
        for number, part in enumerate([table] if kind == "parquet" else parts):
            pq.write_table(part, folder / f"{number}.parquet", row_group_size=100)
        return penstock.open(folder)
    if kind == "pandas":
        return penstock.open(table.to_pandas(types_mapper=pd.ArrowDtype))
    in_memory = {"memory": records, "table": table, "map-style": MapStyle(records)}
    return penstock.open(pl.DataFrame(records) if kind == "polars" else in_memory[kind])


def _view(kind: str, folder: Path, count: int) -> Source:
    if kind == "joined":
        half = penstock.open(write_jsonl(folder / "a.jsonl", count // 2))
        return half + penstock.open(write_jsonl(folder / "b.jsonl", count - count // 2, count // 2))
    whole = penstock.open(write_jsonl(folder / "a.jsonl", count))
    if kind == "split":
        return whole.split(a=0.5, b=0.5)[0]
    if kind == "where":
        return whole.where("x >= 2.5 and n != 50")
    return whole.take(list(range(count - 1, -1, -2)))


def ids_of(batches: Iterable[Any]) -> list[list[int]]:
    return [batch.ids.tolist() for batch in batches]


def flat(batches: Iterable[Any]) -> list[int]:
    return [number for batch in batches for number in batch.ids.tolist()]
