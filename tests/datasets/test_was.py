from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import zstandard

import penstock
from penstock.datasets import CsvRows, JsonlDataset, ParquetRows
from penstock.index import CsvScanner, IndexStore, LineScanner, SampleIndex, list_files, make_index

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.datasets import Source

FORMATS = ["jsonl", "jsonl.zst", "jsonl.gz", "csv", "parquet"]
VIEWS: dict[str, Callable[[Source], Source]] = {
    "itself": lambda source: source,
    "split": lambda source: source.split(train=0.6, val=0.4, seed=3)[0],
    "split by a field": lambda source: source.split(train=0.6, val=0.4, by="name")[1],
    "where": lambda source: source.where("n >= 3"),
    "where as Arrow": lambda source: source.where(pc.field("n") >= 3),
    "taken": lambda source: source.take([4, 1, 1]),
    "sum": lambda source: penstock.open([{"n": -1}]) + source,
    "split of a sum": lambda source: (penstock.open([{"n": 5}]) + source).split(a=0.5, b=0.5)[0],
    "where of a split of what was taken": lambda source: (
        source.take(range(4)).split(a=0.7, b=0.3)[0].where("n > 0")
    ),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / ".cache"))


def text_of(records: range, ending: str) -> bytes:
    """Return a file of records in a format."""
    rows = [{"n": number, "name": f"name {number % 3}"} for number in records]
    if ending == "parquet":
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), sink)
        return sink.getvalue()
    if ending == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, ["n", "name"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue().encode()
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    packed = {"jsonl.zst": zstandard.ZstdCompressor().compress, "jsonl.gz": gzip.compress}
    return packed[ending](text) if ending in packed else text


def add(folder: Path, name: str, records: range, ending: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.{ending}").write_bytes(text_of(records, ending))


def opened(folder: Path) -> Source:
    """Return what is in a folder, after its index was brought up to date."""
    source_files = list_files(folder)
    if source_files.files[0].path.endswith(".csv"):
        make_index(list_files(folder, (".csv",)), CsvScanner(), "update")
    elif not source_files.files[0].path.endswith(".parquet"):
        make_index(source_files, LineScanner(), "update")
    return penstock.open(folder)


def assert_was(later: Source, *before: Source) -> None:
    for source in (*before, later):
        assert later.was(source.fingerprint, len(source))
        assert not later.was(source.fingerprint, len(source) + 1)
        assert not later.was(source.fingerprint, len(source) - 1)
        assert not later.was("0" * len(source.fingerprint), len(source))
        assert not source.was(later.fingerprint, len(later)) or source is later
    assert not later.was(later.fingerprint, -1)
    assert not later.was(later.fingerprint, 0)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("ending", FORMATS)
def test_a_source_and_its_views_know_what_they_were_before_files_were_added(
    tmp_path: Path, ending: str, view: str
) -> None:
    folder = tmp_path / "data"
    past = []
    for part in range(4):
        add(folder, f"part-{part}", range(part * 7, part * 7 + 7), ending)
        past.append(VIEWS[view](opened(folder)))
    *before, later = past
    for source in before:
        assert source.fingerprint != later.fingerprint
        assert later.was(source.fingerprint, len(source))
        assert later[: len(source)] == source[:]
        if later.files and source.files:
            assert np.array_equal(
                [border for border in later.blocks if border < len(source)], source.blocks[:-1]
            )
    distinct = {len(source): source for source in past}
    if len(distinct) == len(past):
        assert_was(later, *before)
    assert pickle.loads(pickle.dumps(later)).was(before[0].fingerprint, len(before[0]))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_a_source_and_its_views_know_what_they_were_before_lines_were_added(
    tmp_path: Path, ending: str, view: str
) -> None:
    folder = tmp_path / "data"
    add(folder, "a", range(9), ending)
    add(folder, "b", range(9, 11), ending)
    first = VIEWS[view](opened(folder))
    add(folder, "a", range(20), ending)
    second = VIEWS[view](opened(folder))
    add(folder, "b", range(9, 30), ending)
    third = VIEWS[view](opened(folder))
    for source in (first, second):
        assert third.was(source.fingerprint, len(source))
    assert second.was(first.fingerprint, len(first))
    assert not first.was(second.fingerprint, len(second))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("ending", FORMATS)
def test_another_file_at_the_beginning_or_a_changed_one_is_no_past(
    tmp_path: Path, ending: str, view: str
) -> None:
    seen = []
    for number, first in enumerate([range(7), range(1, 8), range(8)]):
        folder = tmp_path / f"data{number}"
        add(folder, "a", first, ending)
        if number == 0:
            seen.append(VIEWS[view](opened(folder)))
        add(folder, "b", range(7, 14), ending)
        seen.append(VIEWS[view](opened(folder)))
    before, after, changed, longer = seen
    assert after.was(before.fingerprint, len(before))
    for other in (changed, longer):
        for past in (before, after):
            assert not other.was(past.fingerprint, len(past))


def test_a_parquet_file_that_comes_between_changes_the_numbers_and_so_is_no_past(
    tmp_path: Path,
) -> None:
    add(tmp_path, "a", range(5), "parquet")
    add(tmp_path, "c", range(5, 9), "parquet")
    before = ParquetRows(tmp_path)
    add(tmp_path, "b", range(9, 12), "parquet")
    assert not ParquetRows(tmp_path).was(before.fingerprint, len(before))
    assert not ParquetRows(tmp_path, columns=["n"]).was(before.fingerprint, len(before))


def test_an_empty_parquet_file_that_was_appended_is_told_from_none(tmp_path: Path) -> None:
    add(tmp_path, "a", range(5), "parquet")
    before = ParquetRows(tmp_path)
    add(tmp_path, "b", range(0), "parquet")
    after = ParquetRows(tmp_path)
    assert len(after) == len(before)
    assert after.fingerprint != before.fingerprint
    assert after.was(before.fingerprint, 5)
    assert after.was(after.fingerprint, 5)


def test_a_json_file_that_comes_between_is_appended_by_an_update_and_so_is_no_change(
    tmp_path: Path,
) -> None:
    add(tmp_path, "a", range(5), "jsonl")
    add(tmp_path, "c", range(5, 9), "jsonl")
    before = opened(tmp_path)
    add(tmp_path, "b", range(9, 12), "jsonl")
    after = opened(tmp_path)
    assert_was(after, before)
    assert after[:9] == before[:]
    # Built anew it stands between, and the records behind it have other numbers.
    make_index(list_files(tmp_path, (".jsonl",)), LineScanner(), "overwrite")
    assert not penstock.open(tmp_path).was(before.fingerprint, len(before))


def test_of_a_sum_only_the_last_part_may_have_grown(tmp_path: Path) -> None:
    grown, fixed = tmp_path / "grown", tmp_path / "fixed"
    add(fixed, "a", range(5), "jsonl")
    add(grown, "a", range(5), "jsonl")
    still, before = opened(fixed), opened(grown)
    add(grown, "b", range(5, 8), "jsonl")
    after = opened(grown)
    assert_was(still + after, still + before)
    assert (before + still).fingerprint != (after + still).fingerprint
    assert not (after + still).was((before + still).fingerprint, 10)
    # A sum whose last part is as long as the difference is another thing.
    assert not (still + after).was(still.fingerprint, len(still))


@pytest.mark.parametrize(
    "source",
    [
        penstock.open([{"a": 1}, {"a": 2}]),
        penstock.open(pa.table({"a": [1, 2]})),
        penstock.open(np.arange(2)),
    ],
    ids=["list", "table", "map style"],
)
def test_what_is_in_memory_is_only_what_it_is(source: Source) -> None:
    assert source.was(source.fingerprint, 2)
    assert not source.was(source.fingerprint, 1)
    assert not source.was("", 2)
    assert source.take([1]).was(source.take([1]).fingerprint, 1)


def test_an_index_of_another_tool_tells_only_the_present(tmp_path: Path) -> None:
    add(tmp_path, "a", range(5), "jsonl")
    add(tmp_path, "b", range(5, 8), "jsonl")
    known = opened(tmp_path)
    index = IndexStore(tmp_path).load()
    foreign = JsonlDataset(SampleIndex(index.file_locations, index.sample_locations))
    assert foreign.was(foreign.fingerprint, 8)
    assert not foreign.was(known.fingerprint, 8)
    assert not foreign.was(foreign.fingerprint, 5)


def test_rows_of_csv_and_of_lines_are_told_apart(tmp_path: Path) -> None:
    add(tmp_path, "a", range(5), "csv")
    rows = CsvRows(tmp_path)
    add(tmp_path, "a", range(5), "jsonl")
    (tmp_path / "lines").mkdir()
    (tmp_path / "a.jsonl").rename(tmp_path / "lines" / "a.jsonl")
    lines = penstock.open(tmp_path / "lines")
    assert not rows.was(lines.fingerprint, len(lines))
