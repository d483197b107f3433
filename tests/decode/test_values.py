"""Python records become the columns that their JSON text would."""

from __future__ import annotations

import datetime as dt
import enum
import json
import logging
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given

from penstock.decode import JSON, TEXT, InferringDecoder
from penstock.decode._values import inferred_batch, typed_batch
from penstock.errors import SchemaMismatchError
from tests.decode.json_values import records

if TYPE_CHECKING:
    from collections.abc import Mapping


def _fail(_index: int, _line: bytes, why: Exception) -> None:
    raise why


@given(records())
def test_inference_agrees_with_that_of_text(rows: list[dict[str, Any]]) -> None:
    text = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    wanted = InferringDecoder().settle(text, None, _fail)
    made = inferred_batch(rows)
    assert made.schema == wanted.schema
    assert repr(made.to_pylist()) == repr(wanted.to_pylist())


class Colour(enum.IntEnum):
    RED = 1


def test_what_stands_for_a_json_value_is_one() -> None:
    odd: list[Mapping[str, Any]] = [
        types.MappingProxyType({"n": np.int8(1), "xs": (1, 2), "u": {"a": np.bool_(True)}}),  # noqa: FBT003
        {"n": Colour.RED, "xs": np.array([3.5]), "u": types.MappingProxyType({"a": False})},
        {"n": None, "xs": None, "s": np.str_("text")},
        {"n": torch.tensor(2), "xs": torch.tensor([4.5]), "ws": {"z", "a", "k"}},
    ]
    plain = [
        {"n": 1, "xs": [1, 2], "u": {"a": True}},
        {"n": 1, "xs": [3.5], "u": {"a": False}},
        {"n": None, "xs": None, "s": "text"},
        {"n": 2, "xs": [4.5], "ws": ["a", "k", "z"]},
    ]
    assert inferred_batch(odd).equals(inferred_batch(plain))
    schema = inferred_batch(plain).schema
    assert typed_batch(odd, schema, np.arange(4)).equals(typed_batch(plain, schema, np.arange(4)))
    for any_ in (JSON, TEXT):
        own = pa.schema({"n": any_, **({"xs": any_, "ws": any_} if any_ == JSON else {})})
        assert typed_batch(odd, own, np.arange(4)).equals(typed_batch(plain, own, np.arange(4)))


def test_what_has_no_text_of_its_own_is_no_json() -> None:
    times = [{"x": np.datetime64("NaT", "s")}, {"x": dt.timedelta(1)}]
    for any_, texts in ((JSON, ["null", '"1 day, 0:00:00"']), (TEXT, [None, "1 day, 0:00:00"])):
        schema = pa.schema({"x": any_})
        assert typed_batch(times, schema, np.arange(2))["x"].to_pylist() == texts
        with pytest.raises(SchemaMismatchError, match="<object object"):
            typed_batch([{"x": object()}], schema, np.arange(1))


def test_only_the_fields_that_need_it_are_made_by_arrow() -> None:
    day = dt.date(2024, 1, 2)
    batch = inferred_batch([{"d": day, "mixed": 1}, {"mixed": "one"}])
    assert batch.schema == pa.schema({"d": pa.date32(), "mixed": pa.string()})
    assert batch.to_pylist() == [{"d": day, "mixed": "1"}, {"d": None, "mixed": "one"}]


def test_a_field_of_mixed_values_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            inferred_batch([{"m": 1}, {"m": "one"}])
    assert len(caplog.records) == 1
    assert "'m' holds" in caplog.text


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"v": dt.date(2024, 1, 2)}, {"v": "text"}], "'v' holds values that no Arrow type"),
        ([{"v": object()}], "'v' holds values that no Arrow type"),
        ([{"v": "\ud800"}], "'v' holds .*surrogate"),
    ],
)
def test_what_no_column_can_hold_is_named(rows: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(SchemaMismatchError, match=words):
        inferred_batch(rows)


def test_records_nested_too_deeply_are_refused() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    with pytest.raises(SchemaMismatchError, match="nested"):
        inferred_batch([{"v": deep}])


@pytest.mark.parametrize(
    ("value", "type_"),
    [(dt.date(2024, 1, 2), pa.int8()), (b"x", pa.int64()), (object(), pa.string())],
)
def test_a_value_that_json_does_not_have_is_named_where_it_does_not_fit(
    value: object, type_: pa.DataType
) -> None:
    rows = [{"v": None}, {"v": value}]
    with pytest.raises(SchemaMismatchError, match=r"record 9: field 'v' holds .*does not fit"):
        typed_batch(rows, pa.schema({"v": type_}), np.array([8, 9]))
