"""The bytes of a column: whatever goes in comes out, by any numbers, and nothing else does."""

from __future__ import annotations

import datetime as dt
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.datasets.columns._folder import (
    ColumnMeta,
    column_name,
    drop_columns,
    find_column,
    list_columns,
    publish_column,
)
from penstock.errors import OptionError

MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001
SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.sampled_from(["", "a", "ä", "long " * 9]) | st.text(max_size=5)),
    (pa.large_string(), st.text(max_size=3)),
    (pa.binary(), st.binary(max_size=4)),
    (pa.large_binary(), st.binary(max_size=4)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.timestamp("us"), MOMENTS),
    (pa.timestamp("us", "UTC"), MOMENTS.map(lambda one: one.replace(tzinfo=dt.UTC))),
    (pa.date32(), st.dates()),
    (pa.duration("s"), st.integers(-1000, 1000).map(lambda n: dt.timedelta(seconds=n))),
    (pa.decimal128(10, 2), st.integers(-999, 999).map(lambda n: Decimal(n) / 100)),
    (pa.null(), st.none()),
]


def _wrapped(
    typed: tuple[pa.DataType, st.SearchStrategy[Any]],
) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    type_, values = typed
    some = st.none() | values
    return st.sampled_from(
        [
            (pa.list_(type_), st.lists(some, max_size=4)),
            (pa.large_list(type_), st.lists(some, max_size=4)),
            (pa.list_(type_, 2), st.lists(some, min_size=2, max_size=2)),
            (pa.struct({"x": type_, "y": pa.int8()}), st.fixed_dictionaries({"x": some})),
        ]
    )


TYPES = st.recursive(st.sampled_from(SCALARS), lambda inner: inner.flatmap(_wrapped), max_leaves=3)


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.DataType, list[pa.Array]]:
    """Return a type and arrays of it, some of them slices of longer ones."""
    type_, values = draw(TYPES)
    rows = values if draw(st.booleans()) else st.none() | values
    arrays = []
    for _ in range(draw(st.integers(0, 3))):
        array = pa.array(draw(st.lists(rows, max_size=8)), type_)
        start = draw(st.integers(0, len(array)))
        arrays.append(array.slice(start, draw(st.integers(0, len(array) - start))))
    return type_, arrays


def published(root: Path, name: str, arrays: list[pa.Array], type_: pa.DataType) -> ColumnMeta:
    return publish_column(
        root,
        pa.field(name, type_),
        arrays,
        fingerprint="f",
        length=sum(map(len, arrays)),
        bad=np.empty(0, np.int64),
    )


@given(columns(), st.data())
def test_what_is_taken_is_what_was_written(
    column: tuple[pa.DataType, list[pa.Array]], data: st.DataObject
) -> None:
    type_, arrays = column
    whole = pa.concat_arrays([pa.array([], type_), *arrays])
    ids = np.array(
        data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=12)) if len(whole) else [],
        np.int64,
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "columns"
        published(root, "a", arrays, type_)
        found = find_column(root, "a", type_)
        assert found is not None
        taken = found.take(ids)
        taken.validate(full=True)
        assert taken.type == type_
        assert taken.to_pylist() == whole.take(pa.array(ids)).to_pylist()
        again = found.take(np.arange(len(whole)))
        assert again.to_pylist() == whole.to_pylist()


def test_nan_and_infinities_stay_what_they_are(tmp_path: Path) -> None:
    values = pa.array([float("nan"), float("inf"), None, -0.0])
    published(tmp_path, "a", [values], values.type)
    found = find_column(tmp_path, "a", values.type)
    assert found is not None
    taken = found.take(np.arange(4))
    assert taken.buffers()[1].to_pybytes()[:16] == values.buffers()[1].to_pybytes()[:16]
    assert taken.is_null().to_pylist() == [False, False, True, False]


def test_texts_that_repeat_are_kept_once(tmp_path: Path) -> None:
    repeated = pa.array(["a text of some length", "another text", None] * 1000)
    distinct = pa.array([f"text number {n}" for n in range(3000)])
    small = published(tmp_path, "small", [repeated, repeated], pa.string())
    large = published(tmp_path, "large", [distinct, distinct], pa.string())
    assert small.bytes < 3 * 6000
    assert large.bytes > 18 * 6000
    for name, array in (("small", repeated), ("large", distinct)):
        column = find_column(tmp_path, name, pa.string())
        assert column is not None
        assert column.take(np.arange(3000, 6000)).to_pylist() == array.to_pylist()


@pytest.mark.parametrize(
    ("low", "high", "width"),
    [(0, 255, 1), (-1, 127, 1), (0, 256, 2), (-129, 0, 2), (0, 2**32 - 1, 4), (-1, 2**32, 8)],
)
def test_integers_are_as_wide_as_they_need(tmp_path: Path, low: int, high: int, width: int) -> None:
    values = pa.array([low, None, high], pa.int64())
    meta = published(tmp_path, "a", [values, values], pa.int64())
    assert meta.bytes == 6 * width + 6
    column = find_column(tmp_path, "a", pa.int64())
    assert column is not None
    assert column.take(np.arange(6)).to_pylist() == [low, None, high] * 2


