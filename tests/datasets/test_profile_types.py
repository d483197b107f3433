"""Field types out of a profile: whatever was seen can be loaded under them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import penstock
from penstock.batch import Categories, Masked
from penstock.datasets import missing_fields
from penstock.datasets.fields._paths import steps_of
from penstock.datasets.fields._profile_types import ProfileTypes, profile_types
from tests.index.profile_model import profile_records
from tests.rounds import rounds

NAMES = st.sampled_from(["a", "b", "c.d", "e[]", "*"])
TEXTS = st.sampled_from(["", "x", "yes", "1", "null", "\ud800"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 3),
    st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**64 - 1]),
    st.floats(),
    TEXTS,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
RECORDS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=5)
ALIKE = st.sampled_from(
    [
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 2**64 - 1),
        st.floats(),
        st.one_of(st.floats(), st.integers(-(2**53), 2**53)),
        st.sampled_from(["", "x", "yes"]),
        st.lists(st.integers(-3, 3), max_size=3),
        st.lists(st.one_of(st.none(), st.booleans()), max_size=3),
        st.lists(st.one_of(st.none(), st.floats()), max_size=3),
        st.fixed_dictionaries({"b": st.integers(-3, 3)}),
        st.lists(st.fixed_dictionaries({"b": st.sampled_from(["", "x"])}), max_size=3),
    ]
)
"""Values of one kind, as nearly all records of a field have them."""


def value_at(value: Any, steps: tuple[str | None, ...]) -> Any:
    """Return what a path names in a record; null is passed on."""
    if value is None or not steps:
        return value
    if steps[0] is None:
        return [value_at(item, steps[1:]) for item in value]
    return value_at(value.get(steps[0]), steps[1:]) if isinstance(value, dict) else None


def as_python(column: Any) -> list[Any]:
    """Return a column of a batch as plain values, null as None."""
    if isinstance(column, Categories):
        return column.decoded()
    if isinstance(column, Masked):
        rows = zip(column.values.tolist(), column.mask.tolist(), strict=True)
        return [value if is_valid else None for value, is_valid in rows]
    return column if isinstance(column, list) else column.tolist()


def is_kept(value: Any, seen: Any, type_: str, note: str) -> bool:
    """Whether a batch shows a value as the record has it: null is NaN in floats alone."""
    is_nan = isinstance(seen, float) and math.isnan(seen)
    if value is None:
        stands_for_null = is_nan and "json" not in type_ and not type_.endswith("?")
        return seen is None or stands_for_null or (seen == [] and "null list" in note)
    if isinstance(value, list | dict):
        items = value.values() if isinstance(value, dict) else value
        seen_items = seen.values() if isinstance(seen, dict) else seen
        return len(value) == len(seen) and all(
            is_kept(*pair, type_, note) for pair in zip(items, seen_items, strict=True)
        )
    if isinstance(value, float) and math.isnan(value):
        return is_nan
    return value == seen and (type(value) is type(seen) or "float64" in type_)


def leaves(value: Any) -> list[str]:
    return (
        [leaf for item in value for leaf in leaves(item)]
        if isinstance(value, list)
        else [str(value)]
    )


def changes(records: list[Any], batch: Any, proposal: ProfileTypes, rows: Any) -> list[Any]:
    """Return what a batch shows differently from the records of some rows."""
    changed: list[Any] = []
    for path, type_ in proposal.types.items():
        steps = (path,) if any(path in record for record in records) else steps_of(path)
        column, note = as_python(batch[path]), proposal.notes.get(path, "")
        pairs = [(row, value_at(records[row], steps), column[row]) for row in rows]
        changed += [(path, type_, *pair) for pair in pairs if not is_kept(*pair[1:], type_, note)]
        if {"None", "nan"} <= set(leaves([pair[1] for pair in pairs])):
            assert type_.endswith(("?", "json", "json>")), "null and NaN are one"
    return changed


def types_of(*records: Any, **options: Any) -> Any:
    return profile_types(profile_records([list(records)]).document(), **options)


def loader_of(folder: str, records: list[Any], types: Any, **options: Any) -> Any:
    path = Path(folder) / "a.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    source = penstock.open(path, index=Path(folder) / "index")
    assert [missing.text for missing in missing_fields(source, types)] == []
    options |= {"batch_size": len(records), "num_workers": 0, "materialize": False}
    return penstock.DataLoader(source, types, **options)


def load(records: list[Any], types: Any, on_error: str = "raise") -> Any:
    """Return all records as one batch."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        source = penstock.open(path, index=Path(folder) / "index")
        assert [missing.text for missing in missing_fields(source, types)] == []
        options: Any = {"num_workers": 0, "materialize": False, "on_error": on_error}
        (batch,) = penstock.DataLoader(source, types, batch_size=len(records), **options)
        assert list(batch) == list(types)
        return batch


