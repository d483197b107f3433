from __future__ import annotations

import datetime as dt
import json
import logging
import math
import operator
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.datasets.where._expression import parse
from penstock.datasets.where._where import holds
from penstock.errors import OptionError, StaleIndexError
from tests.datasets.listed_source import ListedSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PEOPLE = [
    {"name": "Ann", "age": 20, "user": {"score": 0.5}, "ok": True},
    {"name": "Bob", "age": 17, "user": {"score": 3.0}, "ok": False},
    {"name": "Annabel", "age": None, "user": None, "ok": None},
    {"name": 'O\'Neil "x"', "age": 65, "user": {"score": None}, "odd name": 1},
    {"name": None, "age": -3, "ok": True},
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def matching(expression: object) -> list[int]:
    ids: list[int] = ListedSource(PEOPLE).where(expression).ids.tolist()  # type: ignore[attr-defined]
    return ids


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("age >= 18", [0, 3]),
        ("18 <= age", [0, 3]),
        ("age == 17", [1]),
        ("age != 17", [0, 3, 4]),
        ("not age == 17", [0, 3, 4]),
        ("age < 17.5", [1, 4]),
        ("age > -3.5 and age<+18", [1, 4]),
        ("age in (17, 20, 99)", [0, 1]),
        ("age not in (17, 20,)", [3, 4]),
        ("age is null", [2]),
        ("age is not null", [0, 1, 3, 4]),
        ("name contains 'nn'", [0, 2]),
        ("name not contains 'nn'", [1, 3]),
        ("name starts with 'Ann'", [0, 2]),
        ("name NOT STARTS WITH 'Ann' AND age IS NOT NULL", [1, 3]),
        (r"name == 'O\'Neil \"x\"'", [3]),
        (r"""name == 'O\'Neil "x"'""", [3]),
        (r"""name == "O'Neil \"x\"" """, [3]),
        (r'name contains "O\u0027Neil"', [3]),
        ("name > 'Annabel'", [1, 3]),
        ("ok == true", [0, 4]),
        ("ok != True", [1]),
        ("ok in (false)", [1]),
        ("user.score > 0.5", [1]),
        ("user.score <= 3", [0, 1]),
        ("user.score is null", [2, 3, 4]),
        ("`odd name` == 1", [3]),
        ("`user.score` == 0.5", [0]),
        ("age == 20 or age == 17 and ok == true", [0]),
        ("(age == 20 or age == 17) and ok == true", [0]),
        ("not (age == 20 or age == 17)", [3, 4]),
        ("not not age == 17", [1]),
        ("age == 17\n  or\tage == 20", [0, 1]),
    ],
)
def test_the_language_says_what_it_seems_to_say(expression: str, expected: list[int]) -> None:
    assert matching(expression) == expected


