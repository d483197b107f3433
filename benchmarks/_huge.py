"""Opening an index of a billion records: a sparse file, so that it needs no disk."""

from __future__ import annotations

import os
import struct
from statistics import median
from typing import TYPE_CHECKING

from _compared import LimitRow
from _rounds import Side

from penstock.index import file_fingerprint
from penstock.index._load import FILES, META, ROWS
from penstock.index._meta import FORMAT, VERSION, FileMeta, Meta, RecordRun, encode_meta
from penstock.storage import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HUGE, LARGE = 10**9, 10**6
_ROW = struct.Struct("<QQQ")
_SECONDS, _MEGABYTES = 0.2, 50


def measure_opening(folder: Path, rounds: int, huge: int = HUGE) -> Iterator[LimitRow]:
    """Yield the seconds and the memory of opening indexes, each in a process of its own."""
    small = _sparse_index(folder / "small", LARGE)
    large = _sparse_index(folder / "huge", huge)
    first = [_opened(large) for _ in range(rounds)]
    again = [_opened(small, large) for _ in range(rounds)]
    flat = [_opened(small) for _ in range(rounds)]
    name = f"open an index of {huge:.0e} records".replace("e+0", "e")
    yield from _rows(f"{name}, first use of Penstock in a process (imports)", first, must=True)
    yield from _rows(f"{name}, after another one was opened", again, must=True)
    yield from _rows(f"the same with {LARGE:.0e}, first use".replace("e+0", "e"), flat, must=False)


def _rows(what: str, found: list[dict[str, float]], *, must: bool) -> Iterator[LimitRow]:
    for measure, unit, scale, most in (
        ("seconds", "s", 1.0, _SECONDS),
        ("bytes", "MB", 1e-6, _MEGABYTES),
    ):
        value = median(one[measure] for one in found) * scale
        yield LimitRow(
            key="open",
            what=what,
            value=value,
            unit=unit,
            must=f"< {most}" if must else "",
            reached=value < most if must else None,
        )


def _opened(*folders: Path) -> dict[str, float]:
    """Open one index after the other in a new process; return what the last one took."""
    with Side("_open_ours.py") as side:
        for folder in folders:
            _, found = side.ask("open", path=str(folder))
            rows = (folder / "index" / ROWS).stat().st_size // _ROW.size
            if found["records"] != rows or found["last"] != 3:
                raise RuntimeError(f"{folder}: wrong records were read: {found}")
    return found


def _sparse_index(folder: Path, records: int) -> Path:
    """Make an index whose first, middle and last rows are real, and all others holes."""
    lines = [b'{"id":1}\n', b'{"id":2}\n', b'{"id":3}\n']
    (folder / "index").mkdir(parents=True)
    data = folder / "data.jsonl"
    data.write_bytes(b"".join(lines))
    with (folder / "index" / ROWS).open("wb") as rows:
        rows.truncate(records * _ROW.size)
        for line, number in enumerate((0, records // 2, records - 1)):
            os.pwrite(rows.fileno(), _ROW.pack(0, 9 * line, 9), number * _ROW.size)
    (folder / "index" / FILES).write_text(f"{data.name}\n", encoding="utf-8")
    entry, file = LocalStore().entry(str(data)), LocalStore().open(str(data))
    fingerprint = file_fingerprint(file)
    file.close()
    about = FileMeta(data.name, entry.size, entry.modified, fingerprint, records, entry.size)
    meta = Meta(
        "jsonl", [about], [RecordRun(0, records, fingerprint)], format=FORMAT, version=VERSION
    )
    (folder / "index" / META).write_bytes(encode_meta(meta))
    return folder
