"""An index of 10⁸ records over one small file: sparse, and real where batches will be read."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np

from penstock.index import create_default_jsonl_indexer, file_fingerprint
from penstock.index._load import META, ROWS
from penstock.index._meta import FORMAT, VERSION, FileMeta, Meta, RecordRun, encode_meta
from penstock.order import Order
from penstock.storage import LocalStore

_ROW = struct.Struct("<QQQ")
_LINES = 1000
_AHEAD = 16 * 1024
"""Records that a loader may ask for by the time it hands out its first batch, and more."""
_TEXT = '{"id":%d,"price":%.2f,"label":%d,"tags":[%d,%d],"title":"%s"}\n'


def make_huge(folder: str, records: int, positions: list[int]) -> None:
    """Make the folder; the shuffled epoch 0 of seed 0 can be read from these positions on."""
    home = Path(folder)
    home.mkdir()
    data = home / "data.jsonl"
    lines = [(_TEXT % (n, n / 7, n % 2, n, n * n, "x" * 380)).encode() for n in range(_LINES)]
    data.write_bytes(b"".join(lines))
    create_default_jsonl_indexer(home, progress=False)()
    (home / "index" / META).write_bytes(encode_meta(_meta(data, records)))
    offsets = np.cumsum([0, *map(len, lines)])
    order = Order(records)
    with (home / "index" / ROWS).open("r+b") as rows:
        rows.truncate(records * _ROW.size)
        for position in positions:
            for number in order.positions(position, position + _AHEAD).tolist():
                line = number % _LINES
                row = _ROW.pack(0, int(offsets[line]), len(lines[line]))
                os.pwrite(rows.fileno(), row, number * _ROW.size)


def _meta(data: Path, records: int) -> Meta:
    entry, file = LocalStore().entry(str(data)), LocalStore().open(str(data))
    fingerprint = file_fingerprint(file)
    file.close()
    about = FileMeta(data.name, entry.size, entry.modified, fingerprint, records, entry.size)
    return Meta(
        "jsonl", [about], [RecordRun(0, records, fingerprint)], format=FORMAT, version=VERSION
    )
