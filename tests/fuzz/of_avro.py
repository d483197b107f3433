"""Avro against fastavro."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa

from tests.fuzz._format import Refused
from tests.fuzz._tables import Tables, row

if TYPE_CHECKING:
    from pathlib import Path


def _field(name: str, type_: Any, logical: str = "", **more: Any) -> dict[str, Any]:
    if logical:
        type_ = {"type": type_, "logicalType": logical, **more}
    return {"name": name, "type": ["null", type_]}


_SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": "int"},
        _field("price", "float"),
        _field("name", "string"),
        _field("word", {"type": "enum", "name": "Word", "symbols": ["a", "b"]}),
        _field("flag", "boolean"),
        _field("day", "int", "date"),
        _field("when", "long", "timestamp-micros"),
        _field("sum", "bytes", "decimal", precision=12, scale=2),
        _field("bytes", "bytes"),
        _field("tags", {"type": "array", "items": "int"}),
        _field(
            "user",
            {
                "type": "record",
                "name": "User",
                "fields": [
                    {"name": "age", "type": "int"},
                    {"name": "names", "type": {"type": "array", "items": ["null", "string"]}},
                ],
            },
        ),
    ],
}


class Avro(Tables):
    """Files of all types in several blocks, with each codec."""

    name = "avro"
    rounds = (100, 35_000)

    def make(self, folder: Path) -> None:
        for codec in ("null", "deflate", "zstandard", "bzip2", "xz"):
            (folder / codec).mkdir()
            with (folder / codec / "a.avro").open("wb") as file:
                rows = [row(n) for n in range(9)]
                fastavro.writer(file, _SCHEMA, rows, codec, 150, sync_marker=bytes(range(16)))

    def read(self, path: Path, names: list[str] | None) -> pa.Table:
        try:
            with path.open("rb") as file:
                reader = fastavro.reader(file)
                if names is not None:  # Other fields may hold what Python cannot express.
                    schema: Any = reader.writer_schema
                    some = [field for field in schema["fields"] if field["name"] in names]
                    file.seek(0)
                    reader = fastavro.reader(file, {**schema, "fields": some})
                records = [*reader]
        except Exception:  # noqa: BLE001 (whatever damage leads to)
            raise Refused from None
        table = pa.Table.from_pylist(records)
        if not records:  # A file may end behind its header.
            return pa.table({name: [] for name in names or ()})
        return table if names is None else table.select(names)
