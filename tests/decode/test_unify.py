from __future__ import annotations

import datetime as dt
import logging

import pyarrow as pa
import pytest

from penstock.decode import TypedDecoder, unify
from tests.decode.bad_lines import never


def column(*values: list, types: list[pa.DataType]) -> pa.ChunkedArray:
    """Return the unified column of batches of one column each."""
    batches = [
        pa.record_batch({"a": pa.array(part, type_)})
        for part, type_ in zip(values, types, strict=True)
    ]
    table = unify(batches)
    table.validate(full=True)
    return table["a"]


def test_no_batches_make_a_table_without_rows_and_columns() -> None:
    table = unify([])
    assert (table.num_rows, table.num_columns) == (0, 0)


def test_batches_may_come_from_an_iterator() -> None:
    batch = pa.record_batch({"a": [1]})
    assert unify(iter([batch, batch])).to_pydict() == {"a": [1, 1]}


def test_batches_of_one_schema_keep_it_to_the_letter() -> None:
    schema = pa.schema(
        [
            pa.field("t", pa.timestamp("s"), nullable=False),
            pa.field("d", pa.dictionary(pa.int8(), pa.string())),
        ],
        metadata={"k": "v"},
    )
    decoder = TypedDecoder(schema)
    batches = [decoder.settle(b'{"t":%d,"d":"x%d"}' % (n, n), None, never) for n in range(3)]
    table = unify(batches)
    assert table.schema.equals(schema, check_metadata=True)
    assert table["d"].to_pylist() == ["x0", "x1", "x2"]


def test_a_column_that_is_the_same_in_all_batches_keeps_its_type_beside_others_that_change() -> (
    None
):
    moment = pa.array([dt.date(2020, 1, 1)])
    table = unify(
        [
            pa.record_batch({"d": moment, "n": pa.array([1], pa.int8())}),
            pa.record_batch({"d": moment, "n": pa.array([0.5])}),
            pa.record_batch({"n": pa.array([None])}),
        ]
    )
    assert table.schema.types == [pa.date32(), pa.float64()]
    assert table["d"].to_pylist() == [dt.date(2020, 1, 1)] * 2 + [None]


def test_int64_and_uint64_make_uint64_when_nothing_is_negative() -> None:
    made = column([1, None], [2**64 - 1], types=[pa.int64(), pa.uint64()])
    assert made.type == pa.uint64()
    assert made.to_pylist() == [1, None, 2**64 - 1]


@pytest.mark.parametrize("turned", [False, True])
def test_int64_and_uint64_make_strings_when_something_is_negative(
    turned: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    parts, types = [[-1, None], [2**64 - 1]], [pa.int64(), pa.uint64()]
    if turned:
        parts, types = parts[::-1], types[::-1]
    made = column(*parts, types=types)
    assert made.type == pa.string()
    assert set(made.to_pylist()) == {"-1", None, "18446744073709551615"}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "field 'a' holds negative integers and integers beyond int64" in caplog.text


def test_a_float_among_integers_of_any_sign_and_size_makes_doubles() -> None:
    made = column([-1], [2**63], [0.5], types=[pa.int64(), pa.uint64(), pa.float64()])
    assert made.to_pylist() == [-1.0, 2.0**63, 0.5]


def test_only_a_negative_value_that_is_really_there_counts() -> None:
    hidden = pa.StructArray.from_arrays(
        [pa.array([-1, 5])], names=["x"], mask=pa.array([True, False])
    )
    big = pa.array([{"x": 2**63}], pa.struct({"x": pa.uint64()}))
    table = unify([pa.record_batch({"a": hidden}), pa.record_batch({"a": big})])
    assert table["a"].to_pylist() == [None, {"x": 5}, {"x": 2**63}]


def test_values_become_their_json_text_where_strings_are_needed() -> None:
    made = column(
        [1, -2],
        [0.5, 1e300],
        [True],
        [[1, None]],
        [{"x": None, "y": ["é"]}],
        ["plain"],
        [None],
        types=[
            pa.int64(),
            pa.float64(),
            pa.bool_(),
            pa.list_(pa.int64()),
            pa.struct({"x": pa.int64(), "y": pa.list_(pa.string())}),
            pa.string(),
            pa.null(),
        ],
    )
    assert made.to_pylist() == [
        *("1", "-2", "0.5", "1e+300", "true", "[1,null]", '{"y":["é"]}', "plain", None)
    ]


def test_json_text_leaves_out_fields_that_are_null_since_nobody_knows_if_they_were_written() -> (
    None
):
    type_ = pa.list_(pa.struct({"x": pa.int64(), "y": pa.struct({"z": pa.int64()})}))
    made = column([[{"x": 1}, {"y": {}}, None]], ["s"], types=[type_, pa.string()])
    assert made.to_pylist() == ['[{"x":1},{"y":{}},null]', "s"]


def test_types_that_json_has_not_become_their_plain_text_beside_others() -> None:
    made = column([dt.date(2020, 1, 1)], ["x"], types=[pa.date32(), pa.string()])
    assert made.to_pylist() == ["2020-01-01", "x"]


def test_lists_and_structs_widen_inside_also_when_sliced() -> None:
    early = pa.record_batch(
        {
            "a": pa.array(
                [[{"x": 1}], None, [], [{"x": 2}, None]], pa.list_(pa.struct({"x": pa.int64()}))
            )
        }
    )
    late = pa.record_batch({"a": [[{"x": 0.5, "y": "s"}]]})
    table = unify([early.slice(1, 3), late])
    table.validate(full=True)
    assert table["a"].to_pylist() == [
        None,
        [],
        [{"x": 2.0, "y": None}, None],
        [{"x": 0.5, "y": "s"}],
    ]


def test_batches_without_columns_become_rows_of_nulls() -> None:
    bare = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    table = unify([bare, pa.record_batch({"a": [1]})])
    assert table.to_pylist() == [{"a": None}, {"a": None}, {"a": 1}]


def test_other_widths_of_the_same_kind_are_one_kind() -> None:
    assert column([1], [2], types=[pa.int8(), pa.int32()]).type == pa.int64()
    assert column([1], [2.5], types=[pa.uint8(), pa.float32()]).type == pa.float64()
    assert column(["x"], ["y"], types=[pa.string(), pa.large_string()]).type == pa.string()
    assert column([[1]], [[2]], types=[pa.list_(pa.int64(), 1), pa.list_(pa.int64())]).type == (
        pa.list_(pa.int64())
    )
