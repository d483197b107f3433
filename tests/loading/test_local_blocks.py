"""Compressed files on this machine: a block that is too large to keep many of is decoded once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock import DataLoader
from penstock.order import Order

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 40_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wide")


@pytest.fixture(scope="module")
def frames(folder: Path) -> Path:
    """Frames of 2 MiB, of which 64 MiB hold too few for a window."""
    path = folder / "a.jsonl.zst"
    with penstock.writer(path, frame_bytes=2 << 20) as sink:
        sink.write({"n": number, "text": "x" * 2000} for number in range(COUNT))
    return path


@pytest.fixture(scope="module")
def groups(folder: Path) -> Path:
    """Row groups of 16 MiB each, of which 128 MiB hold too few."""
    path = folder / "a.parquet"
    wide = np.random.default_rng(1).random((COUNT, 512))
    columns = {"n": np.arange(COUNT), "v": pa.FixedSizeListArray.from_arrays(wide.ravel(), 512)}
    pq.write_table(pa.table(columns), path, row_group_size=COUNT // 10, use_dictionary=False)
    return path


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["frames", "groups"])
def test_each_block_is_decoded_once_for_all_workers_and_epochs(
    kind: str, workers: int, request: pytest.FixtureRequest, own_cache: Path
) -> None:
    source = penstock.open(request.getfixturevalue(kind))
    fields = {"frames": {"n": "int64"}, "groups": {"n": "int64", "v": "list<float64>"}}[kind]
    loader = DataLoader(
        source,
        fields,
        batch_size=500,
        shuffle=True,
        output="arrow",
        num_workers=workers,
        materialize=False,
    )
    assert "kept on this host's disk" in loader.explain()["blocks"]
    kept: list[set[tuple[str, int]]] = []
    for epoch in range(2):
        order = Order(COUNT, epoch=epoch, kind="block", blocks=source.blocks)
        seen = [number for batch in loader for number in batch["n"].to_pylist()]
        assert seen == order.positions(0, COUNT).tolist()
        blocks = (own_cache / "blocks").rglob("*.block")
        kept.append({(path.name, path.stat().st_ino) for path in blocks})
    assert kept[0] == kept[1]
    assert 0 <= len(kept[0]) - (len(source.blocks) - 1) <= 1  # The last frame begins no record.


def test_small_blocks_are_kept_by_each_process(tmp_path: Path, own_cache: Path) -> None:
    with penstock.writer(tmp_path / "a.jsonl.zst") as sink:
        sink.write({"n": number} for number in range(1000))
    loader = DataLoader(
        tmp_path / "a.jsonl.zst", ["n"], batch_size=100, shuffle=True, materialize=False
    )
    assert loader.explain()["blocks"] == "read as they are needed"
    assert len(list(loader)) == 10
    assert not (own_cache / "blocks").exists()
