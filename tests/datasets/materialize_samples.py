"""Records, fields and files for tests of materialised columns."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

import penstock
from penstock.jsonl import JsonlDir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.datasets import Source

FIELDS = {"id": "int64", "price": "float32", "name": "string", "flag": "bool", "maybe": "int32"}
"""Fields that every format has."""
NESTED = {"tags": "list<int64>", "items[].price": "list<float32>", "user.age": "int8"}
WHOLE = {**FIELDS, **NESTED}
FORMATS = ["jsonl", "jsonl.zst", "jsonl.gz", "csv", "parquet"]


def record(n: int) -> dict[str, Any]:
    """Return a record with some of everything."""
    return {
        "id": n,
        "price": n / 4,
        "name": f"näme {n % 50}" if n % 11 else "",
        "flag": n % 3 == 0,
        "maybe": None if n % 5 == 0 else n * 7,
        "tags": [n + k for k in range(n % 4)],
        "items": None if n % 7 == 0 else [{"price": k / 2, "id": k} for k in range(n % 3)],
        "user": {"age": n % 90} if n % 6 else None,
    }


def records(start: int, stop: int) -> list[dict[str, Any]]:
    """Return records of these numbers."""
    return [record(n) for n in range(start, stop)]


def lines(some: Sequence[object]) -> str:
    """Return values as JSON Lines."""
    return "".join(json.dumps(one) + "\n" for one in some)


def write(folder: Path, kind: str, name: str, some: list[dict[str, Any]]) -> None:
    """Write records in one of the formats; those without nesting get scalar fields only."""
    folder.mkdir(exist_ok=True)
    flat = [{field: one[field] for field in FIELDS} for one in some]
    if kind == "jsonl.zst":
        with JsonlDir(folder).writer_sync(".jsonl.zst", frame_bytes=4000) as writer:
            writer.write_many(some)
    elif kind == "csv":
        pc.write_csv(pa.Table.from_pylist(flat), folder / f"{name}.csv")
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(some), folder / f"{name}.parquet", row_group_size=70)
    else:
        text = lines(some).encode()
        data = gzip.compress(text) if kind == "jsonl.gz" else text
        (folder / f"{name}.{kind}").write_bytes(data)


def opened(folder: Path, kind: str, count: int = 300) -> Source:
    """Write two files of records and open them."""
    write(folder, kind, "part-00000", records(0, count // 2))
    write(folder, kind, "part-00001", records(count // 2, count))
    return penstock.open(folder)


def fields_of(kind: str) -> dict[str, str]:
    """Return the fields that a format has."""
    return FIELDS if kind == "csv" else WHOLE


def same(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    """Whether two batches hold the same; NaN is the same as NaN here, and -0.0 not as 0.0."""
    for batch in (one, other):
        batch.validate(full=True)
    return one.schema.equals(other.schema) and repr(one.to_pydict()) == repr(other.to_pydict())
