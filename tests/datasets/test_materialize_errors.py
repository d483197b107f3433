"""Values that do not fit: an error that says where, null, or set aside."""

from __future__ import annotations

import gzip
import logging
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import penstock
from penstock.datasets import (
    Source,
    columns_of,
    drop_columns_of,
    list_columns_of,
    typed_schema,
)
from penstock.datasets._memory import ListSource
from penstock.datasets.columns._bad import decoded
from penstock.errors import BadRecordsError, MalformedLineError, SchemaMismatchError
from tests.datasets.materialize_samples import lines, records, same

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FIELDS = {"id": "int64", "price": "float32", "name": "string"}


def with_bad(path: Path, count: int = 300) -> Source:
    """Write records in three of which something is wrong, and open them."""
    some = lines(records(0, count)).splitlines(keepends=True)
    some[7] = '{"id": "seven", "price": 7, "name": "seven"}\n'
    some[8] = '{"id": 8, "price": 1e300, "name": 8}\n'
    some[200] = '{"id": 200, "price"\n'
    text = "\n" + "".join(some)  # A line that is no record counts as a line.
    data = text.encode()
    if path.name.endswith(".zst"):
        data = b"".join(
            zstandard.ZstdCompressor().compress(data[at : at + 5000])
            for at in range(0, len(data), 5000)
        )
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return penstock.open(path)


ENDS = [".jsonl", ".jsonl.zst", ".jsonl.gz"]


@pytest.mark.parametrize(("end", "workers"), [(".jsonl", 1), *((end, 0) for end in ENDS)])
def test_an_error_names_record_file_line_value_and_what_to_do(
    end: str, workers: int, tmp_path: Path
) -> None:
    path = tmp_path / f"a{end}"
    source = with_bad(path)
    with pytest.raises(SchemaMismatchError) as raised:
        source.materialize({"id": "int64"}, workers=workers)
    told = raised.value
    for part in ("record 7 ", "'seven'", "int64", f"{path}, line 9", "on_error='null'"):
        assert part in str(told)
    assert vars(told)["record"] == 7
    assert vars(told)["line_number"] == 9
    assert vars(told)["path"] == str(path)
    assert vars(told)["offset"] == source.location(7).offset
    with pytest.raises(MalformedLineError, match="line 202,") as malformed:
        source.materialize({"user.age": "int8"}, workers=workers)
    assert vars(malformed.value)["record"] == 200
    assert [*tmp_path.rglob(".penstock-building-*")] == []
    assert list_columns_of(source) == []


