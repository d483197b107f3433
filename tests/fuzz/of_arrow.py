"""Arrow IPC against pyarrow: mapped, compressed, with dictionaries that grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tests.fuzz._tables import SCHEMA, Tables, row

if TYPE_CHECKING:
    from pathlib import Path


class Arrow(Tables):
    """Files of all types, plain and compressed."""

    name = "arrow"
    rounds = (100, 35_000)

    def make(self, folder: Path) -> None:
        table = pa.Table.from_pylist([row(n) for n in range(9)], SCHEMA)
        plain = table.select(["id", "price", "name", "tags"])
        for name, some, packing in (
            ("one", table, None),
            ("two", table, "zstd"),
            ("few", plain, None),
            ("lz4", plain, "lz4"),
            ("stream", table, None),
        ):
            (folder / name).mkdir()
            options = pa.ipc.IpcWriteOptions(compression=packing)
            path = str(folder / name / "a.arrow")
            new = pa.ipc.new_stream if name == "stream" else pa.ipc.new_file
            with new(path, some.schema, options=options) as file:
                file.write_table(some, 4)

    def read(self, path: Path, names: list[str] | None) -> pa.Table:
        data = path.read_bytes()
        opened = pa.ipc.open_stream if path.parent.name == "stream" else pa.ipc.open_file
        there = opened(data).schema.names
        wanted = [there.index(name) for name in names or ()]
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        return opened(data, options=options).read_all()
