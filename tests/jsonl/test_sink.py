"""`penstock.writer`: records or columns into the sink that a path names."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.jsonl import JsonlDir
from tests.jsonl.doors import COMPRESSIONS, names_in, records

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3, "b": None}]
TABLE = pa.Table.from_pylist(ROWS)
(BATCH,) = TABLE.to_batches()
STRUCTURED = np.array([(1, 1.5), (2, 2.5)], [("a", "i4"), ("b", "f8")])


class OnlyAStream:
    """What any library that speaks Arrow's C interface looks like."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.__arrow_c_stream__(requested_schema)


WRITTEN: dict[str, tuple[object, list[Any]]] = {
    "a list": (ROWS, ROWS),
    "a tuple": (tuple(ROWS), ROWS),
    "an iterator": (iter(ROWS), ROWS),
    "one record": (ROWS[0], ROWS[:1]),
    "no records": ([], []),
    "records of any kind": ([[1, 2], 3], [[1, 2], 3]),
    "an Arrow table": (TABLE, ROWS),
    "an Arrow batch": (BATCH, ROWS),
    "an Arrow reader": (TABLE.to_reader(), ROWS),
    "an Arrow stream of another library": (OnlyAStream(), ROWS),
    "a name with a NUL": (pa.record_batch({"a": [1], "a\0": [2]}), [{"a": 1, "a\0": 2}]),
    "Arrow dates": (pa.table({"t": [dt.date(2020, 1, 2)]}), [{"t": "2020-01-02"}]),
    "NumPy columns": (
        {"a": np.arange(3), "b": np.array(["x", "y", "z"])},
        [{"a": 0, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "z"}],
    ),
    "a NumPy matrix": ({"a": np.arange(4).reshape(2, 2)}, [{"a": [0, 1]}, {"a": [2, 3]}]),
    "Arrow and NumPy columns": (
        {"a": pa.array([1, None]), "b": np.array([1.5, 2.5])},
        [{"a": 1, "b": 1.5}, {"a": None, "b": 2.5}],
    ),
    "a chunked column": ({"a": pa.chunked_array([[1], [2]])}, [{"a": 1}, {"a": 2}]),
    "columns without rows": ({"a": np.array([])}, []),
    "a structured array": (STRUCTURED, [{"a": 1, "b": 1.5}, {"a": 2, "b": 2.5}]),
    "a record with a scalar array": ({"a": np.array(5), "b": [1]}, [{"a": 5, "b": [1]}]),
    "a record with an array": ({"a": np.arange(2), "b": 1}, [{"a": [0, 1], "b": 1}]),
    "a record of arrays, in a list": ([{"a": np.arange(2)}], [{"a": [0, 1]}]),
    "an array and a list": (
        {"a": np.arange(2), "b": ["x", "y"]},
        [{"a": 0, "b": "x"}, {"a": 1, "b": "y"}],
    ),
    "an empty record": ({}, [{}]),
}


@pytest.mark.parametrize("what", WRITTEN)
def test_records_and_columns_are_written(what: str, tmp_path: Path) -> None:
    data, expected = WRITTEN[what]
    with penstock.writer(tmp_path / "a.jsonl") as sink:
        sink.write(data)
    assert records(tmp_path / "a.jsonl") == expected


@pytest.mark.parametrize(
    "valid",
    [
        [True, False, True],
        (1, 0, 1),
        np.array([True, False, True]),
        pa.array([True, False, True]),
        pa.chunked_array([[True], [False, True]]),
    ],
    ids=["list", "tuple", "numpy", "arrow", "chunked"],
)
@pytest.mark.parametrize(
    "data",
    [ROWS, TABLE, BATCH, {"a": np.arange(1, 4)}, np.array([(1,), (2,), (3,)], [("a", "i8")])],
    ids=["records", "table", "batch", "columns", "structured"],
)
def test_rows_that_are_not_valid_are_left_out(data: Any, valid: object, tmp_path: Path) -> None:
    with penstock.writer(tmp_path / "a.jsonl") as sink:
        sink.write(data, valid=valid)
    assert [row["a"] for row in records(tmp_path / "a.jsonl")] == [1, 3]


