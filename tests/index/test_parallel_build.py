"""A plain index that processes build together is the one that is built in one go."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
import zstandard

from penstock.index import BuildOptions, CsvScanner, LineScanner, list_files, make_index
from tests.index.checked import hidden, meta_of

if TYPE_CHECKING:
    from pathlib import Path

LINES = b"\xef\xbb\xbf" + b"".join(
    b'{"n":%d}\n' % n + b" \r\n\n" * (n % 5 == 0) for n in range(500)
)
ROWS = b"id,text\n" + b"".join(b'%d,"two\nlines"\n' % n for n in range(300))


def write_lines(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(LINES + b"not JSON\n[1]")
    (folder / "b.jsonl.zst").write_bytes(zstandard.compress(LINES) + zstandard.compress(LINES))
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(LINES, mtime=0))
    (folder / "d.jsonl").write_bytes(b"\n \n")
    (folder / "e.jsonl").write_bytes(b"")


def write_rows(folder: Path) -> None:
    (folder / "a.csv").write_bytes(ROWS)
    (folder / "b.csv").write_bytes(ROWS.replace(b"text", b"words"))


@pytest.mark.parametrize("kind", ["lines", "rows"])
def test_it_is_the_same_byte_for_byte(tmp_path: Path, kind: str) -> None:
    found = []
    for workers in (0, 2):
        folder = tmp_path / f"{workers}"
        folder.mkdir()
        (write_lines if kind == "lines" else write_rows)(folder)
        scanner = LineScanner() if kind == "lines" else CsvScanner()
        options = BuildOptions(progress=False, num_workers=workers, unit_bytes=1000)
        make_index(list_files(folder), scanner, "new", build=options)
        meta = meta_of(folder)
        for file in [*meta["files"], *meta.get("empty", ())]:
            del file["modified"]
        del meta["created"]
        files = {
            path.name: path.read_bytes()
            for path in (folder / "index").iterdir()
            if path.name != "meta.json"
        }
        found.append((meta, files))
        assert not hidden(folder)
    assert found[0] == found[1]
