"""Open files of every type of Arrow; run in a process of its own, which a fault in Arrow ends."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from click.testing import CliRunner

import penstock
from penstock.cli._app import app
from penstock.errors import SchemaMismatchError
from tests.tables.arrow_types import UNREAD, arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

_WRITERS = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}


def write(path: Path, table: pa.Table, form: str = "file", compression: str | None = None) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with _WRITERS[form](str(path), table.schema, options=options) as file:
        file.write_table(table)
    return path


def compare_values(path: Path) -> None:
    """Print every type whose values are not those of pyarrow."""
    for array in arrays():
        print(array.type, flush=True)
        table = pa.table({"n": [0, 1, 2], "x": array})
        values = array.to_pylist()
        for name, what in _places(path, table):
            source: Any = penstock.open(what)
            found = [record["x"] for record in source[[2, 0, 1]]]
            if repr(found) != repr([values[2], *values[:2]]):
                print("WRONG", name, found)
            if repr(source.arrow()["x"].to_pylist()) != repr(values):
                print("WRONG", name, source.arrow())
            if source.arrow([]).num_rows or source.read([1], ["x"]).num_rows != 1:
                print("WRONG", name, source)


def _places(path: Path, table: pa.Table) -> Iterator[tuple[str, Path | pa.Table]]:
    yield "table", table
    yield "file", write(path, table)
    yield "stream", write(path, table, "stream")
    yield "compressed", write(path, table, compression="zstd")


def refuse_types(path: Path) -> None:
    """Print every type that is not read and not refused by its name, in any verb."""
    for type_ in UNREAD:
        for form, new in _WRITERS.items():
            print(type_, form, flush=True)
            new(str(path), pa.schema({"n": pa.int64(), "x": type_})).close()
            with suppress(SchemaMismatchError):
                print("READ", penstock.open(path))
            for verb in ("info", "show", "check", "profile"):
                done = CliRunner().invoke(app, [verb, str(path)])
                if "field 'x' is " not in done.output.replace("\n", " "):
                    print("UNNAMED", verb, done.output, done.exception)


if __name__ == "__main__":
    {"values": compare_values, "types": refuse_types}[sys.argv[1]](Path(sys.argv[2]))
