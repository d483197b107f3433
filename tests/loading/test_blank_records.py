"""A record whose bytes are blank is a bad record: it is named, and no other takes its row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock import DataLoader
from penstock.datasets import JsonlDataset
from penstock.errors import MalformedLineError, PenstockError

FORAGER = Path(__file__).parents[1] / "index" / "forager_program.py"
BLANK = 70
COUNT = 200
"""Enough records that some are read as one text."""


def written(folder: Path, blank: str = "") -> None:
    lines = [f'{{"n": {n}, "in": {{"x": {n}.5}}, "t": "text {n}"}}' for n in range(COUNT)]
    lines[BLANK] = blank
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module", params=["foreign index", "blanked in place"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Records of which one is blank."""
    folder = tmp_path_factory.mktemp("blank")
    if request.param == "foreign index":
        written(folder)
        program = [sys.executable, FORAGER, "index", folder]
        subprocess.run(program, check=True, capture_output=True, timeout=60)
        return JsonlDataset.create_from_index_on_filesystem(folder)
    path = folder / "a.jsonl"
    written(folder, '{"n": 70, "in": {"x": 70.5}, "t": "text 70"}')
    before = path.stat()
    source = penstock.open(path)
    line = path.read_bytes().split(b"\n")[BLANK]
    path.write_bytes(path.read_bytes().replace(line, b" " * len(line)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return source


READS = {
    "records": lambda source, ids: source.read(ids),
    "all columns": lambda source, ids: source.arrow(ids),
    "names": lambda source, ids: source.read(ids, ["n"]),
    "types": lambda source, ids: source.read(ids, {"n": "int64"}),
    "paths": lambda source, ids: source.read(ids, {"in.x": "float32", "t": "string"}),
    "a view": lambda source, ids: source.take(ids).read(range(len(ids)), {"n": "int64"}),
    "two sources": lambda source, ids: (source + source).read(ids, ["t"]),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize(
    "ids", [np.arange(COUNT), np.array([3, BLANK, 5]), np.array([BLANK])], ids=["all", "3", "1"]
)
def test_a_blank_record_is_named_like_any_other_malformed_one(
    source: Any, read: Any, ids: np.ndarray
) -> None:
    with pytest.raises(MalformedLineError, match=r"record 70 .*blank") as told:
        read(source, ids)
    assert told.value.record == BLANK


@pytest.mark.parametrize(
    "how", [{}, {"output": "arrow"}, {"encode": {"n": "int64"}}, {"encode": lambda b: b}],
    ids=["records", "arrow", "tensors", "callable"],
)  # fmt: skip
def test_a_loader_masks_a_blank_record_and_keeps_the_others_in_their_rows(
    source: Any, how: dict[str, Any]
) -> None:
    with pytest.raises(MalformedLineError, match=r"skip=\[70\]"):
        list(DataLoader(source, batch_size=50, shuffle=False, materialize=False, **how))
    if callable(how.get("encode")):
        return  # It has no place for what does not count.
    loader = DataLoader(
        source, batch_size=50, shuffle=False, materialize=False, on_error="mask", max_bad=5, **how
    )
    found = [number for batch in loader for number in numbers(batch)]
    expected: list[int | None] = list(range(COUNT))
    expected[BLANK] = None
    assert found == expected


def numbers(batch: Any) -> list[int | None]:
    if isinstance(batch, list):
        return [None if one is None else one["n"] for one in batch]
    if hasattr(batch, "column"):
        values = batch.column("n").to_pylist()
        told = batch.schema.metadata.get(b"penstock.valid", b"\1" * len(values))
        valid = np.frombuffer(told, bool).tolist()
    else:
        values = batch["n"].tolist()
        valid = [True] * len(values) if batch.valid is None else batch.valid.tolist()
    return [value if counts else None for value, counts in zip(values, valid, strict=True)]


def test_where_and_columns_do_not_take_other_records_for_those_behind_a_blank_one(
    source: Any, tmp_path: Path
) -> None:
    with pytest.raises(MalformedLineError, match="record 70"):
        len(source.where("n >= 100"))
    with pytest.raises(MalformedLineError, match="record 70"):
        source.materialize({"n": "int64"}, tmp_path / "raise", progress=False)
    columns = source.materialize({"n": "int64"}, tmp_path / "null", progress=False, on_error="null")
    values = columns.read(range(COUNT), {"n": "int64"}).column(0).to_pylist()
    assert values == [None if n == BLANK else n for n in range(COUNT)]


def test_records_of_another_tools_index_may_hold_newlines_inside(tmp_path: Path) -> None:
    texts = [b'{"n":\n1}\n', b'{"n": 2}\n\n', b'{"n": 3}\n{"n": 4}\n', b'{"n": "a\nb"}\n', b"\n"]
    (tmp_path / "a.jsonl").write_bytes(b"".join(texts))
    ends = np.cumsum([len(text) for text in texts])
    rows = [[0, end - len(text), len(text)] for end, text in zip(ends, texts, strict=True)]
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "file_location.txt").write_text("a.jsonl\n")
    np.array(rows, "<u8").tofile(folder / "sample_locations.bin")
    source = JsonlDataset.create_from_index_on_filesystem(tmp_path)
    assert source.read([1, 0]) == [{"n": 2}, {"n": 1}]
    assert source.arrow([1, 0]).to_pydict() == {"n": [2, 1]}
    assert source.read([1, 0], {"n": "int8"}).to_pydict() == {"n": [2, 1]}
    for number in (2, 3, 4):
        for read in READS.values():
            with pytest.raises(MalformedLineError, match=f"record {number} "):
                read(source, np.array([0, number, 1]))


class Short:
    """A map-style dataset that leaves the third record out."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, number: int) -> dict[str, int]:
        return {"n": number}

    def __getitems__(self, numbers: list[int]) -> list[dict[str, int]]:
        return [{"n": number} for number in numbers if number != 2]


@pytest.mark.parametrize("how", [{}, {"output": "arrow"}, {"encode": {"n": "int64"}}])
def test_a_dataset_that_leaves_rows_out_is_an_error_of_ours(how: dict[str, Any]) -> None:
    source = penstock.open(Short())
    assert source.read([3, 4]) == [{"n": 3}, {"n": 4}]
    with pytest.raises(PenstockError, match="2 rows for 3 record numbers"):
        source.read([1, 2, 3])
    with pytest.raises(PenstockError, match=r"rows for \d record numbers"):
        list(DataLoader(source, batch_size=3, shuffle=False, materialize=False, **how))


class ShortLines(JsonlDataset):
    """Loses a row that is not blank."""

    def _whole_batch(self, *what: Any) -> Any:
        return super()._whole_batch(*what)[1:]


def test_rows_that_are_missing_for_another_reason_are_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    penstock.open(tmp_path)
    with pytest.raises(PenstockError, match="returned 1 row for 2 record numbers"):
        ShortLines.create_from_index_on_filesystem(tmp_path).arrow([0, 1])
