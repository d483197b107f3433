"""Arrow columns and Python values fit a type exactly when their JSON text does."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decode import TypedDecoder
from penstock.decode._fit import fit_batch
from penstock.decode._values import inferred_batch, typed_batch
from penstock.errors import SchemaMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable

edges = st.sampled_from(
    [0, -1, 127, 128, 255, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1]
)
numbers = st.floats(allow_nan=False) | st.sampled_from([0.0, 2.0, 1e300, -1.5, 2.0**53, 2.0**60])
texts = st.sampled_from(["", "1", "1.5", "é", "2024-01-02", "2024-01-02T03:04:05", "12:30:00", "x"])
scalars = st.sampled_from([st.integers(-300, 300) | edges, numbers, texts, st.booleans()])
leaf_types = [
    *(pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.bool_(), pa.string(), pa.large_string(), pa.binary()),
    *(pa.date32(), pa.timestamp("us"), pa.timestamp("s"), pa.time64("us"), pa.duration("ms")),
    *(pa.decimal128(10, 2), pa.dictionary(pa.int32(), pa.string()), pa.null()),
]
types = st.sampled_from(leaf_types).flatmap(
    lambda leaf: st.sampled_from(
        [leaf, pa.list_(leaf), pa.large_list(leaf), pa.list_(leaf, 2), pa.struct({"x": leaf})]
    )
)


@st.composite
def columns(draw: st.DrawFn) -> list[Any]:
    """Draw the values of a column that agree on their type, nulls aside."""
    some = st.none() | draw(scalars)
    nested = [some, st.lists(some, max_size=3), st.fixed_dictionaries({}, optional={"x": some})]
    return draw(st.lists(st.none() | draw(st.sampled_from(nested)), min_size=1, max_size=6))


class Refused(Exception):  # noqa: N818 (an answer, not an error)
    """The text of a record does not fit."""


def from_text(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch | None:
    text = b"".join(json.dumps(row).encode() + b"\n" for row in rows)

    def refuse(_index: int, _line: bytes, _why: Exception) -> None:
        raise Refused

    try:
        return TypedDecoder(schema).settle(text, None, refuse)
    except Refused:
        return None


def unless_refused(
    make: Callable[..., pa.RecordBatch], *arguments: object
) -> pa.RecordBatch | None:
    try:
        batch = make(*arguments)
    except SchemaMismatchError:
        return None
    batch.validate(full=True)
    return batch


def same(one: pa.RecordBatch | None, other: pa.RecordBatch | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.schema != other.schema or one.equals(other):
        return bool(one.schema == other.schema)
    # As texts, NaN is what it is; years beyond 9999 were compared above.
    return repr(one.to_pylist()) == repr(other.to_pylist())


@given(columns(), types)
def test_values_fit_when_their_text_does(values: list[Any], type_: pa.DataType) -> None:
    schema, rows = pa.schema({"v": type_}), [{"v": value} for value in values]
    made = unless_refused(typed_batch, rows, schema, np.arange(len(rows)))
    assert same(made, from_text(rows, schema))


@given(columns(), types)
def test_arrow_columns_fit_when_their_text_does(values: list[Any], type_: pa.DataType) -> None:
    schema, rows = pa.schema({"v": type_}), [{"v": value} for value in values]
    arrow = inferred_batch(rows)
    as_rows = arrow.to_pylist()
    if repr([row["v"] for row in as_rows]) != repr(_with_nulls(values)):
        return  # Some integers are too wide for one type, and have become text.
    made = unless_refused(fit_batch, arrow, schema, np.arange(len(rows)))
    assert same(made, from_text(as_rows, schema))


def _with_nulls(values: list[Any]) -> list[Any]:
    has_x = any(isinstance(value, dict) and "x" in value for value in values)
    return [{"x": v.get("x")} if isinstance(v, dict) and has_x else v for v in values]


def test_types_that_json_does_not_have_fit_their_own_family() -> None:
    day = dt.date(2024, 1, 2)
    batch = pa.record_batch(
        {
            "ns": pa.array([1_000_000], pa.timestamp("ns")),
            "day": pa.array([day]),
            "amount": pa.array([decimal.Decimal("2.50")]),
            "kind": pa.array(["a"]).dictionary_encode(),
            "raw": pa.array([b"text"]),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    wanted = pa.schema(
        {
            "ns": pa.timestamp("us"),
            "day": pa.timestamp("s"),
            "amount": pa.float32(),
            "kind": pa.string(),
            "raw": pa.string(),
            "map": pa.map_(pa.large_string(), pa.int8()),
        }
    )
    assert fit_batch(batch, wanted, np.arange(1)).to_pylist() == [
        {
            "ns": dt.datetime(1970, 1, 1, 0, 0, 0, 1000),  # noqa: DTZ001 (no zone in the data)
            "day": dt.datetime(2024, 1, 2),  # noqa: DTZ001 (no zone in the data)
            "amount": 2.5,
            "kind": "a",
            "raw": "text",
            "map": [("k", 1)],
        }
    ]


@pytest.mark.parametrize(
    ("array", "type_", "value"),
    [
        (pa.array([0, 1_500], pa.timestamp("ns")), pa.timestamp("us"), "Timestamp|1500|datetime"),
        (pa.array([b"ok", b"\xff"]), pa.string(), r"b'\\xff'"),
        (pa.array([decimal.Decimal("1.0"), decimal.Decimal("2.5")]), pa.int8(), "2.5"),
        (pa.array([None, dt.date(2024, 1, 2)]), pa.int64(), "2024, 1, 2"),
        (pa.array([[1], [1, 2]]), pa.list_(pa.int64(), 1), r"\[1, 2\]"),
        (pa.array([[1], [1, None]]), pa.list_(pa.field("item", pa.int8(), False)), "None"),  # noqa: FBT003
        (pa.array([{"x": 1}, {"x": None}]), pa.struct([pa.field("x", pa.int8(), False)]), "None"),  # noqa: FBT003
        (pa.array([None, {"x": 1}]), pa.map_(pa.string(), pa.int8()), "'x': 1"),
        (pa.array([1.0, float("nan")]), pa.int8(), "nan"),
        (pa.array([1.0, 1e5]), pa.float16(), "100000"),
    ],
)
def test_the_first_value_that_does_not_fit_is_named(
    array: pa.Array, type_: pa.DataType, value: str
) -> None:
    batch = pa.RecordBatch.from_arrays([array], names=["v"])
    with pytest.raises(SchemaMismatchError, match=f"record 70: field 'v.*(?:{value})") as raised:
        fit_batch(batch, pa.schema({"v": type_}), np.array([60, 70]))
    assert raised.value.record == 70


def test_a_null_where_none_may_be_is_named() -> None:
    batch = pa.record_batch({"v": [1, None]})
    with pytest.raises(SchemaMismatchError, match=r"record 1: field 'v' holds None.*not null"):
        fit_batch(batch, pa.schema([pa.field("v", pa.int8(), nullable=False)]), np.arange(2))
