"""A few records of many keep the numbers that they have there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.datasets import RecordsAt, RowsAt
from penstock.errors import RecordIndexError, SchemaMismatchError

IDS = np.array([(1 << 40) + 3, 7, 12], np.int64)
VALUES = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": None, "b": "5"}]


def places() -> tuple[list[str], Any, Any]:
    return ["one.log", "two.log"], np.array([1, 0, 0]), np.array([3, 7, 12])


@pytest.fixture(params=["records", "rows"])
def source(request: pytest.FixtureRequest) -> RecordsAt | RowsAt:
    if request.param == "records":
        return RecordsAt(VALUES, IDS, places)
    return RowsAt(pa.RecordBatch.from_pylist(VALUES), IDS, places)


def test_they_are_read_by_their_numbers(source: RecordsAt | RowsAt) -> None:
    assert source.read(IDS) == VALUES
    assert source.read([12, 12, 7]) == [VALUES[2], VALUES[2], VALUES[1]]
    columns = source.read([7, int(IDS[0])], {"a": "float32"})
    assert columns.to_pydict() == {"a": [2.0, 1.0]}
    assert source.arrow(IDS)["b"].to_pylist() == ["x", "y", "5"]
    assert source.schema.names == ["a", "b"]
    assert (len(source), list(source)) == (3, VALUES)


def test_other_numbers_are_refused(source: RecordsAt | RowsAt) -> None:
    for number in (0, 8, 1 << 50):
        with pytest.raises(RecordIndexError, match=f"record {number:,}"):
            source.read([number])
    with pytest.raises(RecordIndexError):
        RecordsAt([], np.zeros(0, np.int64)).read([0])


def test_an_error_names_the_number(source: RecordsAt | RowsAt) -> None:
    with pytest.raises(SchemaMismatchError, match="record 12"):
        source.read([12], {"b": "int64"})


def test_they_know_where_they_come_from(source: RecordsAt | RowsAt) -> None:
    assert source.files == ["one.log", "two.log"]
    assert tuple(source.location(int(IDS[0]))) == ("two.log", 3, 0)
    assert [part.tolist() for part in source.location(IDS[1:])] == [[0, 0], [7, 12], [0, 0]]
    assert RecordsAt(VALUES, IDS).files == []
