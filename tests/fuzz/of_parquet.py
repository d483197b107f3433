"""Parquet against pyarrow, which verifies the checksums of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz._format import Refused
from tests.fuzz._tables import SCHEMA, Tables, row

if TYPE_CHECKING:
    from pathlib import Path


class Parquet(Tables):
    """Files of all types: pages of version 1 and 2, with and without dictionaries and groups."""

    name = "parquet"
    rounds = (100, 35_000)

    def make(self, folder: Path) -> None:
        ways: dict[str, dict[str, Any]] = {
            "one": {"row_group_size": 4, "compression": "snappy"},
            "two": {"row_group_size": 7, "compression": "zstd", "data_page_version": "2.0"},
            "old": {"use_dictionary": False, "compression": "none", "version": "1.0"},
        }
        table = pa.Table.from_pylist([row(n) for n in range(9)], SCHEMA)
        for name, how in ways.items():
            some = table if name != "old" else table.select(["id", "price", "name", "tags"])
            (folder / name).mkdir()
            path = folder / name / "a.parquet"
            pq.write_table(some, path, write_page_checksum=True, store_schema=name == "one", **how)

    def read(self, path: Path, names: list[str] | None) -> pa.Table:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        if not {*(names or ())} <= {*file.schema_arrow.names}:
            raise Refused
        return file.read(names, use_threads=False)