@given(records=RECORDS)
@settings(max_examples=rounds(60, 3000), deadline=None)
def test_under_its_types_no_record_fails_and_no_value_changes(records: list[Any]) -> None:
    # The schema, which knows the names that look like paths, has no text that is not UTF-8.
    assume("ud800" not in json.dumps([record.get("e[]") for record in records]))
    proposal = types_of(*records, categories=True)
    assert proposal.exceptions == {}
    if proposal.types:
        batch = load(records, proposal.types)
        assert changes(records, batch, proposal, range(len(records))) == []


@given(data=st.data())
@settings(max_examples=rounds(30, 2000), deadline=None)
def test_values_that_fail_or_change_under_its_types_are_counted(data: st.DataObject) -> None:
    values = data.draw(st.lists(data.draw(ALIKE), min_size=1, max_size=20))
    records = [{"a": values[n % len(values)], "n": n} for n in range(200)]
    for row, value in data.draw(st.dictionaries(st.integers(0, 199), VALUES, max_size=2)).items():
        records[row]["a"] = value
    proposal = types_of(*records, categories=True, rare=0.01)
    batch = load(records, proposal.types, on_error="mask")
    failed = set() if batch.valid is None else set((~batch.valid).nonzero().flatten().tolist())
    others = [row for row in range(200) if row not in failed]
    changed = {row for _, _, row, _, _ in changes(records, batch, proposal, others)}
    counts = [re.findall(r"(\d+) (?:of|null)", text) for text in proposal.exceptions.values()]
    assert len(failed | changed) <= sum(int(count) for found in counts for count in found)


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
        "tags": "json",
        "flags": "json",
        "deep": "list<list<int64>>",
        "user.age": "int64?",
        "user.name": "string",
        "items[].price": "list<json>",
        "items[].note": "list<json>",
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
        ([{"a": 1}, {"a": "x"}], "json", "a is int in record 0, and string from record 1 on"),
        ([{"a": [1]}, {"a": 2}], "json", "a is list in record 0, and int from record 1 on"),
        ([{"a": {"b": 1}}, {"a": "x"}], "json", "a is object in record 0, and string from record"),
        ([{"a": [1, "x"]}], "json", "a[] is int in record 0 (1 value) and string in rec"),
        ([{"a": [[], "x"]}], "json", "a[] is list in record 0 (1 value) and string in r"),
        ([{"a": 2**64}], "json", "a is beyond int64 in 1 of 1 value"),
        ([{"a": "\ud800"}], "json", "a is beyond UTF-8 in 1 of 1 value"),
        (
            [{"a": 0.5}, {"a": 2**53 + 1}],
            "json",
            "a is float in record 0, and int from record 1 on",
        ),
        ([{"a": [1, None]}], "json", "1 of the items of a is null"),
        ([{"a": True}, {"a": 1}], "json", "a is bool in record 0, and int from record 1 on"),
    ],
)
def test_what_no_other_type_holds_is_json_with_the_reason(
    records: list[Any], type_: str, why: str
) -> None:
    found = types_of(*records)
    assert found.types["a"] == type_
    assert why in found.notes["a"]


@pytest.mark.parametrize(
    ("usual", "odd", "type_", "exception"),
    [
        (1, "n/a", "int64", "a is string in record 7 (1 of 200 values)"),
        (0.5, "n/a", "float64", "a is string in record 7 (1 of 200 values)"),
        (0.5, 2**53 + 1, "float64", "a is int in record 7 (1 of 200 values)"),
        (1, 2**64, "int64", "a is beyond int64 in 1 of 200 values"),
        ("x", "\ud800", "string", "a is beyond UTF-8 in 1 of 200 values"),
        ([1], {}, "list<int64>", "a is object in record 7 (1 of 200 values)"),
        ([1, 2], ["x"], "list<int64>", "a[] is string in record 7 (1 of 399 values)"),
        ({"b": 1}, "gone", "int64", "a is string in record 7 (1 of 200 values)"),
        (1, 0.5, "float64", None),
        (1, None, "int64?", None),
    ],
)
def test_a_few_values_of_another_kind_are_exceptions_to_the_type_of_the_others(
    usual: Any, odd: Any, type_: str, exception: str | None
) -> None:
    found = types_of(*({"a": odd if row == 7 else usual} for row in range(200)), rare=0.01)
    path = "a.b" if isinstance(usual, dict) else "a"
    assert found.types == {path: type_}
    assert found.exceptions.get(path) == exception
    assert found.left_out == {}


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
        "t": "json",
    }
    assert found.left_out == {"odd.k": "no tensor stands for int"}
