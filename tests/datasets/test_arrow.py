"""Sources as Arrow: nothing is lost, and other libraries take them as they are."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from penstock.datasets._arrow import ROWS, stream_of, table_of, whole_schema
from penstock.datasets._memory import ListSource
from penstock.datasets._table_source import TableSource
from tests.datasets.sample import Record, filled, sample_records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


class Repeating(ListSource):
    """Many records of which few are in memory: the sample, and a last one of its own."""

    def __init__(self, records: list[Record], times: int, last: Record) -> None:
        super().__init__(records)
        self.times, self.last = times, last
        self.reads = 0

    def __len__(self) -> int:
        return len(self._list) * self.times + 1

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        self.reads += 1
        return [
            self.last if i == len(self) - 1 else self._list[i % len(self._list)]
            for i in ids.tolist()
        ]


LATE: Mapping[str, Any] = {"id": 0.5, "user": {"new": [{"x": 1}]}, "very_late": True}


@pytest.fixture
def late() -> Repeating:
    """Return a source whose last record, two batches on, widens the schema."""
    return Repeating(sample_records(100), 700, dict(LATE))


def test_a_late_field_is_in_the_table_and_in_the_stream(late: Repeating) -> None:
    assert len(late) > ROWS
    table = late.arrow()
    assert table.num_rows == len(late)
    assert table.schema.field("id").type == pa.float64()
    assert table["very_late"].to_pylist() == [None] * (len(late) - 1) + [True]
    last = table.slice(len(late) - 1).to_pylist()[0]
    assert last["user"] == {"age": None, "home": None, "new": [{"x": 1}]}
    assert pa.table(late).equals(table)
    assert late.schema != table.schema == whole_schema(late)


def test_a_stream_has_one_schema_and_whole_batches(late: Repeating) -> None:
    with stream_of(late) as stream:
        batches = list(stream)
        assert [batch.num_rows for batch in batches] == [ROWS, len(late) - ROWS]
        assert all(batch.schema == stream.schema for batch in batches)


def test_the_whole_schema_is_looked_for_once(late: Repeating) -> None:
    assert whole_schema(late)
    reads = late.reads
    assert whole_schema(late)
    assert late.reads == reads
    assert pa.table(late).num_rows == len(late)
    assert late.reads == reads + 2


def test_fields_of_mixed_types_are_the_same_in_table_and_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mixed = [{"v": 1}, {"v": "one"}, {"v": [1, None]}, {"v": -1, "w": 2**64 - 1}]
    source = Repeating(mixed, ROWS // 4 + 1, {"v": {"a": 1}, "w": -1})
    table = source.arrow()
    assert table.schema == pa.schema({"v": pa.string(), "w": pa.string()})
    assert table["v"].to_pylist()[:4] == ["1", "one", "[1,null]", "-1"]
    assert table["v"].to_pylist()[-1] == '{"a":1}'
    assert table["w"].to_pylist()[3] == str(2**64 - 1)
    assert pa.table(source).equals(table)
    assert "'v' holds" in caplog.text


def test_a_source_that_knows_its_schema_is_read_once() -> None:
    reads = []

    class Counting(TableSource):
        def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
            reads.append(len(ids))
            return super()._columns(ids, schema)

    table = pa.table({"a": np.arange(ROWS + 3)})
    assert pa.table(Counting(table)).equals(table)
    assert reads == [ROWS, 3]


def test_no_records_are_a_table_without_rows() -> None:
    empty = pa.schema({"a": pa.int8()}).empty_table()
    for source in (TableSource(empty), TableSource(empty).take([])):
        assert source.arrow().equals(empty)
        assert pa.table(source).equals(empty)
        assert table_of(source, {"b": "int8"}).schema == pa.schema({"b": pa.int8()})
    nothing = ListSource([])
    assert nothing.arrow().num_rows == 0
    assert pa.table(nothing).num_rows == 0


def test_a_schema_that_is_forgotten_frees_its_source() -> None:
    from penstock.datasets._arrow import _wholes

    source = ListSource([{"a": 1}])
    assert pa.table(source).num_rows == 1
    assert source in _wholes
    before = len(_wholes)
    del source
    gc.collect()
    assert len(_wholes) < before


def test_polars_takes_a_source(late: Repeating) -> None:
    frame = pl.DataFrame(late)
    assert frame.shape == (len(late), 10)
    assert frame["very_late"].drop_nulls().to_list() == [True]
    assert frame.head(100).to_dicts()[3]["name"] == sample_records(4)[3]["name"]


def test_pandas_takes_a_source(late: Repeating) -> None:
    frame = pd.DataFrame.from_arrow(late)
    assert frame.shape == (len(late), 10)
    assert frame["score"].sum() == pa.table(late).to_pandas()["score"].sum()


def test_duckdb_takes_a_source(late: Repeating) -> None:
    count, flag, ages = duckdb.sql(
        "select count(*), max(very_late), sum(late.user.age) from late"
    ).fetchall()[0]
    table = late.arrow()
    expected = sum(user["age"] or 0 for user in table["user"].to_pylist() if user)
    assert (count, flag, ages) == (len(late), True, expected)


def test_frames_come_back_as_they_went() -> None:
    records = filled(sample_records(50))
    frame = pl.DataFrame(records, infer_schema_length=None)
    assert pl.DataFrame(TableSource(frame)).equals(frame)
    flat = pd.DataFrame([{"a": i, "b": i / 2, "c": str(i)} for i in range(9)])
    pd.testing.assert_frame_equal(pd.DataFrame.from_arrow(TableSource(flat)), flat)


def test_a_record_that_breaks_in_the_stream_is_an_error_and_no_short_table() -> None:
    class Breaking(ListSource):
        broken = False

        def _records(self, ids: NDArray[np.int64]) -> list[Any]:
            if self.broken and ids[-1] > ROWS:
                raise ValueError("record 70,000 is gone")
            return super()._records(ids)

    source = Breaking([{"a": 1}] * (ROWS + 10_000))
    stream = pa.RecordBatchReader.from_stream(source)
    source.broken = True
    with pytest.raises((ValueError, OSError, pa.ArrowException), match="record 70,000 is gone"):
        stream.read_all()
