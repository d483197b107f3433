"""Which values leaves take, on both paths, and pure functions against a plain reference."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
import penstock.schema
from penstock.errors import OptionError, SchemaMismatchError
from penstock.schema import (
    Array,
    Category,
    DateParts,
    Entity,
    Number,
    Schema,
    Set,
    Vector,
)
from penstock.schema._values import in_order_of_appearance, numbered
from penstock.schema._vocabulary import Vocabulary
from tests.rounds import rounds
from tests.schema.both_paths import both

NAMES = """Array Number Category Set Entity DateParts Vector Text Leaf Address where predicate
Schema SchemaModel Overflow Tokens ValueState TensorKey fit_vocabulary RunningStats check_batch
register_leaf"""


def test_the_names_of_the_room_are_there() -> None:
    for name in NAMES.split():
        assert hasattr(penstock.schema, name)
        assert name in penstock.schema.__all__


@pytest.mark.parametrize(
    ("policy", "content"), [("head", [[[1, 2]], [[5, 0]]]), ("tail", [[[2, 3]], [[5, 0]]])]
)
def test_overflow_keeps_the_first_or_the_last_in_their_order(policy: str, content: Any) -> None:
    fields = Array(Number("v"), name="ev", max_length=2, overflow=policy)
    batch = both([{"ev": [{"v": 1}, {"v": 2}, {"v": 3}]}, {"ev": [{"v": 5}]}], fields)
    assert batch["record/ev/v"].content.tolist() == content
    assert batch["record/ev/v"].state.tolist() == [[[0, 0]], [[0, 2]]]


def test_policies_of_nested_arrays_are_their_own() -> None:
    inner = Array(Number("v"), name="b", max_length=2, overflow="tail")
    fields = Array(inner, name="a", max_length=2, overflow="head")
    lists = [{"b": [{"v": 10 * outer + item} for item in range(3)]} for outer in range(3)]
    field = both([{"a": lists}], fields)["record/a/b/v"]
    assert field.content.tolist() == [[[[1, 2], [11, 12]]]]


def test_arrays_of_numpy_are_lists() -> None:
    records = [{"vals": np.array([4.0, 5.0]), "ev": np.array([{"v": 1}, None], object)}]
    fields = [
        Array(Number("n", query="[*].vals"), name="x", max_length=3),
        Array(Number("v"), name="ev", max_length=3),
    ]
    batch = Schema(*fields).encode(records, "train")
    assert batch["record/x/n"].content.tolist() == [[[4, 5, 0]]]
    assert batch["record/ev/v"].state.tolist() == [[[0, 1, 2]]]
    assert both([{"vals": np.array([4.0, 5.0])}], fields[0])["record/x/n"].state[0, 0, 2] == 2


def test_a_top_level_name_comes_once() -> None:
    with pytest.raises(OptionError, match="two nodes"):
        Schema(Number("a"), Category("a"))


def test_an_empty_text_is_a_label_and_null_items_are_none() -> None:
    batch = both(
        [{"c": "", "s": ["a", None]}, {"c": None, "s": [None]}],
        Category("c", max_vocab_size=2, p_unavailable=0),
        Set("s", max_vocab_size=2, p_unavailable=0),
    )
    assert batch["record/c"].state.tolist() == [[0], [1]]
    assert batch["record/s"].state.tolist() == [[0], [0]]
    assert batch["record/s"].content.tolist() == [[[1, 0, 0]], [[0, 0, 0]]]


@pytest.mark.parametrize("vector", [np.array([1, 2]), torch.tensor([1.0, 2.0]), (1, 2.0)])
def test_vectors_are_lists_arrays_and_tensors(vector: Any) -> None:
    batch = Schema(Vector("v", n_dim=2)).encode([{"v": vector}, {"v": None}], "train")
    assert batch["record/v"].content.tolist() == [[[1, 2]], [[0, 0]]]
    assert batch["record/v"].state.tolist() == [[0], [1]]


def test_the_ranks_that_a_model_reports_are_sorted_and_come_once() -> None:
    assert vars(Category("c", topk=[5, 2, 5]))["topk"] == (2, 5)
    assert vars(Entity("e", topk=3))["topk"] == (3,)
    with pytest.raises(OptionError, match="topk"):
        Entity("e", topk=1)


@pytest.mark.parametrize(
    ("value", "hour"),
    [
        (datetime(2024, 1, 1, 7, 59, 59), 7),  # noqa: DTZ001 (naive ones stay as they are)
        (datetime(2024, 1, 1, 7, tzinfo=timezone(timedelta(hours=5))), 2),
        (datetime(2024, 1, 1, 7, tzinfo=UTC), 7),
        (date(2024, 1, 1), 0),
        (np.datetime64("2024-01-01T07:30:00"), 7),
        ("2024-01-01 07:30:59.9", 7),
        ("2024-01-01T07:30Z", 7),
        ("2024-01-01T23:30-02:00", 1),
    ],
)
def test_times_of_every_kind_have_parts(value: Any, hour: int) -> None:
    leaf = DateParts("d", dateparts=["hour_of_day"])
    batch = both([{"d": value}, {"d": None}], leaf)
    assert batch["record/d"].content["hour_of_day"].tolist() == [[hour + 5], [1]]


def test_times_of_numpy_may_be_minutes_and_days() -> None:
    records = [{"d": np.datetime64("2024-01-01T07:30")}, {"d": np.datetime64("2024-01-02")}]
    batch = Schema(DateParts("d", dateparts=["hour_of_day", "day_of_month"])).encode(records)
    content = batch["record/d"].content
    assert [one.tolist() for one in content.values()] == [[[12], [5]], [[6], [7]]]


@settings(max_examples=rounds(30, 1000), deadline=None)
@given(st.lists(st.datetimes(datetime(1700, 1, 1), datetime(2400, 1, 1)), min_size=1, max_size=20))  # noqa: DTZ001
def test_parts_of_dates_are_those_of_the_calendar(times: list[datetime]) -> None:
    names = [
        "day_of_year",
        "week_of_year",
        "month_of_year",
        "day_of_month",
        "week_of_month",
        "day_of_week",
        "hour_of_day",
        "minute_of_hour",
    ]
    content = both([{"d": time} for time in times], DateParts("d", dateparts=names))[
        "record/d"
    ].content
    for row, time in enumerate(times):
        sunday_first = time.isoweekday() % 7
        first = time.replace(day=1).isoweekday() % 7
        epoch = date(1970, 1, 1)
        weeks = [(one - epoch).days // 7 for one in (time.date(), date(time.year, 1, 1))]
        expected = [
            time.timetuple().tm_yday,
            min(53, weeks[0] - weeks[1] + 1),
            time.month,
            time.day,
            (time.day - 1 + first) // 7 + 1,
            sunday_first,
            time.hour,
            time.minute,
        ]
        assert [int(content[name][row]) - 5 for name in names] == expected


def test_times_at_the_ends_of_the_calendar_are_those_of_python() -> None:
    leaf = DateParts("d", dateparts=["day_of_year", "hour_of_day"])
    times = ["0001-01-01", "9999-12-31T23:59-05:00", "0001-01-01T00:00+05:00"]
    batch = both([{"d": time} for time in times], leaf)["record/d"]
    assert [part.tolist() for part in batch.content.values()] == [
        [[6], [6], [371]],
        [[5], [9], [24]],
    ]
    with pytest.raises(SchemaMismatchError, match="record 0: record/d: '0000-01-01' is no date"):
        both([{"d": "0000-01-01"}], leaf)


@pytest.mark.parametrize(
    "odd", [np.inf, -np.inf, np.nan, np.datetime64("NaT", "s"), Decimal("NaN")]
)
def test_values_that_are_no_number_and_no_time_are_no_labels(odd: Any) -> None:
    records = [{"k": odd, "s": [odd, "b"]}, {"k": "a", "s": odd}]
    leaves = [Category("k", p_unavailable=0), Set("s", max_vocab_size=2, p_unavailable=0)]
    own = Schema(*leaves)
    batch = both(records, schema=own)
    assert [batch[at].state.tolist() for at in batch] == [[[1], [0]], [[0], [1]]]
    assert own.state_dict()["vocabularies"] == {"record/k": ["a"], "record/s": ["b"]}


def test_labels_of_other_types_are_their_texts_and_numbers_are_no_times() -> None:
    when = np.datetime64("2024-01-02T03:04:05.678901234")
    own = Schema(Category("k", p_unavailable=0))
    both([{"k": one} for one in (b"ab", Decimal("1.50"), when)], schema=own)
    assert own.state_dict()["vocabularies"]["record/k"] == ["ab", "1.50", str(when)]
    for bad in (b"\xff", 1j, object()):
        with pytest.raises(SchemaMismatchError, match="record 1"):
            both([{"k": "a"}, {"k": bad}], schema=own)
    with pytest.raises(SchemaMismatchError, match="no number"):
        Schema(Number("x")).encode([{"x": when}])


LABELS = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from(["1", "a", ""]))


@given(st.lists(LABELS))
def test_labels_are_numbered_as_they_appear(labels: list[Any]) -> None:
    keys, codes = numbered(labels)
    seen: list[tuple[type, Any]] = []
    for label, code in zip(labels, codes.tolist(), strict=True):
        if label is None:
            assert code == -1
            continue
        kind = (type(label), label)
        if kind not in seen:
            seen.append(kind)
        assert seen.index(kind) == code
    assert len(keys) == len(seen)
    order = in_order_of_appearance(codes, len(keys))
    assert order.tolist() == [*range(len(keys))]


@given(st.integers(1, 5), st.lists(st.lists(LABELS.filter(lambda one: one is not None))))
def test_a_vocabulary_numbers_the_first_labels_that_find_room(
    size: int, batches: list[list[Any]]
) -> None:
    words, proposing = Vocabulary(size), Vocabulary(size)
    proposing.configure_distributed(1, 2)
    known: list[tuple[type, Any]] = []
    for labels in batches:
        words.reserve(labels, learn=True)
        proposing.reserve(labels, learn=True)
        for label in labels:
            if (type(label), label) not in known and len(known) < size:
                known.append((type(label), label))
        for label in labels:
            kind = (type(label), label)
            assert words.encode(label) == (known.index(kind) if kind in known else size)
            assert proposing.encode(label) == size
    assert [(type(one), one) for one in words.snapshot()] == known
    other = Vocabulary(size)
    assert other.extend(proposing.drain_proposals()) == (len(known), 0)
    assert other.snapshot() == words.snapshot()
    more = [f"new {number}" for number in range(3)]
    room = min(3, size - len(known))
    assert other.extend([*more, *known[:0]]) == (room, 3 - room)
    again = Vocabulary(1)
    again.load_snapshot(words.snapshot())
    assert len(again) == min(1, len(known))


@pytest.mark.parametrize("value", [0, False])
def test_zero_and_false_are_values_and_one_batch_with_a_value_begins_anew(value: Any) -> None:
    own = Schema(Number("x"))
    for _ in range(3):
        for _ in range(19):
            own.encode([{"x": None}], "train")
        own.encode([{"x": value}], "train")
    for _ in range(19):
        own.encode([{}], "train")
    with pytest.warns(UserWarning, match="found no value in 20 batches"):
        own.encode([{}], "train")


def test_an_empty_text_is_no_number_but_null() -> None:
    for values in (["", None, "3"], [" "]):
        records = [{"n": value} for value in values]
        for source in (records, pa.table({"n": values})):
            own = penstock.DataLoader(source, Schema(Number("n")), batch_size=3)
            if values == [" "]:
                with pytest.raises(SchemaMismatchError, match="' ' is no number"):
                    list(own)
            else:
                (batch,) = own
                assert batch["record/n"].state.flatten().tolist() == [1, 1, 0]
                assert batch["record/n"].content.flatten().tolist() == [0, 0, 3]
    own = penstock.DataLoader([{"n": ""}], Schema(Number("n", raise_on_nan=True)), batch_size=1)
    assert [batch["record/n"].state.tolist() for batch in own] == [[[1]]]


def test_a_field_shows_its_shapes() -> None:
    at = DateParts("at", dateparts=["day_of_week", "month_of_year"])
    batch = Schema(Category("c", max_vocab_size=4, target=True), at).encode([{"c": "a"}], "train")
    assert repr(batch["record/c"]) == "LeafField of (1, 1), with targets"
    assert repr(batch["record/at"]) == "LeafField of day_of_week (1, 1), month_of_year (1, 1)"
