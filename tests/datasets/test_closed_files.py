"""Files are closed with the last reference to what reads them, without the garbage collector."""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from tests.left_behind import Held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RECORDS = [{"n": number} for number in range(40)]


def _lines(folder: Path) -> Any:
    (folder / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in RECORDS))
    return penstock.open(folder / "a.jsonl")


def _columns(folder: Path) -> Any:
    return _lines(folder).materialize({"n": "int64"}, progress=False)


def _view(folder: Path) -> Any:
    return _lines(folder).where("n < 9")


def _parquet(folder: Path) -> Any:
    pq.write_table(pa.Table.from_pylist(RECORDS), folder / "a.parquet")
    return penstock.open(folder / "a.parquet")


@pytest.fixture(autouse=True)
def _no_search_for_garbage() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("workers", [0, "auto"])
@pytest.mark.parametrize("make", [_lines, _columns, _view, _parquet])
def test_files_are_closed(make: Callable[[Path], Any], workers: Any, tmp_path: Path) -> None:
    opened = []
    for _ in range(3):  # At first modules are imported, some of which hold frames in cycles.
        before = Held.now().descriptors
        source = make(tmp_path)
        loader = penstock.DataLoader(source, {"n": "int64"}, batch_size=4, num_workers=workers)
        run = iter(loader)
        next(run)
        opened.append(Held.now().descriptors - before)
        del source, loader, run
    assert opened[2]
    assert not opened[2] & Held.now().descriptors