@pytest.mark.parametrize("valid", [True, np.True_, [True], np.array([True])], ids=repr)
def test_a_single_record_may_be_valid_or_not(valid: Any, tmp_path: Path) -> None:
    not_valid = {True: False}.get(valid) if isinstance(valid, bool) else np.logical_not(valid)
    with penstock.writer(tmp_path / "a.jsonl") as sink:
        sink.write({"a": 1}, valid)
        sink.write({"a": 2}, not_valid)
    assert records(tmp_path / "a.jsonl") == [{"a": 1}]


@pytest.mark.parametrize("valid", [[], [True], [True] * 4])
def test_a_mask_of_another_length_is_a_value_error_and_writes_nothing(
    valid: list[bool], tmp_path: Path
) -> None:
    with penstock.writer(tmp_path / "a.jsonl") as sink:
        with pytest.raises(ValueError, match=rf"{len(valid)} values? for 3 rows"):
            sink.write(ROWS, valid)
        with pytest.raises(ValueError, match="2 values for 1 row"):
            sink.write(ROWS[0], [True, True])
    assert records(tmp_path / "a.jsonl") == []


def test_columns_of_different_lengths_are_a_value_error(tmp_path: Path) -> None:
    with (
        penstock.writer(tmp_path / "a.jsonl") as sink,
        pytest.raises(ValueError, match="'a': 2, 'b': 3"),
    ):
        sink.write({"a": np.arange(2), "b": np.arange(3)})


@pytest.mark.parametrize("data", ["text", b"bytes", 5, None, 1.5, object()])
def test_what_is_neither_records_nor_columns_is_a_value_error(data: object, tmp_path: Path) -> None:
    with (
        penstock.writer(tmp_path / "a.jsonl") as sink,
        pytest.raises(ValueError, match=f"cannot write {type(data).__name__}"),
    ):
        sink.write(data)


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_a_path_with_a_jsonl_ending_is_a_file(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl{ending}"
    with penstock.writer(str(path), compression_level=1) as sink:
        assert sink.path == str(path)
        sink.write(ROWS)
    assert records(path) == ROWS
    with pytest.raises(FileExistsError), penstock.writer(path, overwrite=False):
        pytest.fail("entered")


def test_any_other_path_is_a_directory_of_shards(tmp_path: Path) -> None:
    with penstock.writer(tmp_path / "dir", max_records_per_shard=2) as sink:
        assert sink.path == str(tmp_path / "dir")
        sink.write(ROWS)
    assert names_in(tmp_path / "dir") == ["part-00000.jsonl", "part-00001.jsonl"]
    assert records(JsonlDir(tmp_path / "dir")) == ROWS


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "A.PARQUET", "a.avro"])
def test_a_format_that_is_not_written_yet_is_refused_and_not_taken_for_a_directory(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="this release writes") as caught:
        penstock.writer(tmp_path / name)
    assert name in str(caught.value)
    with pytest.raises(ValueError, match="this release writes"):
        penstock.writer("odps://project/table")
    assert names_in(tmp_path) == []


def test_a_sink_publishes_at_the_end_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with pytest.raises(LookupError), penstock.writer(path) as sink:  # noqa: PT012
        sink.write(ROWS)
        raise LookupError
    assert names_in(tmp_path) == []
    sink = penstock.writer(path)
    sink.write(ROWS)
    assert not path.exists()
    sink.close()
    assert records(path) == ROWS


def test_an_unknown_option_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        penstock.writer(tmp_path / "a.jsonl", no_such_option=1)


def test_arrays_and_lists_of_different_lengths_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match=r"write\(\[record\]\)"),
        penstock.writer(tmp_path / "a.jsonl") as sink,
    ):
        sink.write({"embedding": np.arange(8), "tags": ["a", "b"]})


def test_a_file_that_is_there_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("{}\n")
    with pytest.raises(FileExistsError), penstock.writer(path) as sink:
        sink.write({"a": 1})
    assert path.read_text() == "{}\n"
    with penstock.writer(path, overwrite=True) as sink:
        sink.write({"a": 1})
    assert path.read_text() == '{"a":1}\n'
