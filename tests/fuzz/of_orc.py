"""ORC against pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import orc

from tests.fuzz._tables import SCHEMA, Tables, row

if TYPE_CHECKING:
    from pathlib import Path


class Orc(Tables):
    """Files of all types, in several stripes and compressed."""

    name = "orc"
    rounds = (100, 12_000)

    def make(self, folder: Path) -> None:
        table = pa.Table.from_pylist([row(n) for n in range(9)], SCHEMA)
        table = table.set_column(4, "word", table["word"].cast(pa.string()))
        for packing in ("uncompressed", "zlib", "snappy", "zstd", "lz4"):
            (folder / packing).mkdir()
            path = folder / packing / "a.orc"
            orc.write_table(table, path, batch_size=4, stripe_size=1, compression=packing)

    def read(self, path: Path, names: list[str] | None) -> pa.Table:
        return orc.ORCFile(path).read(names)
