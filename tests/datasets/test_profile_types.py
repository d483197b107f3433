"""Field types out of a profile: whatever was seen can be loaded under them."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.datasets import missing_fields
from penstock.datasets._memory import ListSource
from penstock.datasets.fields._profile_types import profile_types
from penstock.errors import SchemaMismatchError
from tests.index.profile_model import profile_records
from tests.rounds import rounds

NAMES = st.sampled_from(["a", "b", "c.d", "e[]", "*"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "x", "yes"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
RECORDS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=5)


def types_of(*records: Any, **options: Any) -> Any:
    return profile_types(profile_records([list(records)]).document(), **options)


@given(records=RECORDS)
@settings(max_examples=rounds(40, 2000), deadline=None)
def test_whatever_was_profiled_can_be_loaded_under_its_types(records: list[Any]) -> None:
    found = types_of(*records, categories=True)
    if not found.types:
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        source = penstock.open(path, index=Path(folder) / "index")
        loader = penstock.DataLoader(
            source, found.types, batch_size=len(records), num_workers=0, materialize=False
        )
        (batch,) = loader
        assert list(batch) == list(found.types)
        assert [missing.text for missing in missing_fields(source, found.types)] == []


def test_every_kind_of_field_has_the_type_that_takes_its_nulls() -> None:
    record = {
        "int": 1,
        "whole": 2**63,
        "mixed": 1,
        "flag": True,
        "text": "a",
        "tags": [1, None],
        "flags": [True, None],
        "deep": [[1], None],
        "user": {"age": 1, "name": "x"},
        "items": [{"price": 1, "note": -5}, {}],
    }
    found = types_of(record, {"int": 2, "mixed": 0.5, "user": None})
    assert found.types == {
        "int": "int64",
        "whole": "uint64?",
        "mixed": "float64",
        "flag": "bool?",
        "text": "string",
        "tags": "list<int64 = -1>",
        "flags": "list<bool = false>",
        "deep": "list<list<int64>>",
        "user.age": "int64?",
        "user.name": "string",
        "items[].price": "list<int64 = -1>",
        "items[].note": "list<int64 = -9223372036854775808>",
    }
    assert found.left_out == {}


@pytest.mark.parametrize(
    ("records", "path", "why"),
    [
        ([{"a": []}], "a", "all its lists are empty"),
        ([{"a": None}], "a", "it is null everywhere"),
        ([{"a": {"b.c": 1}}], "a.b.c", "a name in it looks like a path"),
        ([{"a": {"b": 1}}, {"a": "x"}], "a.b", "a is not always an object"),
        ([{"a": {"b": 1}, "a.b": 2}], "a.b", "two fields have this path"),
    ],
)
def test_what_has_no_type_is_left_out_with_the_reason(
    records: list[Any], path: str, why: str
) -> None:
    found = types_of(*records)
    assert path not in found.types
    assert why in found.left_out[path]


@pytest.mark.parametrize(
    ("records", "type_", "why"),
    [
        ([{"a": 1}, {"a": "x"}], "text", "a is int in record 0, and string from record 1 on"),
        ([{"a": [1]}, {"a": 2}], "json", "a is list in record 0, and int from record 1 on"),
        ([{"a": {"b": 1}}, {"a": "x"}], "json", "a is object in record 0, and string from record"),
        ([{"a": [1, "x"]}], "list<text>", "a[] is int in record 0 (1 value) and string in rec"),
        ([{"a": [[], "x"]}], "list<json>", "a[] is list in record 0 (1 value) and string in r"),
        ([{"a": 2**64}], "text", "fit neither int64 nor uint64"),
        ([{"a": True}, {"a": 1}], "text", "a is bool in record 0, and int from record 1 on"),
    ],
)
def test_what_no_other_type_holds_is_text_or_json_with_the_reason(
    records: list[Any], type_: str, why: str
) -> None:
    found = types_of(*records)
    assert found.types["a"] == type_
    assert why in found.mixed["a"]


def test_only_texts_that_come_again_and_again_are_categories() -> None:
    records = [{"city": "Rome" if n % 2 else "Oslo", "id": str(n), "n": 1} for n in range(40)]
    assert types_of(*records, categories=True).types == {
        "city": "category",
        "id": "string",
        "n": "int64",
    }
    assert types_of(*records).types["city"] == "string"


def test_a_schema_decides_where_it_is_certain_and_the_profile_adds_null() -> None:
    known = {"day": "date32", "n": "int16", "x": "float32", "v": "float32[2]", "t": "list<int8>"}
    day = {"day": None, "n": 1, "x": None, "v": [1.0, 2.0], "t": [1], "odd": {"k": 1}}
    found = types_of(day, {**day, "n": None, "v": None, "t": [None]}, schema_types=known)
    assert found.types == {
        "day": "date32?",
        "n": "int16?",
        "x": "float32",
        "v": "float32[2]?",
        "t": "list<int8 = -1>",
    }
    assert found.left_out == {"odd.k": "no tensor stands for int"}


def test_a_lone_surrogate_fails_under_any_type_and_is_named() -> None:
    records = [{"a": "x"}, {"a": "\ud800"}]
    found = types_of(*records)
    assert found.types == {"a": "string"}
    with pytest.raises(SchemaMismatchError, match="surrogate"):
        ListSource(records).read([0, 1], found.types)