@pytest.mark.parametrize(
    ("expression", "at", "said"),
    [
        ("", 0, "a field name is expected, not the end"),
        ("age", 3, "after the field 'age': a comparison is expected"),
        ("age >=", 6, "a number, a text in quotes, true or false is expected, not the end"),
        ("age = 3", 4, "write '==' for '='"),
        ("age <> 3", 4, "write '!=' for '<>'"),
        ("age > 3 && ok == true", 8, "write 'and' for '&&'"),
        ("age > 3 | ok == true", 8, "write 'or' for '|'"),
        ("age == null", 7, "write 'is null'"),
        ("null == age", 0, "write 'is null'"),
        ("age in (1, null)", 11, "write 'is null'"),
        ("age in ()", 8, "is expected, not ')'"),
        ("age in 3", 7, "'(' is expected"),
        ("age in (1 2)", 10, "')' is expected"),
        ("age is 3", 7, "'null' is expected"),
        ("age is not 3", 11, "'null' is expected"),
        ("name starts 'A'", 12, "'with' is expected"),
        ("name contains 3", 14, "a text in quotes is expected"),
        ("0 < age < 5", 8, "'and', 'or' or the end"),
        ("3 == 3", 5, "a field name is expected"),
        ("3 in (3)", 2, "a comparison is expected"),
        ("age == size", 7, "a number, a text in quotes, true or false is expected"),
        ("(age > 3", 0, "never closed"),
        ("age > 3)", 7, "'and', 'or' or the end"),
        ("age > 3 ok == true", 8, "'and', 'or' or the end"),
        ("name == 'x", 8, "this ' is never closed"),
        ("`odd == 3", 0, "this ` is never closed"),
        ("a-b == 3", 1, "'-' means nothing here. A name with this sign stands in backquotes"),
        ("in == 3", 0, "stands in backquotes: `in`"),
        ("age > 12abc", 6, "'1' means nothing here"),
        ("age > 1e999", 6, "beyond the range of floats"),
        (r"name == 'a\d'", 8, "an escape that JSON does not know"),
        (r"name == '\ud800'", 8, "an escape that JSON does not know"),
        ("not " * 101 + "age > 3", 400, "nested more than 100 levels"),
        ("(" * 5000, 100, "nested more than 100 levels"),
        ("__import__('os')", 10, "a comparison is expected"),
        ("age > 3 or\n age ! 4", 5, "write 'not' for '!'"),
    ],
)
def test_what_cannot_be_read_is_pointed_at(expression: str, at: int, said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)) as error:
        matching(expression)
    line, caret = str(error.value).split("\n")[-2:]
    assert caret == " " * (at + 2) + "^"
    assert line.strip() in expression


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("age == '18'", "the field 'age' is int64: it has no '==' with the text '18'"),
        ("age == true", "the field 'age' is int64: it has no '==' with true"),
        ("age contains '1'", "the field 'age' is int64: it has no 'contains' with the text '1'"),
        ("name > 5", "the field 'name' is string: it has no '>' with the number 5"),
        ("name in ('Ann', 5)", "the field 'name' is string: it has no 'in' with the number 5"),
        ("ok == 1", "the field 'ok' is bool: it has no '==' with the number 1"),
        ("ok > false", "the field 'ok' is bool: it has no '>' with false"),
        ("user == 'x'", "the field 'user' is struct<score: double>: it has no '=='"),
        ("name starts with 'x' and user starts with 'y'", "it has no 'starts with'"),
    ],
)
def test_types_that_do_not_compare_are_named_at_once(expression: str, said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)) as error:
        matching(expression)
    assert str(error.value).endswith("^")


def test_a_field_that_no_record_has_is_refused_and_a_late_one_is_not() -> None:
    with pytest.raises(OptionError, match=r"no record has a field 'agee'.*name, age, user, ok"):
        matching("agee > 3")
    with pytest.raises(OptionError, match=r"no record has a field 'user.scor'"):
        matching("user.scor is null")
    assert len(ListedSource([]).where("agee > 3")) == 0


def test_a_name_with_a_nul_is_another_name() -> None:
    with pytest.raises(OptionError, match="no record has a field 'age'"):
        ListedSource([{"age\0": 5}]).where("age > 3")


def test_a_field_of_the_schema_may_be_null_in_all_records_of_a_view() -> None:
    view = ListedSource(PEOPLE).take([2]).where("age > 3")
    assert len(view) == 0


def test_only_the_fields_named_are_read_and_all_records_in_few_batches() -> None:
    source = ListedSource([{"a": number, "b": "x" * 10} for number in range(70_000)])
    view = source.where("a >= 69_999".replace("_", ""))
    assert source.calls == [("columns", 65_536), ("columns", 4464)]
    assert view[:] == [{"a": 69_999, "b": "x" * 10}]


# What the language means, over Python values one at a time.

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "contains": lambda value, text: text in value,
    "starts with": lambda value, text: value.startswith(text),
}
Model = tuple[str, "Callable[[dict[str, Any]], bool | None]"]
WHOLE = st.integers(-3, 3) | st.sampled_from(
    [2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**64, 10**400]
)
REAL = st.sampled_from([0.5, -0.5, 1.0, 2.0**53, 2.0**63, 1e300, -1e300])
WORDS = st.text("ab'\"\\ü\n", max_size=3)


