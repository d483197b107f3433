"""Records through a schema of 11 leaves, four of them in lists of up to 16 items, with masks.

Rates are records a second of processor time of this process, so that other work on the machine
counts little. Every row is measured once in each round, and the best is kept; "first" is the epoch
that learns the vocabularies. A row is a line of `sources`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from _about import about
from _peers import python_if_possible
from _rounds import Side
from _schema_fields import fields
from _table import table

import penstock
import penstock.schema
from penstock.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

_BATCH = 256
PEER = "json2vec 0.4.9"
_NEEDS = """torch==2.13.0 tensordict lightning polars jmespath pydantic rich pluggy beartype loguru
anytree"""
"""What json2vec requires. It asks for Python 3.12 itself, and runs in 3.11 as well."""
_STUDIED = 8_000
"""Records a second of json2vec with such a schema, by an earlier study on another machine."""


def record(pick: random.Random) -> dict[str, Any]:
    def label(kind: str, count: int) -> str:
        return f"{kind}{pick.randrange(count)}"

    return {
        "amount": pick.random() * 100,
        "age": pick.randrange(80),
        "country": label("c", 200),
        "device": label("d", 50),
        "at": f"2024-03-{pick.randrange(1, 29):02}T{pick.randrange(24):02}:30",
        "tags": [label("t", 100) for _ in range(pick.randrange(4))],
        "label": label("l", 5),
        "items": [
            {
                "sku": label("s", 5000),
                "price": pick.random() * 10,
                "quantity": pick.randrange(5),
                "brand": label("b", 300),
            }
            for _ in range(pick.randrange(17))
        ],
    }


def schema() -> Schema:
    return Schema(*fields(penstock.schema))


def sources(records: list[dict[str, Any]], path: str) -> dict[str, Callable[..., Any]]:
    """Return the loader of each row, given its schema."""
    held = pa.Table.from_pylist(records)

    def loader(
        source: object, own: Schema, way: str = "auto", **options: object
    ) -> penstock.DataLoader:
        own.path = way
        return penstock.DataLoader(
            source, own, batch_size=_BATCH, shuffle=True, num_workers=0, **options
        )

    return {
        "Arrow table": lambda own: loader(held, own),
        "materialised columns": lambda own: loader(path, own, materialize=True),
        "NDJSON": lambda own: loader(path, own, materialize=False),
        "NDJSON, record by record": lambda own: loader(path, own, "rows", materialize=False),
    }


def epoch(loader: penstock.DataLoader) -> float:
    began = time.process_time()
    for _ in loader:
        pass
    return time.process_time() - began


def json2vec() -> Path | None:
    """Return the Python that has json2vec; None where it does not install."""
    return python_if_possible("json2vec", *_NEEDS.split(), alone=PEER.replace(" ", "=="))


def theirs(python: Path, folder: str) -> list[float]:
    """Return the seconds of two epochs of json2vec over the lines of a folder."""
    with Side("_schema_json2vec.py", python) as side:
        asked: dict[str, Any] = {"root": folder, "pattern": "l$", "batch_size": _BATCH}
        _, found = side.ask("epochs", workers=0, **asked)
    return [seconds for seconds, _ in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    chosen = parser.parse_args()
    pick = random.Random(1)
    records = [record(pick) for _ in range(chosen.records)]
    best: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        os.environ["PENSTOCK_CACHE"] = str(Path(name) / "cache")
        path = str(Path(name) / "records.jsonl")
        with penstock.writer(path) as sink:
            sink.write(records)
        python = json2vec()
        rows = sources(records, path)
        for make in rows.values():
            next(iter(make(schema())))  # Imports torch, and makes columns.
        for _ in range(chosen.rounds):
            for row, make in rows.items():
                loader = make(schema())
                found = [epoch(loader), epoch(loader)]
                best[row] = [*map(min, best.get(row, found), found)]
            if python is not None:
                found = theirs(python, name)
                best[PEER] = [*map(min, best.get(PEER, found), found)]
    facts = about("penstock", "torch", records=chosen.records, rounds=chosen.rounds)
    rates = {row: [chosen.records / seconds for seconds in found] for row, found in best.items()}
    if chosen.json:
        print(json.dumps({"about": facts, "rates": rates}, indent=1))
        return
    print(", ".join(f"{name} {value}" for name, value in facts.items()), end="\n\n")
    there = max(rates.get(PEER, [_STUDIED]))
    head = ["from", "records a second", "first epoch", "steady : first", ": json2vec"]
    cells = [
        [row, f"{steady:,.0f}", f"{first:,.0f}", f"{steady / first:.2f}", f"{steady / there:.1f}"]
        for row, (first, steady) in rates.items()
    ]
    print(table(head, cells))
    if python is None:
        print("\njson2vec's 8,000 records a second were measured elsewhere, on another machine.")


if __name__ == "__main__":
    main()
