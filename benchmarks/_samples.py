"""The files that are indexed and read at random, the same in every run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import _records
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

if TYPE_CHECKING:
    from pathlib import Path

SEVEN = ("id", "user", "price", "title", "items", "tags", "note")
"""Fields of the records that are read at random."""
THREE = tuple(_records.FLAT_COLUMNS)
"""Those of them that are asked for where not all are."""
_ROW_GROUP = 10_000


def write_seven_fields(path: Path, count: int) -> None:
    """Write records of seven fields as JSON Lines, about 480 bytes each."""
    with path.open("wb") as file:
        for record in _records.records(count):
            seven = {name: record[name] for name in SEVEN}
            seven["note"] = f"{record['note']} {record['title']}"
            file.write(orjson.dumps(seven, option=orjson.OPT_APPEND_NEWLINE))


def write_short(path: Path, count: int) -> None:
    """Write records of three numbers as JSON Lines, 40 bytes each."""
    chance = random.Random(_records.SEED)
    with path.open("wb") as file:
        for number in range(count):
            text = '{"id":%08d,"label":%d,"x":%.7f}\n' % (  # noqa: UP031 (three times as fast)
                10_000_000 + number,
                chance.getrandbits(1),
                chance.random(),
            )
            file.write(text.encode())


def repeat(source: Path, folder: Path, times: int) -> None:
    """Write a file's lines as several files of a folder."""
    folder.mkdir()
    text = source.read_bytes()
    for number in range(times):
        (folder / f"part-{number:05}.jsonl").write_bytes(text)


def write_tables(csv: Path, parquet: Path, count: int) -> None:
    """Write the flat fields of the records as CSV and as Parquet."""
    names = ("id", "time", "price", "label", "title", "note", "score")
    some = ({name: record[name] for name in names} for record in _records.records(count))
    flat = pa.Table.from_pylist(list(some))
    pyarrow.csv.write_csv(flat, csv)
    pyarrow.parquet.write_table(flat, parquet, row_group_size=_ROW_GROUP)
