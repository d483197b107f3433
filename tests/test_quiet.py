"""A program that only reads prints nothing of ours, not even while it ends."""

from __future__ import annotations

import gzip
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock

if TYPE_CHECKING:
    from pathlib import Path

READ = """
import sys, penstock
source = penstock.open(sys.argv[1])
kept = sys.modules["kept"] = [source, source[0]]
for options in ({}, {"num_workers": 0}):
    run = iter(penstock.DataLoader(source, batch_size=2, **options))
    kept += [run, next(run)]
"""


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.csv", "a.parquet"])
def test_a_program_that_reads_ends_in_silence(name: str, tmp_path: Path) -> None:
    path, text = tmp_path / name, "".join(f'{{"n": {number}}}\n' for number in range(9))
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"n": range(9)}), path)
    elif name.endswith(".csv"):
        path.write_text("n\n1\n2\n3\n")
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        with penstock.writer(path) as writer:
            writer.write([{"n": number} for number in range(9)])
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", READ, path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_warning_comes_once_however_many_loaders_read_the_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a.jsonl").write_text('{"n": 1, "mixed": 1}\n{"n": 2, "mixed": "x"}\n' * 9)
    (tmp_path / "d/README.md").write_text("")
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n3\n")
    for _ in range(3):
        source = penstock.open(tmp_path / "d")
        for options in ({"encode": {"n": "int64", "missing": "int64?"}}, {"output": "arrow"}):
            assert [*penstock.DataLoader(source, batch_size=4, num_workers=0, **options)]
        penstock.open(tmp_path / "odd.csv")
    told = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
    assert len(told) == len({*told}) == 4
    for words in ("README.md", "'missing'", "'mixed'", "another number of fields"):
        assert sum(words in one for one in told) == 1
