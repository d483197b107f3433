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
