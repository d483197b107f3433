from __future__ import annotations

import bz2
import gzip
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.datasets import RecordPlaces, record_place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
}


@pytest.mark.parametrize("ending", PACKED)
def test_a_line_is_counted_over_blank_lines_and_blocks(tmp_path: Path, ending: str) -> None:
    drawn = np.random.default_rng(1)
    texts, lines = [], []
    for number in range(30_000):
        texts += [""] * int(drawn.random() < 0.1)
        texts.append(f'{{"n": {number}, "pad": "{"x" * int(drawn.integers(80))}"}}')
        lines.append(len(texts))
    text = "\n".join(texts).encode()
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl{ending}").write_bytes(PACKED[ending](text))
    source = penstock.open(tmp_path)
    places = RecordPlaces(source)
    for number in [*range(20_000, 20_100), 29_999, 30_000, 55_555, 3, 59_999]:
        found = places(number)
        assert found is not None
        assert found.line == lines[number % 30_000]
    view = source.take([30_007])
    path = f"{tmp_path}/b.jsonl{ending}"
    assert str(record_place(view, 0)) == f"{path}, line {lines[7]:,}"
    found = record_place(source, 30_007, with_line=False)
    assert found is not None
    assert str(found) == f"{path} at {found.offset:,}"


def test_tables_have_rows_and_memory_has_no_place(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(5)}), tmp_path / "a.parquet")
    assert str(record_place(penstock.open(tmp_path), 3)) == f"{tmp_path}/a.parquet, row 3"
    assert record_place(penstock.open([{"n": 1}]), 0) is None
