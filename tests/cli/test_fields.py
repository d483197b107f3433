from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli._terminal import without_nonfinite
from penstock.cli.show._printing import pick

RECORD = {
    "id": 1,
    "user": {"name": "Ada", "tags": ["a", "b"]},
    "items": [{"price": 1, "size": {"w": 2}}, {"price": None}, "odd"],
    "a.b": "dotted",
    "a": {"b": "nested"},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("id", 1),
        ("user", RECORD["user"]),
        ("user.name", "Ada"),
        ("user.tags", ["a", "b"]),
        ("user.tags[]", ["a", "b"]),
        ("items[].price", [1, None, None]),
        ("items[].size.w", [2, None, None]),
        ("a.b", "dotted"),
        ("nope", None),
        ("id.deeper", None),
        ("id[].deeper", None),
        ("user.nope.deeper", None),
    ],
)
def test_a_field_is_found_by_its_path(path: str, value: object) -> None:
    assert pick(RECORD, path) == value


@pytest.mark.parametrize("record", [[1, 2], "text", 3, None])
def test_what_is_no_object_has_no_fields(record: object) -> None:
    assert pick(record, "id") is None


@given(
    st.recursive(
        st.floats() | st.none() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_without_nonfinite_numbers_a_value_is_json_and_else_the_same(value: object) -> None:
    plain = without_nonfinite(value)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    if isinstance(value, float):
        assert plain == (value if math.isfinite(value) else None)
