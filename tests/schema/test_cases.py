"""The worked cases of queries, slots and leaf types, on the row path and on columns."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

import pytest

import penstock
from penstock.errors import OptionError, SchemaMismatchError
from penstock.schema import (
    Array,
    Category,
    DateParts,
    Entity,
    Number,
    Schema,
    Set,
    Text,
    Vector,
)
from tests.schema.both_paths import both

KEYS = ['""', '"é"', '"a b"', '"x.y"', '"q\\"z"', '"a[0]"', '"*"', '"日"', '"-"']


def test_a1_null_missing_and_zero() -> None:
    batch = both([{"amt": 2.5}, {"amt": 0}, {"amt": None}, {}], Number("amt"))
    assert batch["record/amt"].state.tolist() == [[0], [0], [1], [1]]
    assert batch["record/amt"].content.tolist() == [[2.5], [0], [0], [0]]


def test_a2_siblings_stay_aligned() -> None:
    fields = Array(
        Number("p"), Category("n", max_vocab_size=8, p_unavailable=0), name="items", max_length=4
    )
    records = [{"items": [{"p": 4, "n": "u"}, {"n": "v"}, {"p": None, "n": "w"}, {"p": 6}]}]
    batch = both(records, fields)
    assert batch["record/items/p"].state.tolist() == [[[0, 1, 1, 0]]]
    assert batch["record/items/p"].content.tolist() == [[[4, 0, 0, 6]]]
    assert batch["record/items/n"].state.tolist() == [[[0, 0, 0, 1]]]
    assert batch["record/items/n"].content.tolist() == [[[0, 1, 2, 0]]]


def test_a3_an_array_is_absent_in_three_ways() -> None:
    batch = both([{"ev": None}, {}, {"ev": []}], Array(Number("v"), name="ev", max_length=2))
    assert batch["record/ev/v"].state.tolist() == [[[2, 2]]] * 3


def test_a4_two_nested_arrays() -> None:
    fields = Array(Array(Number("amt"), name="tx", max_length=3), name="ses", max_length=2)
    records = [
        {"ses": [{"tx": [{"amt": 1}, {"amt": 2}]}, {"tx": []}]},
        {"ses": [{"tx": [{"amt": 5}, {"amt": 6}, {"amt": 7}, {"amt": 8}]}]},
    ]
    field = both(records, fields)["record/ses/tx/amt"]
    assert field.state.tolist() == [[[[0, 0, 2], [2, 2, 2]]], [[[0, 0, 0], [2, 2, 2]]]]
    assert field.content.tolist() == [[[[1, 2, 0], [0, 0, 0]]], [[[5, 6, 7], [0, 0, 0]]]]


def test_a5_a6_renamed_and_quoted_keys() -> None:
    assert both([{"txn": {"usd": 9.5}}], Number("amount", query="[*].txn.usd"))[
        "record/amount"
    ].content.tolist() == [[9.5]]
    batch = both([{"unit price": 3}], Number("unit_price", query='[*]."unit price"'))
    assert batch["record/unit_price"].content.tolist() == [[3]]
    tree = Schema(Array(Number("qty"), name="line-items")).hyperparameters
    assert tree.queries["record/line-items/qty"].text == '[*]."line-items"[*].qty'


def test_a7_an_index_may_miss() -> None:
    batch = both(
        [{"hist": [{"v": 1}, {"v": 7}]}, {"hist": []}], Number("x", query="[*].hist[-1].v")
    )
    assert batch["record/x"].state.tolist() == [[0], [1]]
    assert batch["record/x"].content.tolist() == [[7], [0]]


def test_a8_a_pipe_is_of_one_observation() -> None:
    records = [{"h": [{"k": "a", "v": 7}]}, {"h": [{"k": "a", "v": 9}]}]
    batch = both(records, Number("x", query="[*].h[?k=='a'].v | [0]"))
    assert batch["record/x"].content.tolist() == [[7], [9]]


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("[*].h[1:].v", [3, 5]),
        ("[*].h[?v > `1`].v", [3, 5]),
        ("[*].[h[0].v, h[-1].v]", [1, 5]),
        ("[*].{a: h} | [0].a[*].v | [@]", [1, 3, 5]),
        ("[*].sort_by(h, &v)[*].v", [1, 3, 5]),
        ("[0:1].h[].v | [reverse(@)]", [5, 3, 1]),
        ("[*] | [0].h[*].v | [@]", [1, 3, 5]),
    ],
)
def test_general_queries_are_those_of_jmespath(query: str, values: list[int]) -> None:
    records = [{"h": [{"v": 1}, {"v": 3}, {"v": 5}], "other": 7}, {"other": 8}]
    fields = Array(Number("v", query=query), name="ev", max_length=4)
    field = both(records[:1], fields)["record/ev/v"]
    assert field.content[0, 0, : len(values)].tolist() == values
    assert field.state[0, 0].tolist() == [0] * len(values) + [2] * (4 - len(values))


@pytest.mark.parametrize("path", ["rows", "columnar"])
def test_a_query_that_fails_names_leaf_and_record(path: str) -> None:
    own = Schema(Number("x", query="[*].[length(h)] | [0]"))
    own.path = path
    records = [{"h": "abc"}, {"h": 7}, {"h": "ab"}]
    with pytest.raises(SchemaMismatchError, match=r"record 1: record/x: .*length\(\)"):
        own.encode(records)
    (batch,) = penstock.DataLoader(records, own, batch_size=3, on_error="mask")
    assert batch.valid.tolist() == [True, False, True]


def test_a_query_that_finds_two_values_of_a_record_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match=r"'record' has 2 items.* Let the query"):
        both([{"h": [1, 2]}], Number("x", query="[*].h[]"))


def test_a10_a_query_without_a_root() -> None:
    batch = both([{"x": 1}, {"x": 2}, {}], Number("x", query="[0].x"))
    assert batch["record/x"].state.tolist() == [[0], [0], [1]]
    assert batch["record/x"].content.tolist() == [[1], [2], [0]]


def test_a11_to_a14_lists() -> None:
    vals = both(
        [{"vals": [4, None, 6]}], Array(Number("v", query="[*].vals"), name="ev", max_length=3)
    )
    assert vals["record/ev/v"].state.tolist() == [[[0, 1, 0]]]
    assert vals["record/ev/v"].content.tolist() == [[[4, 0, 6]]]
    ev = Array(Number("v"), name="ev", max_length=2)
    assert both([{"ev": ({"v": 1},)}], ev)["record/ev/v"].state.tolist() == [[[0, 2]]]
    with pytest.warns(UserWarning, match="record/ev/v") as warned:
        odd = both([{"ev": {"v": 1}}, {"ev": 7}], ev)
    assert odd["record/ev/v"].state.tolist() == [[[2, 2]]] * 2
    assert len(warned) == 2  # Once for each path.
    three = Array(Number("v"), name="ev", max_length=3)
    null = both([{"ev": [{"v": 1}, None, {"v": 3}]}], three)["record/ev/v"]
    assert null.state.tolist() == [[[0, 1, 0]]]
    assert null.content.tolist() == [[[1, 0, 3]]]


def test_leaves_of_one_array_may_read_different_lists() -> None:
    fields = Array(
        Number("a", query="[*].x[*].v"),
        Number("b", query="[*].y[*].v"),
        Number("c", query="[*].x[*].w"),
        Array(Number("d", query="[*].x[*].z[*].v"), name="deep", max_length=2),
        Array(Number("e", query="[*].y[*].z[*].v"), name="other", max_length=2),
        name="ev",
        max_length=2,
    )
    lists = [{"v": 1, "w": 2, "z": [{"v": 3}]}, None, {"v": 4, "z": []}]
    records = [{"x": lists, "y": lists[:1]}, {"y": lists}, {"x": None, "y": lists[1:]}]
    batch = both(records, fields)
    assert batch["record/ev/a"].state.tolist() == [[[0, 1]], [[2, 2]], [[2, 2]]]
    assert batch["record/ev/b"].state.tolist() == [[[0, 2]], [[0, 1]], [[1, 0]]]
    assert batch["record/ev/b"].content.tolist() == [[[1, 0]], [[1, 0]], [[0, 4]]]
    assert batch["record/ev/other/e"].state[1].tolist() == [[[0, 2], [2, 2]]]


def test_keys_of_any_text_are_found() -> None:
    leaves = [Number(f"n{number}", query=f"[*].{key}") for number, key in enumerate(KEYS)]
    records = [{json.loads(key): number for number, key in enumerate(KEYS)}, {}]
    batch = both(records, *leaves)
    assert [batch[at].content.tolist() for at in batch] == [[[n], [0]] for n in range(len(KEYS))]
    nested = [Number(f"n{number}", query=f"[*].{key}.{key}") for number, key in enumerate(KEYS)]
    inner = [dict.fromkeys(records[0], records[0]), {"": None}]
    batch = both(inner, *nested)
    assert [batch[at].content.tolist() for at in batch] == [[[n], [0]] for n in range(len(KEYS))]
    lists = Array(Number("v", query='[*].""'), name="x", max_length=2)
    assert both([{"": [1, 2, 3]}], lists)["record/x/v"].content.tolist() == [[[1, 2]]]


def test_a_key_that_looks_like_a_path_is_no_path() -> None:
    records = [{"a": {"b": 1}, "a.b": 5, "c[]": 6, "c": [7]}, {"a.b": 8}]
    fields = [
        Number("path", query="[*].a.b"),
        Number("key", query='[*]."a.b"'),
        Array(Number("item", query="[*].c"), name="c"),
    ]
    batch = both(records, *fields)
    assert batch["record/path"].content.tolist() == [[1], [0]]
    assert batch["record/path"].state.tolist() == [[0], [1]]
    assert batch["record/key"].content.tolist() == [[5], [8]]
    assert batch["record/c/item"].content.tolist() == [[[7]], [[0]]]


def test_a15_an_inactive_leaf() -> None:
    batch = both([{"a": 1, "b": 2}], Number("a", active=False), Number("b"))
    assert set(batch) == {"record/b"}


def test_c1_to_c3_numbers() -> None:
    values = [{"x": True}, {"x": "12"}, {"x": "1e3"}, {"x": -0.5}]
    assert both(values, Number("x"))["record/x"].content.tolist() == [[1], [12], [1000], [-0.5]]
    for bad in ("abc", [1, 2], {"a": 1}):
        with pytest.raises(SchemaMismatchError, match="record/x"):
            Schema(Number("x")).encode([{"x": bad}], "train")
        with pytest.raises(SchemaMismatchError, match="record/x"):
            both([{"x": 1}, {"x": bad}], Number("x"))
    odd = both([{"x": math.nan}, {"x": math.inf}, {"x": 2}], Number("x"))["record/x"]
    assert odd.state.tolist() == [[1], [1], [0]]
    assert odd.content.tolist() == [[0], [0], [2]]
    assert both([{"x": 16777217}], Number("x"))["record/x"].content.tolist() == [[16777216.0]]


def test_numbers_beyond_json_are_walked_like_others() -> None:
    leaves = [Number(name) for name in ("a", "b", "c")]
    fields = Array(*leaves, name="ev", max_length=2)
    batch = both([{"ev": [{"a": math.inf, "c": 2**70}, {"a": math.nan}]}], fields)
    assert [batch[at].state.tolist() for at in batch] == [[[[1, 1]]], [[[1, 1]]], [[[0, 1]]]]
    assert batch["record/ev/c"].content[0, 0, 0] == 2.0**70


@pytest.mark.parametrize("bad", [math.nan, -math.inf, 1e300])
def test_a_number_may_refuse_what_is_not_finite(bad: float) -> None:
    leaf = Number("x", raise_on_nan=True)
    assert both([{"x": None}, {}, {"x": 1}], leaf)["record/x"].state.tolist() == [[1], [1], [0]]
    for own in (both, lambda records, leaf: Schema(leaf).encode(records)):
        with pytest.raises(SchemaMismatchError, match=r"record 1: record/x: .* no finite number"):
            own([{"x": None}, {"x": bad}], leaf)


def test_c4_c5_labels_have_the_numbers_of_their_first_sight() -> None:
    schema = Schema(Category("k", max_vocab_size=2, p_unavailable=0))
    words = [{"k": word} for word in ("red", "blue", "red", "green")]
    assert both(words, schema=schema)["record/k"].content.tolist() == [[0], [1], [0], [2]]
    assert schema.state_dict()["vocabularies"]["record/k"] == ["red", "blue"]
    other = both([{"k": "green"}, {"k": "blue"}], schema=schema, split="validate")
    assert other["record/k"].content.tolist() == [[2], [1]]
    assert schema.state_dict()["vocabularies"]["record/k"] == ["red", "blue"]


def test_c6_to_c8_labels() -> None:
    values = [{"k": one} for one in (1, 1.0, True, "1")]
    with pytest.warns(UserWarning, match=r"record/k: .* '1', which is a text, and 1"):
        batch = both(values, Category("k", p_unavailable=0))
    assert batch["record/k"].content.tolist() == [[0], [0], [1], [2]]
    schema = Schema(Category("k", max_vocab_size=3, p_unavailable=1.0))
    ab = [{"k": "a"}, {"k": "b"}]
    assert both(ab, schema=schema)["record/k"].content.tolist() == [[3], [3]]
    assert schema.state_dict()["vocabularies"]["record/k"] == ["a", "b"]
    assert both(ab, schema=schema, split="validate")["record/k"].content.tolist() == [[0], [1]]
    bad = Schema(Category("k"))
    with pytest.raises(SchemaMismatchError, match="record/k"):
        bad.encode([{"k": ["p", "q"]}], "train")
    assert bad.state_dict()["vocabularies"]["record/k"] == []


def test_c9_to_c11_sets() -> None:
    schema = Schema(Set("s", max_vocab_size=3, p_unavailable=0))
    records = [{"s": ["a", "b", "a"]}, {"s": "c"}, {"s": []}, {"s": ["d", "a"]}]
    field = both(records, schema=schema)["record/s"]
    assert field.state.tolist() == [[0]] * 4
    assert field.content.tolist() == [
        [[1, 1, 0, 0]],
        [[0, 0, 1, 0]],
        [[0, 0, 0, 0]],
        [[1, 0, 0, 1]],
    ]
    other = both([{"s": ["zz", "b"]}], schema=schema, split="test")["record/s"]
    assert other.content.tolist() == [[[0, 1, 0, 1]]]
    assert both([{"s": None}, {"s": []}], Set("s"))["record/s"].state.tolist() == [[1], [0]]
    with pytest.raises(SchemaMismatchError, match="record/s"):
        Schema(Set("s")).encode([{"s": {"a": 1}}], "train")


def test_c12_c13_entities() -> None:
    fields = Array(Entity("id"), name="t", max_length=3)
    second = {"t": [{"id": "y"}, {"id": "z"}, {"id": "x"}]}
    field = both([{"t": [{"id": "x"}, {"id": "y"}]}, second], fields)["record/t/id"]
    assert field.state.tolist() == [[[0, 0, 2]], [[0, 0, 0]]]
    assert field.content.tolist() == [[[0, 1, 0]], [[1, 2, 0]]]
    assert both([second], fields)["record/t/id"].content.tolist() == [[[0, 1, 2]]]
    with pytest.raises(OptionError, match="one slot"):
        Schema(Entity("id"))
    with pytest.raises(SchemaMismatchError, match="hashable"):
        both([{"t": [{"id": [1, 2]}]}], fields)


PARTS = [
    "day_of_year",
    "week_of_year",
    "month_of_year",
    "day_of_month",
    "week_of_month",
    "day_of_week",
    "hour_of_day",
    "minute_of_hour",
]


@pytest.mark.parametrize("as_text", [True, False])
def test_c14_c15_parts_of_dates(*, as_text: bool) -> None:
    times = ["2023-07-04T06:45:30", "2023-01-01", "2024-12-31T23:59", "2020-12-31"]
    values = times if as_text else [datetime.fromisoformat(one) for one in times]
    batch = both([{"d": one} for one in values], DateParts("d", dateparts=PARTS))
    content = batch["record/d"].content
    found = [[int(content[part][row]) - 5 for part in PARTS] for row in range(4)]
    assert found[:3] == [
        [185, 27, 7, 4, 2, 2, 6, 45],
        [1, 1, 1, 1, 1, 0, 0, 0],
        [366, 53, 12, 31, 5, 2, 23, 59],
    ]
    assert found[3][1] == 53


def test_c16_to_c19_dates() -> None:
    hours = ["2024-01-01T07:00", None, "2024-01-01T09:00", None]
    field = both([{"d": one} for one in hours], DateParts("d", dateparts=["hour_of_day"]))[
        "record/d"
    ]
    assert field.state.tolist() == [[0], [1], [0], [1]]
    assert field.content["hour_of_day"].tolist() == [[12], [1], [14], [1]]
    leaf = DateParts(
        "d", dateparts=["Day Of Week", "MonthOfYear", "hour-of-day"], pattern="%d.%m.%Y %H:%M"
    )
    content = both([{"d": "04.07.2023 06:45"}], leaf)["record/d"].content
    assert [int(content[part]) for part in ("day_of_week", "month_of_year", "hour_of_day")] == [
        7,
        12,
        11,
    ]
    with pytest.raises(ValueError, match="record/d"):
        both([{"d": "2023-07-04"}], leaf)
    with pytest.raises(OptionError, match="day_of_week"):
        DateParts("d", dateparts=["day of wek"])
    for options in (
        {"dateparts": []},
        {"dateparts": ["day_of_week"] * 2},
        {"dateparts": PARTS, "pattern": "%Q"},
    ):
        with pytest.raises(OptionError):
            DateParts("d", **options)
    hour = DateParts("d", dateparts=["hour_of_day"])
    assert both([{"d": "2024-01-01T00:00+05:00"}], hour)["record/d"].content[
        "hour_of_day"
    ].tolist() == [[24]]
    assert both([{"d": "NaT"}, {"d": ""}], hour)["record/d"].state.tolist() == [[1], [1]]
    with pytest.raises(SchemaMismatchError, match="record/d"):
        both([{"d": 7}], hour)


def test_c20_c21_vectors() -> None:
    field = both([{"e": [1, 2, 3]}, {"e": (4, 5, 6)}, {"e": None}], Vector("e", n_dim=3))[
        "record/e"
    ]
    assert field.state.tolist() == [[0], [0], [1]]
    assert field.content.tolist() == [[[1, 2, 3]], [[4, 5, 6]], [[0, 0, 0]]]
    for bad in ([1, 2], "abc", [[1, 2, 3]], [1, None, 3], [1, math.nan, 3], [1, 2, 1e300]):
        for own in (both, lambda records, leaf: Schema(leaf).encode(records)):
            with pytest.raises(ValueError, match=r"record/e: .* no vector of 3"):
                own([{"e": bad}], Vector("e", n_dim=3))


def fake(text: str) -> list[int]:
    return [len(text), len(text) + 1]


def fake_with_padding(texts: list[str], *, max_length: int, **_: Any) -> dict[str, Any]:
    ids = [[*fake(text), *[0] * (max_length - 2)] for text in texts]
    return {"input_ids": ids, "attention_mask": [[int(one > 0) for one in row] for row in ids]}


@pytest.mark.parametrize("tokenizer", [fake, fake_with_padding])
def test_c22_text(tokenizer: Any) -> None:
    leaf = Text("b", model_name="m", max_length=4, tokenizer=tokenizer)
    field = both([{"b": "alpha"}, {"b": None}], leaf)["record/b"]
    assert field.content["input_ids"].tolist() == [[[5, 6, 0, 0]], [[0, 0, 0, 0]]]
    assert field.content["attention_mask"].tolist() == [[[1, 1, 0, 0]], [[0, 0, 0, 0]]]
    assert field.state.tolist() == [[0], [1]]
    with pytest.raises(SchemaMismatchError, match="record/b"):
        both([{"b": 7}], leaf)
    with pytest.raises(OptionError):
        Text("b", model_name=" ")


@pytest.mark.parametrize("path", ["rows", "columnar"])
def test_a_list_that_is_too_long_names_array_leaf_and_record(path: str) -> None:
    inner = Array(Number("v"), name="deep", max_length=1, overflow="error")
    own = Schema(Array(inner, name="ev", max_length=2))
    own.path = path
    records = [{"ev": [{"deep": [{"v": 1}]}]}, {"ev": [{}, {"deep": [{"v": 1}, {"v": 2}]}]}]
    with pytest.raises(ValueError, match=r"record 1: record/ev/deep/v: 'deep' has 2 items.* are 1"):
        list(penstock.DataLoader(records, own, batch_size=2))


def test_labels_that_overflow_are_not_learnt() -> None:
    for policy, kept in (("head", ["a", "b"]), ("tail", ["b", "c"])):
        leaf = Category("k", p_unavailable=0)
        own = Schema(Array(leaf, name="ev", max_length=2, overflow=policy))
        both([{"ev": [{"k": "a"}, {"k": "b"}, {"k": "c"}]}], schema=own)
        assert own.state_dict()["vocabularies"]["record/ev/k"] == kept


def test_masks_may_leave_padded_slots_alone() -> None:
    records = [{"ev": [{"v": 1}, {}]}] * 50
    fields = Array(Number("v", p_mask=0.5), name="ev", max_length=4)
    states = []
    for masks_padding in (True, False):
        own = Schema(fields)
        own.mask_padding = masks_padding
        (field,) = both(records, schema=own).values()
        assert (field.state == 3).equal(field.trainable)
        states.append(field.state[:, 0])
    everywhere, present = states
    assert (everywhere[:, 2:] == 3).any()
    assert (present[:, 2:] == 2).all()
    assert present[:, :2].equal(everywhere[:, :2])
