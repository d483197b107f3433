"""Folders called `year=2024` around files of text: fields, as around files of tables."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.datasets import CsvRows, JsonlDataset, Source, list_columns_of
from penstock.errors import SchemaMismatchError
from tests.cli.commands import document, succeed
from tests.datasets.sample import Record, flat_records
from tests.datasets.source_contract import SourceContract
from tests.datasets.test_csv import csv_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers.s3_server import S3Server

NULL = "__HIVE_DEFAULT_PARTITION__"
FORMATS = ["csv", "jsonl", "json", "jsonl.gz"]


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def text_of(records: list[dict[str, Any]], ending: str) -> bytes:
    if ending == "csv":
        return csv_text(records)
    if ending == "json":
        return json.dumps(records).encode()
    data = "".join(f"{json.dumps(record)}\n" for record in records).encode()
    return gzip.compress(data) if ending.endswith(".gz") else data


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text_of(records, path.name.partition(".")[2]))
    return path


@pytest.fixture(params=FORMATS)
def sales(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table in folders, and the same in Parquet beside it."""
    rows = [
        {"id": n, "year": 2023 + n % 2, "city": ["Köln/Süd", "a b", None][n % 3], "x": n / 2}
        for n in range(24)
    ]
    parquet = tmp_path / "parquet"
    pq.write_to_dataset(pa.Table.from_pylist(rows), str(parquet), partition_cols=["year", "city"])
    for file in parquet.rglob("*.parquet"):
        folder = tmp_path / "sales" / file.parent.relative_to(parquet)
        write(folder / f"a.{request.param}", pq.read_table(file, partitioning=None).to_pylist())
    return tmp_path / "sales"


