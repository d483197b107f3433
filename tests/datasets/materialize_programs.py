"""Processes that build columns, and are killed, refused or many."""

from __future__ import annotations

import logging
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import penstock
from penstock.datasets import columns_of, list_columns_of, typed_schema
from penstock.datasets.columns import _units
from penstock.errors import StorageError
from tests.datasets.materialize_samples import WHOLE, same
from tests.faults.child import wait_for_the_others
from tests.faults.limit_programs import told

if TYPE_CHECKING:
    from penstock.datasets import Source

FIELDS = {"id": "int64", "text": "string", "tags": "list<int16>"}
LINES = 26_000
LINE_BYTES = 400


class Counted:
    """A view that counts what was done."""

    def __init__(self, *, says: bool = False) -> None:
        self.total = 0
        self.says = says

    def add(self, count: int) -> None:
        self.total += count
        if self.says:
            print(self.total, flush=True)


def write_large(folder: Path) -> None:
    """Write records of three units or more."""
    folder.mkdir(exist_ok=True)
    with (folder / "a.jsonl").open("w") as file:
        for n in range(LINES):
            line = f'{{"id": {n}, "tags": [{n % 99}, 1], "text": "{n:0200}"'
            file.write(f"{line:{LINE_BYTES - 2}}}}\n")


def materialize(
    path: str, workers: int | None = 0, storage_options: dict[str, str] | None = None
) -> int:
    """Build columns and print how far they are; return how many records were decoded."""
    view = Counted(says=True)
    source = penstock.open(path, storage_options=storage_options)
    source.materialize(FIELDS, progress=view, workers=workers)
    return view.total


def materialize_together(path: str, workers: int) -> dict[str, Any]:
    """Build columns when all others do; return what was decoded here and whether it is right."""
    source = penstock.open(path)
    wait_for_the_others()
    view = Counted()
    columns = source.materialize(FIELDS, progress=view, workers=workers)
    return {"decoded": view.total, "right": is_right(source, columns)}


def lie_in(unit: Path) -> None:
    """Make the ids of a finished unit wrong, by 10⁹, which shows whether it is used."""
    with pa.ipc.open_file(unit) as file:
        batches = [file.get_batch(at) for at in range(file.num_record_batches)]
        schema = file.schema
    shown = pa.array(np.arange(batches[0].num_rows) + 10**9)
    with pa.ipc.new_file(unit, schema) as out:
        out.write_batch(batches[0].set_column(0, schema.field(0), shown))
        for batch in batches[1:]:
            out.write_batch(batch)


def is_right(source: Source, columns: Source) -> bool:
    ids = [0, LINES - 1, 5, LINES // 2]
    return same(columns.read(ids, FIELDS), source.read(ids, FIELDS))


def materialize_with_a_size_limit(path: str, limit: int, workers: int) -> dict[str, Any]:
    """Build columns of which one file may not grow; return how that ended and what is left."""
    source = penstock.open(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        source.materialize(FIELDS, workers=workers)
    except StorageError as failure:
        left = [str(p) for p in Path(path, "index", "columns").iterdir()]
        return {**told(failure), "left": left, "columns": len(list_columns_of(source))}
    return {"kind": None}


def materialize_with_few_descriptors(path: str, unit_records: int, most: int) -> int:
    """Build columns of many units with few descriptors; return how many values they have."""
    _units._UNIT_RECORDS = unit_records  # noqa: SLF001 (units of real data have millions)
    source = penstock.open(path)
    assert len(source) > most * unit_records
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    columns = source.materialize({"a": "int64", "b": "float64"}, progress=False, workers=0)
    return int(columns.read(range(len(source)), ["a", "b"]).num_rows)


def fetch_together(url: str, options: dict[str, str], cache: str) -> dict[str, Any]:
    """Look for published columns when others do; return what came of it."""
    logging.basicConfig(stream=sys.stderr)
    source = penstock.open(url, storage_options=options)
    wait_for_the_others()
    columns = columns_of(source, typed_schema({"id": "int64", "tags": "list<int64>"}))
    found = sorted(str(p.relative_to(cache)) for p in Path(cache).rglob("meta.json"))
    read = columns is not None and columns.read([7], {"id": "int64"}).to_pydict()
    return {"read": read, "found": found}


def wrong_batches(columns: Source, source: Source, seed: int) -> int:
    """Read random batches; return how many were not what decoding gives."""
    rng = np.random.default_rng(seed)
    batches = [rng.integers(0, len(source), 20) for _ in range(10)]
    return sum(not same(columns.read(ids, WHOLE), source.read(ids, WHOLE)) for ids in batches)
