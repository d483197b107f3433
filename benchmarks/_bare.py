"""The ceilings: the loops that one would write by hand, and pyarrow's own reader."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow.json
import zstandard
from _worker import serve

_records: list[object] = []


def read(path: str) -> int:
    count = 0
    with Path(path).open("rb") as file:
        for line in file:
            orjson.loads(line)
            count += 1
    return count


def read_shards(path: str) -> int:
    return sum(read(str(shard)) for shard in sorted(Path(path).iterdir()))


def read_zst(path: str) -> int:
    count = 0
    rest = b""
    with (
        Path(path).open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as text,
    ):
        while block := text.read(1 << 20):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                orjson.loads(line)
                count += 1
    return count


def arrow(path: str) -> int:
    with pyarrow.json.open_json(path) as batches:
        return sum(batch.num_rows for batch in batches)


def load(path: str) -> int:
    _records[:] = map(orjson.loads, Path(path).read_bytes().splitlines())
    return len(_records)


def write_line_and_newline(path: str) -> int:
    with Path(path).open("wb") as file:
        for record in _records:
            file.write(orjson.dumps(record))
            file.write(b"\n")
    return len(_records)


def write_line(path: str) -> int:
    with Path(path).open("wb") as file:
        for record in _records:  # noqa: FURB122 (the loop is what is measured)
            file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
    return len(_records)


if __name__ == "__main__":
    serve(
        {
            "arrow": arrow,
            "load": load,
            "read": read,
            "read_shards": read_shards,
            "read_zst": read_zst,
            "write_line": write_line,
            "write_line_and_newline": write_line_and_newline,
        }
    )
