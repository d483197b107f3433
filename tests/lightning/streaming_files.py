"""Files of every format that a `StreamingDataModule` reads, and what comes out of them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import zstandard

from penstock.lightning import EngineOptions, Number, SchemaModel, StreamingDataModule
from tests.datasets.table_files import file_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from penstock.batch import Batch

    Records = Sequence[dict[str, Any]]

PACKED = {".gz": gzip.compress, ".zst": zstandard.compress, ".bz2": bz2.compress}
NAMES = {
    "ndjson": ["0.jsonl", "1.ndjson", "2.jsonl.gz", "3.jsonl.zst", "4.ndjson.bz2", "5.log"],
    "json": ["0.json", "1.json.gz", "2.json.zst"],
    "csv": ["0.csv", "1.csv.gz", "2.csv.bz2"],
    "parquet": ["0.parquet", "1.pq"],
    "feather": ["0.feather", "1.arrow"],
    "avro": ["0.avro", "1.bin"],
    "orc": ["0.orc", "1.data"],
}
"""Names of files by suffix, most of which say what they are."""
EACH = 10
"""Records in each file."""


def records(start: int, count: int = EACH) -> list[dict[str, Any]]:
    return [{"n": number, "text": f"r{number}"} for number in range(start, start + count)]


def lines(some: Records) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in some)


def content(suffix: str, name: str, some: Records) -> bytes:
    """Return a file with records, compressed as its name says."""
    table = pa.Table.from_pylist(list(some))
    file = io.BytesIO()
    if suffix == "ndjson":
        data = lines(some)
    elif suffix == "json":
        data = json.dumps(some).encode()
    elif suffix == "csv":
        pc.write_csv(table, file)
        data = file.getvalue()
    elif suffix == "parquet":
        pq.write_table(table, file, row_group_size=4)
        data = file.getvalue()
    else:
        data = file_bytes(f".{suffix}", table, 4)
    pack = PACKED.get(f".{name.rpartition('.')[2]}")
    return data if pack is None else pack(data)


def write(path: Path, some: Records, suffix: str = "ndjson") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content(suffix, path.name, some))
    return path


def module(root: object, suffix: str = "ndjson", **options: Any) -> StreamingDataModule:
    """Return a data module with a seed, without workers and for batches of 4 records."""
    model = options.pop("model", None) or SchemaModel(Number("n"), batch_size=4)
    engine = EngineOptions(**{"seed": 1, **options.pop("engine", {})})
    given = {"num_workers": 0, **options, "engine": engine}
    made = StreamingDataModule(model, root, suffix, **given)  # type: ignore[arg-type]
    made.kept = model  # type: ignore[attr-defined] # it holds no strong reference
    return made


def values(batch: Batch) -> list[int]:
    """Return the numbers of the records that count."""
    numbers = batch["record/n"].content[:, 0]
    return [int(n) for n in (numbers if batch.valid is None else numbers[batch.valid]).tolist()]


def numbers(batches: Iterable[Batch]) -> list[int]:
    return [number for batch in batches for number in values(batch)]
