"""Materialised columns of every kind."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import penstock
from penstock.datasets import columns_of
from tests.fuzz._format import Door, Format, command
from tests.fuzz._lines import loaded, plain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.fuzz._format import Values

_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "wide": pa.int64(),
        "price": pa.float32(),
        "text": pa.string(),
        "word": pa.string(),
        "flag": pa.bool_(),
        "maybe": pa.int32(),
        "tags": pa.list_(pa.string()),
        "items[].price": pa.list_(pa.float64()),
        "user": pa.struct({"age": pa.int64(), "name": pa.string()}),
        "vector": pa.list_(pa.float32(), 2),
        "when": pa.timestamp("us", tz="UTC"),
        "deep": pa.list_(pa.list_(pa.int16())),
    }
)
_LOADED = {"id": "int64", "tags": "list<string>", "text": "string", "deep": "list<list<int16>>"}
_ROWS = 30


class Columns(Format):
    """Damages columns; where they cannot be used records are decoded, or columns made anew."""

    name = "columns"
    rounds = (100, 25_000)

    def make(self, folder: Path) -> None:
        lines = "".join(json.dumps(_record(n)) + "\n" for n in range(_ROWS))
        (folder / "a.jsonl").write_text(lines)
        os.utime(folder / "a.jsonl", (1_700_000_000, 1_700_000_000))
        source = penstock.open(folder)
        source.materialize(_SCHEMA, progress=False)
        source.materialize({"odd": "int8"}, progress=False, on_error="mask")

    def part(self, damaged: str) -> str:
        return damaged.split("/")[2]

    def targets(self, files: list[str]) -> list[str]:
        columns = [name for name in files if name.startswith("index/columns/")]
        return [*columns, *(name for name in columns if "ffsets" in name or "meta" in name)]

    def doors(self, folder: Path, damaged: str) -> list[Door]:
        own = [name for name in _SCHEMA.names if damaged.split("/")[2].startswith(f"{name}-")]
        schema = pa.schema([_SCHEMA.field(name) for name in own or ["tags", "deep"]])
        return [
            Door("own", lambda: _gathered(folder, schema)),
            Door("all", lambda: _gathered(folder, _SCHEMA)),
            Door("odd", lambda: _gathered(folder, pa.schema({"odd": pa.int8()}), 4)),
            Door("loader", lambda: loaded(penstock.open(folder), _LOADED, materialize="auto")),
            Door("info", lambda: command("info", folder)),
            Door("list", lambda: command("materialize", folder, "--list")),
        ]

    def difference(
        self, seen: Mapping[str, Values], sound: Mapping[str, Values], damaged: str
    ) -> str | None:
        for name, found in seen.items():
            if isinstance(found, list) and len(found) != len(sound[name]):
                return f"{name} has {len(found)} of {len(sound[name])} rows"
        return None


def _gathered(folder: Path, schema: pa.Schema, first: int = 0) -> Values:
    source = penstock.open(folder)
    source = columns_of(source, schema) or source  # Records are decoded where columns are no use.
    batch = source.read([*range(20, _ROWS), *range(first, 20)], schema)
    if batch.schema != schema:
        raise AssertionError(f"{batch.schema} in place of {schema}")
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as wrong:
        if "Invalid UTF8" not in str(wrong):  # Other bytes are another text: values of its own.
            raise
    return plain(batch)


def _record(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "wide": n * 10**15,
        "price": n / 4,
        "text": f"Köln {n}" * (n % 3),
        "word": None if n == 7 else "abc"[n % 3],
        "flag": n % 3 == 0,
        "maybe": None if n % 5 == 0 else n * 700,
        "tags": None if n == 4 else [f"tag {n % 4}"] * (n % 3),
        "items": None if n % 7 == 0 else [{"price": k / 2} for k in range(n % 3)],
        "user": {"age": n, "name": None if n % 6 else "x"} if n % 9 else None,
        "vector": [n, n / 2] if n % 8 else None,
        "when": f"2024-05-{n + 1:02}T10:00:00Z",
        "deep": [[n], [], None, [n, n]][: n % 5],
        "odd": "text" if n == 3 else n,
    }