def quoted(text: str) -> str:
    return json.dumps(text)


def comparison(name: str, how: str, text: str, value: float | str) -> Model:
    def decide(record: dict[str, Any]) -> bool | None:
        there = record.get(name)
        return None if there is None else COMPARE[how](there, value)

    return f"{name} {how} {text}", decide


def membership(name: str, values: list[Any]) -> Model:
    def decide(record: dict[str, Any]) -> bool | None:
        there = record.get(name)
        return None if there is None else there in values

    shown = ", ".join(quoted(value) if isinstance(value, str) else repr(value) for value in values)
    return f"{name} in ({shown})", decide


def negated(model: Model) -> Model:
    text, decide = model
    return f"not ({text})", lambda record: None if (got := decide(record)) is None else not got


def combined(models: list[Model], word: str) -> Model:
    def decide(record: dict[str, Any]) -> bool | None:
        results = [decide(record) for _, decide in models]
        deciding = word == "or"
        if deciding in results:
            return deciding
        return None if None in results else not deciding

    return f" {word} ".join(f"({text})" for text, _ in models), decide


SIGNS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
NUMBERED = st.builds(
    lambda name, how, value: comparison(name, how, repr(value), value),
    st.sampled_from(["i", "f"]),
    SIGNS,
    WHOLE | REAL,
)
WORDED = st.builds(
    lambda how, value: comparison("s", how, quoted(value), value),
    st.sampled_from(list(COMPARE)),
    WORDS,
)
LISTED = st.builds(membership, st.sampled_from(["i", "f"]), st.lists(WHOLE | REAL, min_size=1))
AMONG = st.builds(membership, st.just("s"), st.lists(WORDS, min_size=1))
NULLS = st.sampled_from(["i", "f", "s"]).map(
    lambda name: (f"{name} is null", lambda record: record.get(name) is None)
)
MODELS = st.recursive(
    NUMBERED | WORDED | LISTED | AMONG | NULLS,
    lambda inner: st.one_of(
        inner.map(negated),
        st.builds(
            combined, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["and", "or"])
        ),
    ),
    max_leaves=6,
)
INT64 = st.integers(-3, 3) | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1])
FLOATS = REAL | st.sampled_from([math.inf, -math.inf, math.nan, 0.0])
RECORDS = st.lists(
    st.fixed_dictionaries(
        {}, optional={"i": st.none() | INT64, "f": st.none() | FLOATS, "s": st.none() | WORDS}
    ),
    max_size=20,
)


@given(model=MODELS, records=RECORDS)
@example(comparison("f", "<", str(2**53 + 1), 2**53 + 1), [{"f": 2.0**53}])
@example(comparison("i", "==", "1e300", 1e300), [{"i": 1}])
def test_a_view_holds_what_a_python_filter_would_keep(
    model: Model, records: list[dict[str, Any]]
) -> None:
    text, decide = model
    typed = {"i": 0, "f": 0.5, "s": "x"}  # So that every field has its type.
    source = ListedSource([typed, *records])
    expected = [number for number, row in enumerate(source.records) if decide(row)]
    assert source.where(text).ids.tolist() == expected  # type: ignore[attr-defined]


def test_integers_and_floats_of_one_field_compare_as_numbers() -> None:
    source = ListedSource([{"a": 1}] * 10) + ListedSource([{"a": 1.5}] * 10)
    assert len(source.where("a > 1")) == 10
    assert len(source.where("a >= 1")) == 20


def test_fields_of_other_types_in_other_sources_of_a_sum_are_no_matter() -> None:
    source = ListedSource([{"a": 1, "b": 1}]) + ListedSource([{"a": 2, "b": "x"}])
    assert source.where("a >= 1")[:] == [{"a": 1, "b": 1}, {"a": 2, "b": "x"}]
    with pytest.raises(OptionError, match="'b' is string"):
        source.where("b == 1")