def test_an_error_in_a_table_names_file_and_row(tmp_path: Path) -> None:
    table = pa.table({"n": [*range(100), 1000]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=30)
    source = penstock.open(tmp_path / "a.parquet")
    with pytest.raises(
        SchemaMismatchError, match=r"row 100 of .*a\.parquet\).*1000.*int8"
    ) as raised:
        source.materialize({"n": "int8"})
    assert vars(raised.value)["record"] == 100
    with pytest.raises(SchemaMismatchError, match="record 100") as in_memory:
        penstock.open(table).materialize({"n": "int8"})
    assert "path" not in vars(in_memory.value)


def test_a_row_of_csv_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\n1,"two\nlines"\n2,x\n300,y\n')
    with pytest.raises(SchemaMismatchError, match=r"a\.csv, line 5,.*'300'"):
        penstock.open(tmp_path / "a.csv").materialize({"id": "int8"})


@pytest.mark.parametrize("end", ENDS)
def test_null_takes_the_place_of_bad_values_and_of_nothing_else(
    end: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = with_bad(tmp_path / f"a{end}")
    with caplog.at_level(logging.WARNING, "penstock.datasets"):
        columns = source.materialize(FIELDS, on_error="null")
    assert "field 'id': 2 values that do not fit int64 are null" in caplog.text
    ids = np.array([200, 7, 8, 9, 6])
    assert columns.read(ids, FIELDS).to_pydict() == {
        "id": [None, None, 8, 9, 6],
        "price": [None, 7.0, None, 2.25, 1.5],
        "name": [None, "seven", None, "näme 9", "näme 6"],
    }
    assert {c.meta.path: c.meta.nulled for c in list_columns_of(source)} == {
        "id": 2, "price": 2, "name": 2,
    }  # fmt: skip
    # Nobody takes them for exact ones.
    assert columns_of(source, typed_schema(FIELDS)) is None
    # They are found again.
    created = [column.meta.created for column in list_columns_of(source)]
    source.materialize(FIELDS, on_error="null")
    assert [column.meta.created for column in list_columns_of(source)] == created


def test_null_is_null_also_when_the_columns_are_gone(tmp_path: Path) -> None:
    source = with_bad(tmp_path / "a.jsonl")
    columns = source.materialize(FIELDS, on_error="null")
    mixed = {"id": "int64", "flag": "bool", "name": "string"}
    ids = [7, 8, 9]
    asked = (FIELDS, mixed)
    before = [columns.read(ids, fields) for fields in asked]
    again = source.materialize(FIELDS, on_error="null")
    drop_columns_of(source)
    after = [again.read(ids, fields) for fields in asked]
    assert all(map(same, before, after))


def test_a_field_without_bad_values_has_an_exact_column_under_null(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(lines([{"a": 1, "b": "x"}, {"a": "y", "b": "z"}]))
    source = penstock.open(tmp_path)
    source.materialize({"a": "int8", "b": "string"}, on_error="null")
    assert columns_of(source, typed_schema({"b": "string"})) is not None
    assert columns_of(source, typed_schema({"a": "int8"})) is None


def test_masked_records_are_errors_to_whoever_reads_them(tmp_path: Path) -> None:
    source = with_bad(tmp_path / "a.jsonl")
    columns = source.materialize(FIELDS, on_error="mask")
    good = np.setdiff1d(np.arange(300), [7, 8, 200])
    assert same(columns.read(good, FIELDS), source.read(good, FIELDS))
    assert {c.meta.path: c.meta.bad for c in list_columns_of(source)} == {
        "id": 2, "price": 2, "name": 2,
    }  # fmt: skip
    for bad in (7, 8, 200):
        with pytest.raises((SchemaMismatchError, MalformedLineError)) as plain:
            source.read([3, bad], FIELDS)
        with pytest.raises(type(plain.value)) as raised:
            columns.read([3, bad], FIELDS)
        assert vars(raised.value)["record"] == bad
    # What is not bad of a bad record can be read.
    assert columns.read([7], {"name": "string"}).to_pydict() == {"name": ["seven"]}
    # It is exact, so everybody may use it; who does not want bad values is told of them.
    assert columns_of(source, typed_schema(FIELDS)) is not None
    with pytest.raises(SchemaMismatchError, match="jsonl, line 9,"):
        source.materialize({"id": "int64"})
    nulled = source.materialize({"id": "int64"}, on_error="null")
    assert nulled.read([7], {"id": "int64"}).to_pydict() == {"id": [None]}


def test_too_many_bad_records_are_not_set_aside(tmp_path: Path) -> None:
    some = [{"n": k if k % 20 else "x"} for k in range(2200)]
    (tmp_path / "a.jsonl").write_text(lines(some))
    source = penstock.open(tmp_path)
    with pytest.raises(
        BadRecordsError, match=r"101 records or more.*at most 100.*record 0 .*field .n. holds .x."
    ):
        source.materialize({"n": "int64"}, on_error="mask")
    columns = source.materialize({"n": "int64"}, on_error="null")
    assert columns.read([0, 1, 20], {"n": "int64"}).to_pydict() == {"n": [None, 1, None]}
    assert list_columns_of(source)[0].meta.nulled == 110


@pytest.mark.parametrize("share", [0.001, 0.02, 0.3, 1.0])
def test_each_record_is_read_a_few_times_however_many_are_bad(share: float) -> None:
    class Counting(ListSource):
        read_so_far = 0

        def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
            self.read_so_far += len(ids)
            return super()._columns(ids, schema)

    count = 4000
    is_bad = np.random.default_rng(3).random(count) < share
    source = Counting({"n": "x" if bad else n, "m": n} for n, bad in enumerate(is_bad))
    schema = pa.schema({"n": pa.int16(), "m": pa.int32()})
    columns, bad = decoded(source, np.arange(count), schema, "null", 0)
    assert bad == {"n": np.flatnonzero(is_bad).tolist()}
    assert columns["m"].to_pylist() == [*range(count)]
    wanted = [None if bad else n for n, bad in enumerate(is_bad)]
    assert columns["n"].to_pylist() == wanted
    assert source.read_so_far < 10 * count