class TestCsvInFolders(SourceContract):
    has_raw = True

    @pytest.fixture
    def expected(self) -> list[Record]:
        return [
            {**record, "month": 1 + number // 30, "place": None if number < 30 else "b c"}
            for number, record in enumerate(flat_records(60))
        ]

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        own = [{k: v for k, v in one.items() if k not in ("month", "place")} for one in expected]
        write(tmp_path / f"d/month=01/place={NULL}/a.csv", own[:30])
        write(tmp_path / "d/month=02/place=b%20c/a.csv", own[30:])
        return lambda: CsvRows(tmp_path / "d")


class TestJsonLinesInFolders(TestCsvInFolders):
    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        own = [{k: v for k, v in one.items() if k not in ("month", "place")} for one in expected]
        write(tmp_path / f"d/month=01/place={NULL}/a.jsonl", own[:30])
        write(tmp_path / "d/month=02/place=b%20c/a.jsonl", own[30:])
        return lambda: penstock.open(tmp_path / "d")


def test_records_and_columns_are_those_of_parquet_and_of_pyarrow(sales: Path) -> None:
    ds, tables = penstock.open(sales), penstock.open(sales.parent / "parquet")
    assert {field.name: field.type for field in ds.schema} == {
        "id": pa.int64(), "x": pa.float64(), "year": pa.int64(), "city": pa.string()
    }  # fmt: skip
    expected = pads.dataset(sales.parent / "parquet", partitioning="hive").to_table().to_pylist()
    by_id = {row["id"]: row for row in expected}
    assert [by_id[row["id"]] for row in ds] == ds[:] == [ds[at] for at in range(len(ds))]
    assert ds.arrow(fields=["id", "year", "city"]).to_pylist() == [
        {name: row[name] for name in ("id", "year", "city")} for row in ds
    ]
    assert ds.arrow().select(["city", "x"]).to_pylist() == [
        {name: row[name] for name in ("city", "x")} for row in ds
    ]
    assert ds.read([5, 2], {"year": "int16", "city": "text"}).to_pylist() == [
        {name: ds[at][name] for name in ("year", "city")} for at in (5, 2)
    ]
    for text in ("year == 2024 and x > 4", "city is null", "city == 'a b' or x < 2", "year == 1"):
        found = [row["id"] for row in ds.where(text)]
        assert sorted(found) == sorted(row["id"] for row in tables.where(text)), text
    again = pickle.loads(pickle.dumps(ds))
    assert again[3] == ds[3]
    assert again.fingerprint == ds.fingerprint


def test_they_are_fields_of_batches_of_columns_and_of_commands(sales: Path) -> None:
    ds = penstock.open(sales)
    fields = {"year": "int32", "city": "string", "id": "int64"}
    for materialize in (True, False):
        loader = penstock.DataLoader(
            ds, fields, batch_size=8, shuffle=materialize, materialize=materialize, num_workers=0
        )
        for batch in loader:
            rows = ds[batch.ids.numpy()]
            assert batch["year"].tolist() == [row["year"] for row in rows]
            assert batch["city"] == [row["city"] for row in rows]
    (batch,) = penstock.DataLoader(ds, ["year", "id"], batch_size=24, num_workers=2)
    assert batch["year"].tolist() == [row["year"] for row in ds]
    kept = ds.materialize(["year", "city"], progress=False)
    assert kept.read([7], ["year", "city"]).to_pylist() == [
        {name: ds[7][name] for name in ("year", "city")}
    ]
    assert ds.value_counts("city") == {"Köln/Süd": 8, "a b": 8}
    train, val = ds.split(train=0.5, val=0.5, by="year")
    assert not {row["year"] for row in train} & {row["year"] for row in val}
    assert [one["year"] for one in document("show", sales, "0:2")] == [ds[0]["year"], ds[1]["year"]]
    succeed("convert", sales, sales.parent / "out.jsonl")
    written = penstock.open(sales.parent / "out.jsonl")
    assert [row["year"] for row in written] == [row["year"] for row in ds]


def test_a_file_that_has_the_column_itself_keeps_it(tmp_path: Path) -> None:
    write(tmp_path / "d/year=1/a.csv", [{"year": 7, "id": 0}, {"year": None, "id": 1}])
    write(tmp_path / "d/year=2/b.csv", [{"id": 2}])
    ds = penstock.open(tmp_path / "d")
    assert [row["year"] for row in ds] == [7, None, 2]
    assert ds.free_fields == frozenset()
    write(tmp_path / "e/year=1/a.jsonl", [{"year": 7, "id": 0}, {"id": 1}, {"year": None}])
    lines = penstock.open(tmp_path / "e")
    assert [row["year"] for row in lines] == [7, 1, 1]
    assert lines.arrow(fields=["year"])["year"].to_pylist() == [7, 1, 1]
    assert lines.arrow()["year"].to_pylist() == [7, 1, 1]
    write(tmp_path / "f/year=1/a.jsonl", [{"year": "x"}, {"id": 1}])
    texts = penstock.open(tmp_path / "f")
    assert [row["year"] for row in texts] == ["x", 1]
    with pytest.raises(SchemaMismatchError, match=r"record 1.*'year' holds 1"):
        texts.arrow()
    assert texts.read([0, 1], {"year": "text"})["year"].to_pylist() == ["x", "1"]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_only_folders_below_what_is_opened_count(ending: str, tmp_path: Path) -> None:
    base = tmp_path / "run=1/d"
    write(base / f"year=1/a.{ending}", [{"id": 0, "t": "x"}])
    write(base / f"year=2/b.{ending}", [{"id": 1, "t": "y"}])
    for what in (base, str(base / f"*/*.{ending}"), [base / "year=1", base / "year=2"]):
        assert [(row["id"], row["year"]) for row in penstock.open(what)] == [(0, 1), (1, 2)]
    for alone in (base / "year=1", base / f"year=1/a.{ending}"):
        assert penstock.open(alone)[:] == [{"id": 0, "t": "x"}]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_another_value_of_a_folder_is_another_fingerprint(ending: str, tmp_path: Path) -> None:
    write(tmp_path / f"d/year=1/a.{ending}", [{"id": 0, "t": "x"}])
    first = penstock.open(tmp_path / "d").materialize({"year": "int64"}, progress=False)
    Path(tmp_path / "d/year=1").rename(tmp_path / "d/year=2")
    second = penstock.open(tmp_path / "d")
    assert second.fingerprint != first.fingerprint
    assert not second.was(first.fingerprint, 1)
    renamed = second.materialize({"year": "int64"}, progress=False)
    assert renamed.read([0], ["year"]).to_pylist() == [{"year": 2}]
    write(tmp_path / f"d/year=3/b.{ending}", [{"id": 1, "t": "y"}])
    grown = penstock.open(tmp_path / "d")
    assert grown.was(second.fingerprint, 1)
    assert grown.was(second.sample_index.meta.fingerprint, 1), "of an earlier version"  # type: ignore[union-attr]
    assert [row["year"] for row in grown] == [2, 3]


def test_where_reads_no_file_of_csv_whose_folder_cannot_match(tmp_path: Path) -> None:
    for year in (1, 2):
        write(tmp_path / f"d/year={year}/a.csv", [{"id": year, "t": "x"}])
    ds = penstock.open(tmp_path / "d")
    assert ds.free_fields == {"year"}
    (tmp_path / "d/year=1/a.csv").unlink()
    assert ds.where("year == 2 and id > 0")[:] == [{"id": 2, "t": "x", "year": 2}]


def test_fields_that_a_dataset_leaves_out_stay_out(tmp_path: Path) -> None:
    write(tmp_path / "d/year=1/a.jsonl", [{"id": 0, "t": "x"}])
    index = penstock.open(tmp_path / "d").sample_index
    assert index is not None
    assert JsonlDataset(index, fields=["id"])[:] == [{"id": 0}]
    assert JsonlDataset(index, fields=["id", "year"])[:] == [{"id": 0, "year": 1}]


@pytest.mark.s3
def test_they_are_fields_of_remote_files(s3_server: S3Server, bucket: str) -> None:
    for year in (1, 2):
        s3_server.put(bucket, f"c/year={year}/a.csv", b"id,t\n1,x\n")
        s3_server.put(bucket, f"j/year={year}/a.jsonl", b'{"id": 1}\n')
    for prefix in "cj":
        ds = penstock.open(f"s3://{bucket}/{prefix}", storage_options=s3_server.storage_options)
        assert [row["year"] for row in ds] == [1, 2]
        assert [row["year"] for row in ds.by_blocks()] == [1, 2]


@pytest.mark.parametrize("ending", FORMATS)
def test_records_that_are_shown_without_an_index_have_them(ending: str, tmp_path: Path) -> None:
    write(tmp_path / f"d/year=1/a.{ending}", [{"id": 0, "t": "x"}, {"id": 1, "t": "y"}])
    assert document("show", tmp_path / "d") == [
        {"id": 0, "t": "x", "year": 1}, {"id": 1, "t": "y", "year": 1}
    ]  # fmt: skip
    assert not (tmp_path / "d/index").exists()


def test_the_first_records_of_a_long_file_have_them(tmp_path: Path) -> None:
    path = write(tmp_path / "d/year=1/a.csv", [{"id": 0, "t": "x"}])
    path.write_bytes(path.read_bytes() + b"1,a long text\n" * 1_300_000)
    assert document("show", tmp_path / "d", "0:1") == [{"id": 0, "t": "x", "year": 1}]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_they_are_in_the_profile_though_no_file_has_them(ending: str, tmp_path: Path) -> None:
    for year in (2024, 2025):
        write(tmp_path / "data" / f"year={year}" / f"a.{ending}", [{"id": year}])
    succeed("index", tmp_path / "data", "--profile")
    fields = document("profile", tmp_path / "data")["fields"]
    assert [field["path"] for field in fields] == ["id", "year"]


def test_columns_of_a_release_that_left_them_out_are_not_used(tmp_path: Path) -> None:
    for year in (2024, 2025):
        write(tmp_path / f"year={year}" / "a.jsonl", [{"id": year, "year": None}])
    source = penstock.open(tmp_path)
    source.materialize({"year": "int64"})
    (meta,) = tmp_path.glob("index/columns/*/meta.json")
    facts = json.loads(meta.read_text())
    assert source.index_meta is not None
    meta.write_text(json.dumps(facts | {"fingerprint": source.index_meta.fingerprint}))
    (column,) = list_columns_of(source)
    assert column.stale
