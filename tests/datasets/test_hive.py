"""Folders called `year=2024` are fields of the table files in them."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, orc

import penstock
from penstock.datasets import ParquetRows
from penstock.errors import SchemaMismatchError
from penstock.tables import partitions_of
from tests.cli.commands import document, invoke, succeed
from tests.datasets.sample import Record, filled, sample_records
from tests.datasets.source_contract import SourceContract

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.datasets import Source
    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

NULL = "__HIVE_DEFAULT_PARTITION__"


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))


def write(path: Path, columns: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    rows = [
        {"id": n, "year": 2023 + n % 2, "city": ["Köln/Süd", "a b", None][n % 3], "x": n / 2}
        for n in range(24)
    ]
    pq.write_to_dataset(
        pa.Table.from_pylist(rows), str(tmp_path / "sales"), partition_cols=["year", "city"]
    )
    return tmp_path / "sales"


class TestPartitions(SourceContract):
    @pytest.fixture
    def expected(self) -> list[Record]:
        return [
            {**record, "month": 1 + number // 30, "place": None if number < 30 else "b c"}
            for number, record in enumerate(filled(sample_records(60)))
        ]

    @pytest.fixture
    def open_source(self, tmp_path: Path, expected: list[Record]) -> Callable[[], Source]:
        table = pa.Table.from_pylist(expected).drop_columns(["month", "place"])
        for start, folder in ((0, f"month=01/place={NULL}"), (30, "month=02/place=b%20c")):
            path = tmp_path / "d" / folder / "a.parquet"
            path.parent.mkdir(parents=True)
            pq.write_table(table.slice(start, 30), path, row_group_size=7)
        return lambda: ParquetRows(tmp_path / "d")


def test_records_are_those_that_pyarrow_reads_with_hive_partitioning(sales: Path) -> None:
    ds = penstock.open(sales)
    assert ds.schema.names == ["id", "x", "year", "city"]
    assert ds.schema.types == [pa.int64(), pa.float64(), pa.int64(), pa.string()]
    expected = pads.dataset(sales, partitioning="hive").to_table().to_pylist()
    assert sorted(ds[:], key=lambda row: row["id"]) == sorted(expected, key=lambda row: row["id"])
    assert ds.arrow(fields=["year"]).column(0).to_pylist() == [row["year"] for row in ds]


@pytest.mark.parametrize("ending", ["feather", "orc"])
def test_other_files_of_tables_have_the_fields_of_their_folders(
    ending: str, tmp_path: Path
) -> None:
    for year in (1, 2):
        folder = tmp_path / "d" / f"year={year}"
        folder.mkdir(parents=True)
        writer = feather.write_feather if ending == "feather" else orc.write_table
        writer(pa.table({"id": [year, -year]}), str(folder / f"a.{ending}"))
    ds = penstock.open(tmp_path / "d")
    assert [(row["id"], row["year"]) for row in ds] == [(1, 1), (-1, 1), (2, 2), (-2, 2)]
    assert ds.where("year == 2 and id < 0")[:] == [{"id": -2, "year": 2}]


def test_a_file_that_has_the_column_itself_keeps_it(tmp_path: Path) -> None:
    write(tmp_path / "d/year=1/a.parquet", {"year": [7], "id": [0]})
    write(tmp_path / "d/year=2/b.parquet", {"id": [1]})
    assert penstock.open(tmp_path / "d")[:] == [{"year": 7, "id": 0}, {"year": 2, "id": 1}]
    write(tmp_path / "d/year=3/c.parquet", {"year": [date(2024, 1, 1)], "id": [2]})
    with pytest.raises(SchemaMismatchError, match=r"'year' is int64 .*date32"):
        penstock.open(tmp_path / "d")
    assert document("check", tmp_path / "d", code=1)["kinds"] == {"differing schema": 1}


def test_where_reads_no_file_whose_folder_cannot_match(sales: Path) -> None:
    ds = penstock.open(sales)
    expected = {
        "year == 2024 and x > 4": lambda row: row["year"] == 2024 and row["x"] > 4,
        "not (year != 2023) and x <= 9": lambda row: row["year"] == 2023 and row["x"] <= 9,
        "city is null and x > 1": lambda row: row["city"] is None and row["x"] > 1,
        "city == 'a b' or x < 2": lambda row: row["city"] == "a b" or row["x"] < 2,
        "year == 2023 and x is not null": lambda row: row["year"] == 2023,
        "year == 1999 and x > 0": lambda row: row["year"] == 1999,
    }
    for text, holds in expected.items():
        assert ds.where(text)[:] == [row for row in ds if holds(row)], text
    for path in (sales / "year=2023").rglob("*.parquet"):
        whole = path.read_bytes()
        footer = int.from_bytes(whole[-8:-4], "little") + 8
        path.write_bytes(bytes(len(whole) - footer) + whole[-footer:])
    broken = penstock.open(sales)
    assert len(broken.where("year == 2024 and x >= 0")) == 12
    with pytest.raises(OSError, match="row group 0 cannot be read"):
        broken.where("x >= 0")
    with pytest.raises(ValueError, match="it has no '==' with the text"):
        broken.where("year == 1999 and x == 'a'")


def test_partitions_are_fields_of_batches_columns_and_commands(sales: Path) -> None:
    ds = penstock.open(sales)
    for materialize in (True, False):
        fields = {"year": "int32", "city": "string", "id": "int64"}
        loader = penstock.DataLoader(
            ds, fields, batch_size=8, shuffle=True, materialize=materialize, num_workers=0
        )
        for batch in loader:
            rows = ds[batch.ids.numpy()]
            assert batch["year"].tolist() == [row["year"] for row in rows]
            assert batch["city"] == [row["city"] for row in rows]
    assert ds.value_counts("city") == {"Köln/Süd": 8, "a b": 8}
    shown = document("show", sales, "0:2")
    assert [one["year"] for one in shown] == [2023, 2023]
    assert "city    string" in succeed("info", sales)
    profiled = document("profile", sales)
    assert {"year", "city"} <= {field["path"] for field in profiled["fields"]}
    assert invoke("check", sales).exit_code == 0


def test_only_folders_below_what_is_opened_count(tmp_path: Path) -> None:
    write(tmp_path / "run=1/d/year=1/a.parquet", {"id": [0]})
    write(tmp_path / "run=1/d/year=2/b.parquet", {"id": [1]})
    base = tmp_path / "run=1/d"
    both = [{"id": 0, "year": 1}, {"id": 1, "year": 2}]
    assert penstock.open(base)[:] == both
    assert penstock.open(str(base / "*/*.parquet").replace("[", "[[]"))[:] == both
    assert penstock.open([base / "year=1", base / "year=2"])[:] == both
    assert penstock.open(base / "year=1")[:] == [{"id": 0}]
    assert penstock.open(base / "year=1/a.parquet")[:] == [{"id": 0}]
    assert ParquetRows(base, columns=["year"])[:] == [{"year": 1}, {"year": 2}]


def test_another_value_of_a_folder_is_another_fingerprint(tmp_path: Path) -> None:
    write(tmp_path / "d/year=1/a.parquet", {"id": [0]})
    first = penstock.open(tmp_path / "d")
    Path(tmp_path / "d/year=1").rename(tmp_path / "d/year=2")
    assert penstock.open(tmp_path / "d").fingerprint != first.fingerprint
    second = penstock.open(tmp_path / "d")
    write(tmp_path / "d/year=3/b.parquet", {"id": [1]})
    assert penstock.open(tmp_path / "d").was(second.fingerprint, 1)
    write(tmp_path / "d/year=x/c.parquet", {"id": [2]})
    mixed = penstock.open(tmp_path / "d")
    assert [row["year"] for row in mixed] == ["2", "3", "x"]
    assert not mixed.was(second.fingerprint, 1)


@pytest.mark.parametrize(
    ("folders", "types", "values"),
    [
        (["a=1", "a=-02"], [pa.int64()], [1, -2]),
        (["a=1", f"a={NULL}"], [pa.int64()], [1, None]),
        ([f"a={NULL}"], [pa.string()], [None]),
        (["a=1", "a=1.5"], [pa.string()], ["1", "1.5"]),
        (["a=1", "a="], [pa.string()], ["1", ""]),
        (["a=9223372036854775808"], [pa.string()], ["9223372036854775808"]),
        (["a=x%3Dy=z"], [pa.string()], ["x=y=z"]),
        (["a=%25"], [pa.string()], ["%"]),
        (["=1", "b"], [], []),
    ],
)
def test_values_are_integers_if_all_are_and_else_decoded_texts(
    folders: list[str], types: list[pa.DataType], values: list[int | str | None]
) -> None:
    schema, found = partitions_of([f"{folder}/x.parquet" for folder in folders])
    assert schema.types == types
    assert [one["a"] for one in found if one] == values


@given(st.lists(st.integers(-(10**17), 10**17), min_size=1))
def test_any_integers_come_back(numbers: list[int]) -> None:
    schema, found = partitions_of([f"n={number}/a" for number in numbers])
    assert schema == pa.schema({"n": pa.int64()})
    assert [one["n"] for one in found] == numbers


@pytest.mark.parametrize("path", ["a=%ff/x", "a=\udcff/x", "a=1/a=2/x"])
def test_names_without_a_single_meaning_are_refused(path: str) -> None:
    with pytest.raises(SchemaMismatchError, match="Rename"):
        partitions_of([path])


@pytest.mark.s3
def test_partitions_of_remote_files_cost_no_request(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    for year in (1, 2):
        write(tmp_path / "a.parquet", {"id": np.arange(year)})
        s3_server.put(bucket, f"d/year={year}/a.parquet", (tmp_path / "a.parquet").read_bytes())
    rows = ParquetRows(f"s3://{bucket}/d", storage_options=fault_proxy.storage_options)
    fault_proxy.clear()
    for source in (rows, rows.by_blocks()):
        assert source.read([0, 2], ["year"]).column(0).to_pylist() == [1, 2]
    assert fault_proxy.count() == 0
    assert (
        rows.by_blocks()[:]
        == rows[:]
        == [{"id": 0, "year": 1}, {"id": 0, "year": 2}, {"id": 1, "year": 2}]
    )