@pytest.mark.parametrize(
    ("values", "type_", "text", "expected"),
    [
        ([dt.date(2024, 1, 2), None], pa.date32(), "d < '2024-02-01'", [True, None]),
        ([dt.datetime(2024, 1, 2, 3)], pa.timestamp("us"), "d >= '2024-01-02 03:00:00'", [True]),  # noqa: DTZ001
        ([dt.datetime(2024, 1, 2, 3)], pa.timestamp("s"), "d in ('2024-01-02T03:00:00')", [True]),  # noqa: DTZ001
        ([1, 200], pa.uint8(), "d < 300", [True, True]),
        ([1, 200], pa.uint8(), "d > -1", [True, True]),
        ([1, 200], pa.uint8(), "d == 456", [False, False]),
        ([2**64 - 1], pa.uint64(), "d == 18446744073709551615", [True]),
        ([0.1], pa.float32(), "d == 0.1", [False]),
        (["a", "b"], pa.dictionary(pa.int8(), pa.string()), "d == 'b'", [False, True]),
        (["a", "b"], pa.large_string(), "d starts with 'b'", [False, True]),
        (["a", "b"], pa.string_view(), "d contains 'b'", [False, True]),
        ([None, None], pa.null(), "d == 'b' or d > 3", [None, None]),
        ([None, 1], pa.int8(), "d is null", [True, False]),
    ],
)
def test_columns_of_any_type_are_compared(
    values: list[Any], type_: pa.DataType, text: str, expected: list[bool | None]
) -> None:
    assert holds(parse(text), {"d": pa.array(values, type_)}, text).to_pylist() == expected


def test_a_text_that_is_no_moment_is_named() -> None:
    with pytest.raises(OptionError, match=r"'d' is date32.*'soon' cannot be read as one"):
        holds(parse("d > 'soon'"), {"d": pa.array([dt.date(2024, 1, 2)])}, "d > 'soon'")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (pc.field("age") >= 18, [0, 3]),
        (pc.field("user", "score") > 0.5, [1]),
        (pc.field("age").is_null(), [2]),
        (pc.field("age").isin([17, 20]), [0, 1]),
        (pc.field("age") > pc.field("user", "score"), [0, 1]),
        (pc.match_substring(pc.field("name"), "nn"), [0, 2]),
        (pc.scalar(True), [0, 1, 2, 3, 4]),  # noqa: FBT003
    ],
)
def test_a_pyarrow_expression_works_as_well(expression: pc.Expression, expected: list[int]) -> None:
    assert matching(expression) == expected


def test_pyarrow_expressions_that_print_alike_are_kept_apart() -> None:
    source = ListedSource([{"a": number} for number in range(2000)], path="a.jsonl")
    every = pc.field("a").isin(list(range(1000)))
    other = pc.field("a").isin([*range(500), -1, *range(501, 1000)])
    assert len(source.where(every)) == 1000
    assert len(source.where(other)) == 999


def test_a_pyarrow_expression_that_does_not_fit_is_named_with_the_types() -> None:
    for expression in (pc.field("age") > "x", pc.field("nope") > 3, pc.field("age")):
        with pytest.raises(OptionError, match=r"does not fit the fields .*age: int64"):
            matching(expression)


def test_anything_else_is_refused_with_an_example() -> None:
    with pytest.raises(OptionError, match=r"where\(.*not int"):
        ListedSource(PEOPLE).where(18)


def aged(count: int, path: str | None = "a.jsonl") -> ListedSource:
    return ListedSource([{"age": number % 100} for number in range(count)], path=path)


def test_what_was_found_is_kept_in_a_file_and_mapped_by_the_next(cache: Path) -> None:
    found = aged(1000).where("age >= 18")
    (kept,) = (cache / "views").glob("*.npy")
    again = aged(1000)
    view = again.where(" 18 <= (age)".replace("(", "").replace(")", ""))
    assert not again.calls
    assert isinstance(view.ids, np.memmap)  # type: ignore[attr-defined]
    assert np.array_equal(np.load(kept), found.ids)  # type: ignore[attr-defined]
    assert view[:] == found[:]
    assert view.fingerprint == found.fingerprint


