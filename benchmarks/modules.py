"""Observations through each data module, with the schema of `schema.py`, in the order of the files.

Rates are observations a second: of processor time, that of worker processes included, so that other
work on the machine counts little; and of wall time. Every row is measured once in each round, and
the best is kept; "first" is the epoch that learns the vocabularies. The ceiling encodes Arrow in
memory without a loader. A row is a line of `doors`.
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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _about import about
from _rounds import Side
from _table import table
from _worker import processor_seconds
from schema import PEER, json2vec, record, schema
from torch.utils.data import IterableDataset

import penstock
from penstock.batch import BatchPosition
from penstock.lightning import (
    CustomDataModule,
    DataModule,
    PolarsDataModule,
    SchemaModel,
    StreamingDataModule,
    shard_info,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.lightning._batch_module import BatchModule

_BATCH, _LOT, _FILES = 256, 4096, 8
_CEILING, _LOADER = "ceiling: schema over Arrow", "DataLoader, Arrow table"
_STATED = {"steady": 15_000, "first": 40}
"""Observations a second of json2vec 0.4.5 with 0 workers, measured on another machine."""

Times = list[list[float]]
"""Processor time and wall time: of the first epoch, and of the second."""


class Rows(IterableDataset):
    """Records in memory, shared over workers."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self.records = records

    def __iter__(self) -> Iterator[dict[str, Any]]:
        index, count = shard_info()
        yield from self.records[index::count]


class Encoded:
    """The batches of columns in memory, without a loader."""

    def __init__(self, held: pa.Table, model: SchemaModel) -> None:
        source, self._schema = model.bind(penstock.open(held))
        self._columns = source.read(np.arange(len(source)), self._schema.fields)

    def __iter__(self) -> Iterator[penstock.Batch]:
        for start in range(0, len(self._columns), _LOT):
            columns = self._columns.slice(start, _LOT)
            numbers = np.arange(start, start + len(columns))
            where = BatchPosition(0, 0, numbers, numbers)
            arrays = self._schema.arrays(columns, where)
            for at in range(0, len(columns), _BATCH):
                own = numbers[at : at + _BATCH]
                part = self._schema.part(arrays, at, at + len(own))
                yield self._schema.batch(part, BatchPosition(0, 0, own, own))


def written(records: list[dict[str, Any]], root: Path) -> pa.Table:
    """Write records as JSON Lines and as Parquet, in some files; return them as a table."""
    held = pa.Table.from_pylist(records)
    size = -(-len(records) // _FILES)
    (root / "parquet").mkdir()
    for number in range(_FILES):
        pq.write_table(held.slice(number * size, size), root / "parquet" / f"{number}.parquet")
    with penstock.writer(str(root / "lines"), max_records_per_shard=size) as out:
        out.write(records)
    return held


def doors(
    records: list[dict[str, Any]], held: pa.Table, root: Path
) -> dict[str, Callable[[SchemaModel, int], Iterable[object]]]:
    """Return what each row iterates over, given its model and a number of workers."""

    def streaming(model: SchemaModel, workers: int, suffix: str, pattern: str) -> BatchModule:
        return StreamingDataModule(
            model, root, suffix, train=pattern, replacement=False, num_workers=workers
        )

    def plain(model: SchemaModel, workers: int) -> BatchModule:
        options = {"batch_size": _BATCH, "shuffle": False, "num_workers": workers}
        return DataModule(held, encode=model, **options)

    modules: dict[str, Callable[[SchemaModel, int], BatchModule]] = {
        "PolarsDataModule": lambda model, n: PolarsDataModule(model, train=held, num_workers=n),
        "StreamingDataModule, ndjson": lambda model, n: streaming(model, n, "ndjson", "lines/.*l$"),
        "StreamingDataModule, parquet": lambda model, n: streaming(model, n, "parquet", "parquet$"),
        "CustomDataModule": lambda model, n: CustomDataModule(
            model, train=Rows(records), num_workers=n
        ),
        "DataModule, Arrow table": plain,
    }
    return {
        _CEILING: lambda model, _: Encoded(held, model),
        _LOADER: lambda model, n: penstock.DataLoader(
            held, model, batch_size=_BATCH, num_workers=n
        ),
        **{
            name: lambda model, n, make=make: make(model, n).dataloader("train")
            for name, make in modules.items()
        },
    }


def made() -> SchemaModel:
    return SchemaModel(*schema().hyperparameters.root.fields, batch_size=_BATCH)


def epoch(batches: Iterable[object]) -> list[float]:
    began, began_wall = processor_seconds(), time.perf_counter()
    for _ in batches:
        pass
    return [processor_seconds() - began, time.perf_counter() - began_wall]


def better(old: Times | None, new: Times) -> Times:
    return new if old is None else [[*map(min, *pair)] for pair in zip(old, new, strict=True)]


def measured(chosen: argparse.Namespace, root: Path) -> dict[tuple[str, int], Times]:
    pick = random.Random(1)
    records = [record(pick) for _ in range(chosen.records)]
    rows = doors(records, written(records, root), root)
    peer = json2vec()
    best: dict[tuple[str, int], Times] = {}
    next(iter(rows[_CEILING](made(), 0)))  # Imports torch.
    for _ in range(chosen.rounds):
        for name, make in rows.items():
            for workers in (0,) if name == _CEILING else (0, 2):
                batches = make(made(), workers)
                found = [epoch(batches), epoch(batches)]
                best[name, workers] = better(best.get((name, workers)), found)
        for workers in (0, 2) if peer else ():
            with Side("_schema_json2vec.py", peer) as side:
                asked = {"root": str(root), "pattern": "lines/.*l$", "batch_size": _BATCH}
                _, found = side.ask("epochs", workers=workers, **asked)
            best[PEER, workers] = better(best.get((PEER, workers)), found)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        os.environ["PENSTOCK_CACHE"] = str(Path(name) / "cache")
        best = measured(chosen, Path(name))
    facts = about("penstock", "torch", "lightning", records=chosen.records, rounds=chosen.rounds)
    rates = {
        row: [[chosen.records / one for one in times] for times in found]
        for row, found in best.items()
    }
    if chosen.json:
        listed = [{"through": row, "workers": n, "rates": own} for (row, n), own in rates.items()]
        print(json.dumps({"about": facts, "rates": listed}, indent=1))
        return
    print(", ".join(f"{name} {value}" for name, value in facts.items()), end="\n\n")
    theirs = rates[PEER, 0][1][0] if (PEER, 0) in rates else _STATED["steady"]
    ceiling, loader = (rates[row, 0][1][0] for row in (_CEILING, _LOADER))
    head = [
        "through", "workers", "first", "steady", "first, wall", "steady, wall",
        ": ceiling", ": DataLoader", ": json2vec",
    ]  # fmt: skip
    cells = [
        [
            row,
            f"{workers}",
            *(f"{one:,.0f}" for one in (first, steady, first_wall, steady_wall)),
            *(f"{steady / one:.2f}" for one in (ceiling, loader, theirs)),
        ]
        for (row, workers), ((first, first_wall), (steady, steady_wall)) in rates.items()
    ]
    print(table(head, cells))
    if (PEER, 0) not in rates:
        print(
            f"\njson2vec does not install here. STATED, NOT MEASURED HERE: {_STATED['steady']:,} "
            f"observations a second with known vocabularies, {_STATED['first']} while it learns "
            "them (0.4.5, 0 workers, another machine and schema)."
        )


if __name__ == "__main__":
    main()