def test_lists_of_the_same_path_share_their_offsets(tmp_path: Path) -> None:
    prices = pa.array([[1.5, None], None, []], pa.list_(pa.float32()))
    names = pa.array([["a", "b"], None, []])
    others = pa.array([["a"], None, []])
    one = published(tmp_path, "items[].price", [prices], prices.type)
    two = published(tmp_path, "items[].name", [names], names.type)
    three = published(tmp_path, "items[].other", [others], others.type)
    assert one.lists == two.lists != three.lists
    assert one.lists[0].startswith("items[]-offsets-")
    drop_columns(tmp_path, ["items[].price"])
    left = find_column(tmp_path, "items[].name", names.type)
    assert left is not None
    assert left.take(np.arange(3)).to_pylist() == names.to_pylist()
    drop_columns(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_column_replaces_the_one_before_it_and_readers_keep_theirs(tmp_path: Path) -> None:
    published(tmp_path, "a", [pa.array([1, 2])], pa.int64())
    before = find_column(tmp_path, "a", pa.int64())
    published(tmp_path, "a", [pa.array([3])], pa.int64())
    after = find_column(tmp_path, "a", pa.int64())
    assert before is not None
    assert after is not None
    assert before.take(np.array([1])).to_pylist() == [2]
    assert after.take(np.array([0])).to_pylist() == [3]
    assert [path.name for path in tmp_path.iterdir()] == ["a-int64"]


def test_a_field_may_be_a_column_of_several_types(tmp_path: Path) -> None:
    published(tmp_path, "a", [pa.array([1])], pa.int64())
    published(tmp_path, "a", [pa.array([1], pa.int8())], pa.int8())
    assert [(meta.path, meta.type) for meta in list_columns(tmp_path)] == [
        ("a", "int64"),
        ("a", "int8"),
    ]
    assert find_column(tmp_path, "a", pa.int16()) is None


@pytest.mark.parametrize("path", ["../up", "a/b", ".hidden", "ü" * 100, "a\nb", "x" * 500, "%2F"])
def test_any_name_is_a_folder_below_the_root(tmp_path: Path, path: str) -> None:
    root = tmp_path / "columns"
    published(root, path, [pa.array([7])], pa.int64())
    (folder,) = root.iterdir()
    assert folder.name == column_name(path, pa.int64())
    column = find_column(root, path, pa.int64())
    assert column is not None
    assert column.meta.path == path
    assert list_columns(root)[0].path == path


def test_bad_records_are_remembered_in_order(tmp_path: Path) -> None:
    bad = np.array([5, 2])
    publish_column(
        tmp_path,
        pa.field("a", pa.int64()),
        [pa.array([None] * 6, pa.int64())],
        fingerprint="f",
        length=6,
        bad=bad,
    )
    column = find_column(tmp_path, "a", pa.int64())
    assert column is not None
    assert column.bad.tolist() == [2, 5]


@pytest.mark.parametrize("damage", ["cut", "longer", "missing", "meta", "newer", "other type"])
def test_a_damaged_column_is_told_of_and_not_used(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    published(tmp_path, "a", [pa.array([1.5, None, 3])], pa.float64())
    folder = tmp_path / "a-float64"
    values, meta = folder / "values.bin", folder / "meta.json"
    match damage:
        case "cut":
            values.write_bytes(values.read_bytes()[:-1])
        case "longer":
            values.write_bytes(values.read_bytes() + b"x" * 8)
        case "missing":
            values.unlink()
        case "meta":
            meta.write_bytes(meta.read_bytes()[:50])
        case "newer":
            meta.write_text(meta.read_text().replace('"version": 1', '"version": 2'))
        case "other type":
            meta.write_text(meta.read_text().replace('"arrow": "', '"arrow": "!'))
    assert find_column(tmp_path, "a", pa.float64()) is None
    assert "cannot be used" in caplog.text


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    arrays = [pa.array([1]), pa.array(["x"])]
    with pytest.raises(Exception):  # noqa: B017, PT011 (whatever it is)
        published(tmp_path, "a", arrays, pa.list_(pa.int64()))
    assert list(tmp_path.iterdir()) == []


def test_a_type_without_a_column_is_refused(tmp_path: Path) -> None:
    coded = pa.array(["a"]).dictionary_encode()
    with pytest.raises(OptionError, match="cannot be kept as a column"):
        published(tmp_path, "a", [coded], coded.type)


def test_a_file_that_is_not_told_of_is_not_looked_at(tmp_path: Path) -> None:
    values = pa.array([1000, 2000], pa.int64())
    meta = published(tmp_path, "a", [values], pa.int64())
    assert meta.sizes == {"values-u2.bin": 4}
    (tmp_path / "a-int64" / "values-u1.bin").write_bytes(b"\0\0")
    (tmp_path / "a-int64" / "valid.bin").write_bytes(b"\0\0")
    column = find_column(tmp_path, "a", pa.int64())
    assert column is not None
    assert column.take(np.array([1, 0])).to_pylist() == [2000, 1000]


def test_damaged_offsets_are_replaced_by_the_next_column_that_has_them(tmp_path: Path) -> None:
    values = pa.array([[1], [], [2, 3]])
    published(tmp_path, "a", [values], values.type)
    (offsets,) = tmp_path.glob("*-offsets-*/offsets-i4.bin")
    offsets.write_bytes(offsets.read_bytes()[:-4])
    assert find_column(tmp_path, "a", values.type) is None
    published(tmp_path, "a", [values], values.type)
    column = find_column(tmp_path, "a", values.type)
    assert column is not None
    assert column.take(np.arange(3)).to_pylist() == values.to_pylist()
