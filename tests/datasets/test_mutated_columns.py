"""No number in the files of a column makes taking its values end the process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock import DataLoader
from penstock.datasets.columns._folder import find_column, publish_column
from penstock.errors import CorruptIndexError
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 250


@pytest.mark.parametrize("seed", range(rounds(1, 12)))
def test_a_mutated_number_ends_no_process(seed: int, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.datasets.mutation_program"]
    told = subprocess.run(
        [*program, tmp_path / "columns", str(seed), str(COUNT)],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert f"{COUNT} mutations" in told.stdout


def published(folder: Path, values: list[object]) -> pa.DataType:
    array = pa.array(values)
    publish_column(
        folder, pa.field("a", array.type), [array],
        fingerprint="", length=len(values), bad=np.empty(0, np.int64),
    )  # fmt: skip
    return array.type


def overwritten(folder: Path, name: str, at: int, number: int) -> None:
    (path,) = folder.rglob(name)
    numbers = np.fromfile(path, "<i4" if "i4" in name else "u1")
    numbers[at] = number
    numbers.tofile(path)


TEXTS = [f"text {n} " * 9 for n in range(300)]
LISTS = [[n] * 5 for n in range(300)]


@pytest.mark.parametrize("values", [TEXTS, LISTS], ids=["texts", "lists"])
@pytest.mark.parametrize("number", [2**31 - 1, -1, -(2**31), 10**6, 0])
def test_a_forged_offset_is_told_by_the_values_that_it_borders(
    values: list[object], number: int, tmp_path: Path
) -> None:
    type_ = published(tmp_path, values)
    overwritten(tmp_path, "offsets-i4.bin", 100, number)
    column = find_column(tmp_path, "a", type_)
    assert column is not None
    for ids in ([99], [98, 99, 100, 101]):
        with pytest.raises(CorruptIndexError, match=r"offsets-i4\.bin is damaged: .* value 99 "):
            column.take(np.array(ids))
    others = np.array([0, 98, 101, 299])
    assert column.take(others).to_pylist() == [values[n] for n in others]


def test_values_that_lie_in_each_other_take_no_more_memory_than_all(tmp_path: Path) -> None:
    type_ = published(tmp_path, TEXTS)
    (path,) = tmp_path.rglob("offsets-i4.bin")
    offsets = np.fromfile(path, "<i4")
    offsets[1:-1:2], offsets[2:-1:2] = offsets[-1], 0
    offsets.tofile(path)
    column = find_column(tmp_path, "a", type_)
    assert column is not None
    with pytest.raises(CorruptIndexError, match="is damaged"):
        column.take(np.arange(0, 298, 2))
    assert len(column.take(np.zeros(50, np.int64))) == 50


def test_a_forged_code_is_told(tmp_path: Path) -> None:
    type_ = published(tmp_path, [f"word {n % 5}" for n in range(300)])
    overwritten(tmp_path, "codes.bin", 7, 5)
    column = find_column(tmp_path, "a", type_)
    assert column is not None
    with pytest.raises(CorruptIndexError, match=r"codes\.bin is damaged.*value 7 "):
        column.take(np.array([3, 7]))
    assert column.take(np.array([3])).to_pylist() == ["word 3"]


@pytest.mark.parametrize("number", [-1, 2**31 - 1, 3])
def test_forged_word_offsets_are_found_when_the_column_is_opened(
    number: int, tmp_path: Path
) -> None:
    type_ = published(tmp_path, [f"word {n % 5}" for n in range(300)])
    overwritten(tmp_path, "word_offsets-i4.bin", 2, number)
    assert find_column(tmp_path, "a", type_) is None


def test_a_column_whose_texts_are_no_utf8_is_told_by_a_loader(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"t": "{text}"}}\n' for text in TEXTS))
    columns = penstock.open(path).materialize({"t": "string"}, tmp_path / "columns", progress=False)
    (values,) = (tmp_path / "columns").rglob("values.bin")
    values.write_bytes(b"\xff" + values.read_bytes()[1:])
    with pytest.raises(CorruptIndexError, match=r"'t' is damaged: .*UTF8"):
        list(DataLoader(columns, {"t": "string"}, batch_size=50, shuffle=False))
