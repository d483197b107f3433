"""One number for each record: what it may be, found once, for views and after appends."""

from __future__ import annotations

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.datasets import TokensDataset, kept_arrays, values_of
from penstock.datasets import _values as values
from penstock.errors import BadRecordsError, OptionError
from penstock.storage._folders import hidden_name
from tests.loading.token_samples import write_samples

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 300


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "some.jsonl"
    write(file, range(COUNT))
    return file


def write(file: Path, numbers: Any, mode: str = "w") -> None:
    with file.open(mode) as out:
        for n in numbers:
            record = {"n": n + 1, "text": "é" * (n % 7), "user": {"tags": [1] * (n % 5)}}
            out.write(json.dumps(record) + "\n")


def test_a_value_is_a_field_the_length_of_one_or_of_the_record(path: Path) -> None:
    source = penstock.open(path)
    numbers = np.arange(COUNT)
    assert values_of(source, "n").tolist() == (numbers + 1).tolist()
    assert values_of(source, "n").dtype == np.int16
    assert values_of(source, "n", np.float64).tolist() == (numbers + 1.0).tolist()
    assert values_of(source, "len(text)").tolist() == (numbers % 7).tolist()
    assert values_of(source, "len( user.tags )").tolist() == (numbers % 5).tolist()
    lines = path.read_bytes().splitlines()
    assert values_of(source, "len()").tolist() == [len(line) + 1 for line in lines]


def test_views_have_the_values_of_their_records(path: Path) -> None:
    source = penstock.open(path)
    view = source.where("n > 290").take([4, 0]) + source.take([7])
    assert values_of(view, "n").tolist() == [295, 291, 8]
    assert values_of(view, "len(text)").tolist() == [294 % 7, 290 % 7, 0]


def test_samples_of_tokens_have_their_own_lengths(tmp_path: Path) -> None:
    samples = [np.arange(size, dtype=np.uint16) for size in (3, 5, 2, 9)]
    folder = write_samples(tmp_path / "tokens", samples)
    source = TokensDataset.create_from_index_on_filesystem(folder)
    assert values_of(source, "len()").tolist() == [3, 5, 2, 9]
    assert values_of(source.take([3, 0]), "len()").tolist() == [9, 3]
    with pytest.raises(OptionError, match="records in memory have no length"):
        values_of(penstock.open([{"n": 1}]), "len()")


def test_values_are_found_once_and_mapped(path: Path, cache: Path) -> None:
    first = values_of(penstock.open(path), "n").tolist()
    (kept,) = (cache / "views").glob("*.npy")
    before = kept.stat().st_mtime_ns
    again = values_of(penstock.open(path), "n")
    assert isinstance(again, np.memmap)
    assert again.tolist() == first
    kept.write_bytes(kept.read_bytes()[:-9])
    assert values_of(penstock.open(path), "n").tolist() == first
    assert kept.stat().st_mtime_ns != before


def test_appended_records_come_with_their_values(path: Path) -> None:
    values_of(penstock.open(path), "n")
    write(path, range(COUNT, 40_000), "a")
    assert values_of(penstock.open(path), "n").tolist() == [*range(1, 40_001)]


def test_processes_find_the_same(path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    write(path, range(COUNT, 200_000), "a")
    monkeypatch.setattr(values, "_IN_CALLER_SECONDS", 0.0)
    source = penstock.open(path)
    assert values_of(source, "n").tolist() == [*range(1, 200_001)]
    assert values_of(source, "len(text)").tolist() == (np.arange(200_000) % 7).tolist()
    (first, _) = sorted((cache / "views").glob("*.npy"), key=lambda kept: kept.stat().st_mtime_ns)
    first.unlink()
    # As a caller leaves it that is killed.
    (cache / "views" / hidden_name(first.stem, "tmp")).mkdir()
    assert values_of(source, "n").tolist() == [*range(1, 200_001)]
    assert not [*(cache / "views").glob(".*penstock*")]


def test_of_many_callers_one_reads(path: Path) -> None:
    source, reads = penstock.open(path), []

    def find() -> list[np.ndarray]:
        reads.append(1)
        time.sleep(0.1)
        return [values_of(source, "n")]

    with ThreadPoolExecutor(4) as pool:
        mapped = partial(np.lib.format.open_memmap, mode="r")
        found = [pool.submit(kept_arrays, ["some"], find, mapped) for _ in range(4)]
    assert [one.result()[0].tolist() for one in found] == [[*range(1, COUNT + 1)]] * 4
    assert reads == [1]


def test_records_without_a_value_and_bad_lines_have_none(path: Path) -> None:
    with path.open("a") as file:
        file.write('{"n": null, "text": null}\n{"n": tru\n')
        file.write('{"n": 1.5, "text": "ab"}\n{"text": "a"}\n')
    source = penstock.open(path)
    assert values_of(source, "n")[COUNT:].tolist() == [-1, -1, -1, -1]
    assert np.isnan(values_of(source, "n", float)[COUNT:]).tolist() == [True, True, False, True]
    assert values_of(source, "len(text)")[COUNT:].tolist() == [-1, -1, 2, 1]


def test_a_field_that_has_no_such_number_is_refused(path: Path, tmp_path: Path) -> None:
    source = penstock.open(path)
    with pytest.raises(OptionError, match=r"no field 'size'|no record .* 'size'"):
        values_of(source, "size")
    with pytest.raises(OptionError, match=r"'text' is string, not a number; its length is 'len\("):
        values_of(source, "text")
    with pytest.raises(OptionError, match="'n' is int64: only texts and lists have a length"):
        values_of(source, "len(n)")
    others = [{"n": {"a": 1}}] * 300
    with pytest.raises(BadRecordsError, match="cannot be read as the types asked for"):
        values_of(penstock.open(others), "n")
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "some.parquet")
    with pytest.raises(OptionError, match="have no bytes of their own"):
        values_of(penstock.open(tmp_path / "some.parquet"), "len()")
    assert values_of(penstock.open(tmp_path / "some.parquet"), "n").tolist() == [1, 2]


def test_without_a_writable_cache_values_stay_in_memory(
    path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = penstock.open(path)
    cache.rename(cache.with_name("other"))
    cache.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "penstock.datasets"):
        found = values_of(source, "len(text)")
    assert found.tolist() == (np.arange(COUNT) % 7).tolist()
    assert "stay in the memory" in caplog.text
