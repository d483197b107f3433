"""Columns of `text` and `json`: values as Python reads them, by the fast and the careful way."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decode import JSON, TEXT, TypedDecoder, fit_batch, plain_columns, typed_batch
from penstock.errors import SchemaMismatchError
from tests.rounds import rounds

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8"), max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


def texts_of(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def columns(values: list[Any], type_: pa.DataType) -> list[pa.RecordBatch]:
    """Return the values as columns in each way there is."""
    schema = pa.schema({"x": type_})
    rows = [{"x": value} for value in values]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    decoder = TypedDecoder(schema)
    careful = decoder.settle(text, None, lambda *_: None)
    attempted = decoder.attempt(text)
    found = [careful, typed_batch(rows, schema, np.arange(len(rows)))]
    return found if attempted is None else [*found, attempted]


@given(st.lists(VALUES, max_size=5))
@settings(max_examples=rounds(60, 2000), deadline=None)
def test_json_gives_back_every_value(values: list[Any]) -> None:
    for batch in columns(values, JSON):
        (column,) = plain_columns(batch).columns
        assert [None if text is None else json.loads(text) for text in column.to_pylist()] == values


@given(st.lists(SCALARS, max_size=5))
@settings(max_examples=rounds(60, 2000), deadline=None)
def test_text_is_the_string_or_the_json_text(values: list[Any]) -> None:
    for batch in columns(values, TEXT):
        assert plain_columns(batch)["x"].to_pylist() == [*map(texts_of, values)]


@pytest.mark.parametrize("type_", [TEXT, JSON, pa.list_(TEXT), pa.large_list(pa.list_(JSON))])
def test_a_type_survives_a_pickle_a_file_and_a_dictionary(type_: pa.DataType) -> None:
    schema = pa.schema({"x": type_})
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert pa.ipc.read_schema(schema.serialize()) == schema
    assert {type_: 1}[pickle.loads(pickle.dumps(type_))] == 1


def test_arrow_columns_become_text_and_json() -> None:
    batch = pa.record_batch(
        {
            "n": pa.array([1, None], pa.int8()),
            "f": [0.5, math.nan],
            "d": pa.array(["a", "b"]).dictionary_encode(),
            "s": [{"a": 1}, None],
            "l": [["x"], []],
        }
    )
    types = {"n": TEXT, "f": TEXT, "d": TEXT, "s": JSON, "l": pa.list_(JSON)}
    found = plain_columns(fit_batch(batch, pa.schema(types), np.arange(2))).to_pydict()
    assert found == {
        "n": ["1", None],
        "f": ["0.5", "NaN"],
        "d": ["a", "b"],
        "s": ['{"a":1}', None],
        "l": [['"x"'], []],
    }
    with pytest.raises(SchemaMismatchError, match=r"record 7: .*does not fit text") as failure:
        fit_batch(batch, pa.schema({"s": TEXT}), np.array([7, 8]))
    assert failure.value.record == 7  # type: ignore[attr-defined]


def test_a_value_that_is_nested_too_deeply_is_named() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(SchemaMismatchError, match="nested too deeply"):
        typed_batch([{"x": deep}], pa.schema({"x": JSON}), np.arange(1))
