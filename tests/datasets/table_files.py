"""Tables as files of every format that is read by units, with few rows in each unit."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
from pyarrow import feather, orc

if TYPE_CHECKING:
    from pathlib import Path

ENDINGS = [".arrow", ".feather", ".orc", ".avro"]
_NAMES = itertools.count()
_AVRO = {
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.binary(): "bytes",
}


def file_bytes(ending: str, table: pa.Table, rows: int = 8, codec: str = "deflate") -> bytes:
    """Return a file of a table in the format of an ending; units have about so many rows.

    Those of `.ipc` are streams.
    """
    file = io.BytesIO()
    if ending == ".avro":
        blocks = [table.slice(at, rows) for at in range(0, len(table), rows)]
        writer = fastavro.write.Writer(file, avro_schema(table.schema), codec, 1 << 30)
        for block in blocks:
            for record in block.to_pylist():
                writer.write(record)
            writer.dump()
        writer.flush()
    elif ending == ".orc":
        # Arrow's writer takes values of a slice from its beginning. A compressed stripe would not
        # end before 64 KiB.
        table = pa.Table.from_pylist(table.to_pylist(), table.schema)
        orc.write_table(table, file, batch_size=rows, stripe_size=1, compression="uncompressed")
    elif ending == ".ipc":
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, rows)
    else:
        packed = "uncompressed" if ending == ".arrow" else "lz4"
        feather.write_feather(table, file, compression=packed, chunksize=rows)
    return file.getvalue()


def write(path: Path, table: pa.Table | dict[str, Any], rows: int = 8) -> Path:
    """Write a file of a table in the format of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = table if isinstance(table, pa.Table) else pa.table(table)
    path.write_bytes(file_bytes(path.suffix, table, rows))
    return path


def avro_schema(schema: pa.Schema) -> dict[str, Any]:
    """Return a schema of Avro in which everything may be null."""
    fields = [{"name": field.name, "type": ["null", _avro(field.type)]} for field in schema]
    return {"type": "record", "name": f"Record{next(_NAMES)}", "fields": fields}


def _avro(type_: pa.DataType) -> Any:
    if pa.types.is_struct(type_):
        return avro_schema(pa.schema(list(type_)))
    if pa.types.is_list(type_):
        return {"type": "array", "items": ["null", _avro(type_.value_type)]}
    return _AVRO[type_]