def test_another_expression_length_or_source_is_found_anew() -> None:
    assert len(aged(1000).where("age >= 18")) == 820
    assert len(aged(1000).where("age >= 19")) == 810
    assert len(aged(2000).where("age >= 18")) == 1640
    assert len(aged(1000, path="b.jsonl").where("age < 18")) == 180


def test_nothing_found_is_kept_too() -> None:
    assert len(aged(1000).where("age > 100")) == 0
    again = aged(1000)
    view = again.where("age > 100")
    assert not again.calls
    assert view[:] == []
    assert view.blocks.tolist() == [0]


def test_records_in_memory_leave_nothing_behind(cache: Path) -> None:
    in_memory, in_a_file = aged(1000, path=None), aged(1000)
    for source in (in_memory, in_memory.take([20, 3]), in_memory + in_a_file):
        assert len(source.where("age >= 18")) > 0
    assert not cache.exists()
    (in_a_file + in_a_file).take([20, 3]).where("age >= 18")
    assert cache.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b"nonsense"),
        lambda path: path.write_bytes(b""),
        lambda path: np.save(path, np.arange(5.0)),
        lambda path: np.save(path, np.array([[1, 2]])),
        lambda path: np.save(path, np.array([5, 1000])),
        lambda path: np.save(path, np.array([{}], dtype=object), allow_pickle=True),
    ],
    ids=["cut", "nonsense", "empty", "floats", "two axes", "beyond the end", "objects"],
)
def test_a_damaged_file_is_found_out_said_and_made_again(
    cache: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    aged(1000).where("age >= 18")
    (kept,) = (cache / "views").glob("*.npy")
    damage(kept)
    with caplog.at_level(logging.WARNING, "penstock.datasets"):
        assert len(aged(1000).where("age >= 18")) == 820
    assert "is made again" in caplog.text
    again = aged(1000)
    assert len(again.where("age >= 18")) == 820
    assert not again.calls


def test_where_nothing_can_be_written_the_numbers_stay_in_memory_and_a_line_says_so(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "penstock.datasets"):
        view = aged(1000).where("age >= 18")
    assert "820 numbers stay in the memory" in caplog.text
    assert len(view) == 820


def test_a_view_pickles_small_and_searches_nothing_again() -> None:
    source = aged(1000)
    source.records = source.records[:1] * 100_000
    view = source.where("age == 0")
    assert len(view) == 100_000
    assert len(pickle.dumps(view)) - len(pickle.dumps(source)) < 900
    copy = pickle.loads(pickle.dumps(view))
    copy.source.calls.clear()
    assert len(copy) == 100_000
    assert not copy.source.calls


def test_threads_search_once() -> None:
    view = pickle.loads(pickle.dumps(aged(1000, path=None).where("age >= 18")))
    view.source.calls.clear()
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(len, [view] * 32)) == {820}
    assert view.source.calls == [("columns", 1000)]


def test_a_view_of_a_source_that_grew_stays_as_it_was_and_one_that_shrank_is_refused() -> None:
    view = pickle.loads(pickle.dumps(aged(1000, path=None).where("age >= 18")))
    view.source.records.append({"age": 50})
    assert len(view) == 820
    view = pickle.loads(pickle.dumps(view))
    del view.source.records[500:]
    with pytest.raises(StaleIndexError, match="of 1,000 records and 500 are left"):
        len(view)


def test_fingerprints_tell_conditions_apart_and_survive_appending() -> None:
    views = [
        aged(10).where("age > 3"),
        aged(10).where("age > 3.5"),
        aged(10).where("age >= 3"),
        aged(10).where(pc.field("age") > 3),
        aged(10),
    ]
    assert len({view.fingerprint for view in views}) == len(views)
    assert aged(20).where("age > 3").fingerprint == views[0].fingerprint


def test_blocks_of_a_view_are_those_of_the_source() -> None:
    source = ListedSource([{"a": number} for number in range(100)], block=10)
    assert source.where("a < 15 or a >= 38").blocks.tolist() == [0, 10, 15, 17, *range(27, 78, 10)]
