from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.decode import InferringDecoder, unify
from penstock.errors import SchemaMismatchError
from tests.decode.bad_lines import Heard, never

if TYPE_CHECKING:
    from collections.abc import Callable


def stream(*texts: bytes, heard: Heard | None = None) -> list[pa.RecordBatch]:
    """Return the batches of some texts, checked against those of the careful way."""
    decoder, careful = InferringDecoder(), InferringDecoder()
    batches = []
    for text in texts:
        on_bad = never if heard is None else heard
        batch = decoder.settle(text, decoder.attempt(text), on_bad)
        batch.validate(full=True)
        other = careful._settle_with_care(text, Heard())  # noqa: SLF001
        assert batch.schema == decoder.schema == other.schema
        assert repr(batch.to_pylist()) == repr(other.to_pylist())
        batches.append(batch)
    return batches


def types(batch: pa.RecordBatch) -> dict[str, str]:
    return {field.name: str(field.type) for field in batch.schema}


def lines(*records: object) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def test_the_schema_is_empty_before_the_first_text() -> None:
    assert InferringDecoder().schema == pa.schema([])


def test_strings_stay_strings_however_much_they_look_like_dates() -> None:
    (batch,) = stream(lines({"t": "2020-01-01T00:00:00Z", "d": "2020-01-01", "n": "1"}))
    assert set(types(batch).values()) == {"string"}


def test_each_kind_of_value_has_its_type() -> None:
    (batch,) = stream(
        lines({"b": True, "i": -1, "f": 0.5, "s": "x", "l": [1], "o": {"x": [{"y": 1}]}, "n": None})
    )
    assert types(batch) == {
        "b": "bool",
        "i": "int64",
        "f": "double",
        "s": "string",
        "l": "list<item: int64>",
        "o": "struct<x: list<item: struct<y: int64>>>",
        "n": "null",
    }


def test_integers_next_to_floats_make_doubles_where_doubles_equal_them() -> None:
    batches = stream(lines({"a": 1}), lines({"a": 0.5}), lines({"a": 2**54}))
    assert [types(batch)["a"] for batch in batches] == ["int64", "double", "double"]
    assert unify(batches)["a"].to_pylist() == [1.0, 0.5, 2.0**54]


@pytest.mark.parametrize("large", [2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**64 - 1])
def test_an_integer_that_no_double_equals_makes_strings_next_to_floats(large: int) -> None:
    shapes: list[Callable[[float], Any]] = [lambda v: v, lambda v: [v], lambda v: {"x": v}]
    for shape in shapes:
        for values in ([large, 0.5], [0.5, large], [1, 0.5, large]):
            apart = stream(*(lines({"a": shape(value)}) for value in values))
            together = stream(lines(*({"a": shape(value)} for value in values)))
            for table in (unify(apart), unify(together)):
                texts = [str(one) for one in table["a"].to_pylist()]
                assert str(large) in "".join(texts)


def test_null_takes_whatever_type_arrives() -> None:
    for value, type_ in (
        (1, "int64"),
        ("x", "string"),
        ([0.5], "list<item: double>"),
        ({"x": True}, "struct<x: bool>"),
    ):
        batches = stream(lines({"a": None, "b": 1}), lines({"a": value, "b": 1}))
        assert [types(batch)["a"] for batch in batches] == ["null", type_]
        assert unify(batches)["a"].to_pylist() == [None, value]


def test_items_of_lists_that_were_empty_or_null_take_whatever_type_arrives() -> None:
    batches = stream(
        lines({"a": []}, {"a": [None, None]}),
        lines({"a": [None]}, {"a": []}, {"a": None}),
        lines({"a": ["x"]}),
        lines({"a": [[]]}),
    )
    shapes = [types(batch)["a"] for batch in batches]
    assert shapes == ["list<item: null>", "list<item: null>"] + ["list<item: string>"] * 2
    flat = unify(batches)["a"].to_pylist()
    assert flat == [[], [None, None], [None], [], None, ["x"], ["[]"]]


def test_a_late_field_stands_after_the_others_and_is_null_before() -> None:
    batches = stream(lines({"z": 1}), lines({"a": 2, "z": 3}))
    assert batches[1].schema.names == ["z", "a"]
    assert unify(batches).to_pylist() == [{"z": 1, "a": None}, {"z": 3, "a": 2}]


def test_fields_of_objects_merge_however_deep() -> None:
    batches = stream(
        lines({"o": [{"a": {"x": 1}}]}), lines({"o": [{"a": {"y": [0.5]}}, None, {"b": 1}]})
    )
    assert types(batches[1])["o"] == (
        "list<item: struct<a: struct<x: int64, y: list<item: double>>, b: int64>>"
    )
    assert unify(batches)["o"].to_pylist()[0] == [{"a": {"x": 1, "y": None}, "b": None}]


def test_integers_beyond_int64_make_uint64_while_nothing_is_negative() -> None:
    batches = stream(lines({"a": 1}), lines({"a": 2**64 - 1}), lines({"a": 3}))
    assert [types(batch)["a"] for batch in batches] == ["int64", "uint64", "uint64"]
    assert unify(batches)["a"].to_pylist() == [1, 2**64 - 1, 3]


@pytest.mark.parametrize(
    "texts",
    [
        [lines({"a": -1}, {"a": 2**63})],
        [lines({"a": -1}), lines({"a": 2**63})],
        [lines({"a": 2**63}), lines({"a": -1})],
    ],
)
def test_negative_integers_and_integers_beyond_int64_make_strings(texts: list[bytes]) -> None:
    table = unify(stream(*texts))
    assert sorted(table["a"].to_pylist()) == ["-1", "9223372036854775808"]


@pytest.mark.parametrize("huge", [2**64, -(2**63) - 1, 10**400])
@pytest.mark.parametrize("known", [[1], [0.5], [None], ["x"], [2**63], []])
def test_integers_beyond_64_bits_make_strings_and_never_floats(huge: int, known: list) -> None:
    batches = stream(lines({"f": 0}, *({"a": value} for value in known)), lines({"a": huge}))
    assert types(batches[1])["a"] == "string"
    assert unify(batches)["a"].to_pylist()[-1] == str(huge)


def test_floats_too_large_for_integers_stay_floats_in_the_fast_way() -> None:
    decoder = InferringDecoder()
    text = lines({"a": 1e30, "s": "1234567890123456789012"}, {"a": -1e300}, {"a": math.inf})
    assert decoder.attempt(text) is not None
    assert decoder.settle(text, decoder.attempt(text), never)["a"].to_pylist() == [
        1e30,
        -1e300,
        math.inf,
    ]


def test_the_integer_minus_zero_is_zero_and_the_float_keeps_its_sign() -> None:
    _, batch = stream(lines({"a": 0.5}), b'{"a":-0}\n{"a":-0.0}\n{"a": -0 }\n{"a":-0e1}\n')
    assert [math.copysign(1, value) for value in batch["a"].to_pylist()] == [1, -1, 1, -1]


def test_values_of_several_types_make_strings_and_their_json_text() -> None:
    (batch,) = stream(
        lines(
            *({"a": value} for value in ["s", 1, 0.5, True, None, [1, None], {"x": "é", "y": None}])
        )
    )
    assert batch["a"].to_pylist() == [
        *("s", "1", "0.5", "true", None),
        *("[1,null]", '{"x":"é","y":null}'),
    ]


def test_text_is_that_of_the_values_also_when_the_attempt_had_made_doubles_of_them() -> None:
    decoder = InferringDecoder()
    decoder.settle(lines({"a": 0.5, "o": {"x": 1, "y": 1}}), None, never)
    text = lines({"a": 1, "o": {"x": None}}, {"a": 2})
    early = decoder.attempt(text)
    assert early is not None
    decoder.settle(lines({"a": "x", "o": "x"}), None, never)
    batch = decoder.settle(text, early, never)
    assert batch["a"].to_pylist() == ["1", "2"]
    assert batch["o"].to_pylist() == ['{"x":null}', None]


def test_a_field_is_warned_of_once_with_its_path_its_types_and_the_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    decoder = InferringDecoder(name="logs/a.jsonl")
    for text in (
        lines({"o": [{"x": 1}], "h": 1}),
        lines({"o": [{"x": "s"}]}),
        lines({"o": [{"x": True}]}),
        lines({"h": 2**70}),
        lines({"h": 2**71}, {"o": [{"x": [1]}]}),
    ):
        decoder.settle(text, decoder.attempt(text), never)
    messages = [record.getMessage() for record in caplog.records]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert {record.name for record in caplog.records} == {"penstock.decode"}
    assert "logs/a.jsonl: field 'o[].x' holds integers and strings" in messages[0]
    assert "logs/a.jsonl: field 'h' holds integers beyond 64 bits" in messages[1]


def test_nothing_is_warned_of_when_types_only_widen(caplog: pytest.LogCaptureFixture) -> None:
    stream(lines({"a": 1, "b": None}), lines({"a": 0.5, "b": "x", "c": []}), lines({"c": [{}]}))
    assert not caplog.records


def test_empty_objects_are_rows_of_nulls() -> None:
    batches = stream(b"{}\n{}\n", lines({"a": 1}, {}), b"{}\n")
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    assert unify(batches).to_pylist() == [{"a": None}] * 2 + [{"a": 1}] + [{"a": None}] * 2


def test_only_empty_objects_are_rows_without_columns() -> None:
    batches = stream(b"{}\n{}\n", b"{}\n")
    assert unify(batches).num_rows == 3


def test_objects_that_are_always_empty_keep_their_place() -> None:
    batches = stream(
        lines({"a": {}}, {"a": None}, {"a": {}}), lines({"a": {}}), lines({"b": [{}, None]})
    )
    assert types(batches[-1]) == {"a": "struct<>", "b": "list<item: struct<>>"}
    assert unify(batches)["a"].to_pylist() == [{}, None, {}, {}, None]
    late = stream(lines({"a": {}}), lines({"a": {"x": 1}}))
    assert unify(late)["a"].to_pylist() == [{"x": None}, {"x": 1}]


@pytest.mark.parametrize("text", [b"", b"\n", b"  \r\n\n"])
def test_a_text_without_records_changes_nothing(text: bytes) -> None:
    batches = stream(text, lines({"a": 1}), text)
    assert [batch.num_rows for batch in batches] == [0, 1, 0]
    assert types(batches[2]) == {"a": "int64"}


def test_of_a_key_written_twice_the_last_value_counts() -> None:
    batches = stream(b'{"a":"x","a":1,"o":{"y":1,"y":[2]}}\n', b'{"a":2,"a":3}\n{"a":4,"a":null}\n')
    assert unify(batches)["a"].to_pylist() == [1, 3, None]
    assert types(batches[0]) == {"a": "int64", "o": "struct<y: list<item: int64>>"}


def test_nan_and_infinity_are_floats_as_in_python() -> None:
    for first in (b"", b'{"a":0.5}\n'):
        batches = stream(first, b'{"a":NaN}\n{"a":Infinity}\n{"a":-Infinity}\n{"a":1e400}\n')
        values = batches[-1]["a"].to_pylist()
        assert math.isnan(values[0])
        assert values[1:] == [math.inf, -math.inf, math.inf]


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b"[1]",
        b"1",
        b'"x"',
        b"true",
        b"not json",
        b'{"a":',
        b'{"a":1} {"a":2}',
        b'{"a":1}{"a":2}',
        b'{"a":1} null {"a":2}',
        b'{"a":1}}',
        b'{"a":Inf}',
        b'{"a":-NaN}',
        b'{"a":01}',
        b'{"s":"\xff"}',
        b'{"s":"\xed\xa0\x80"}',
        b'{"\xff":1}',
        b'{"s":"\x00"}',
        b'{"s":"\\ud800"}',
        b'{"\\udc00":1}',
        b'{"s":["\\ud83d\\ud83d"]}',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":1}\x00',
        b'{"b":' + b"[" * 64 + b"]" * 64 + b"}",
        b'{"b":' + b'{"x":' * 64 + b"1" + b"}" * 65,
        b'{"b":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b"7" * 4301 + b"}",
    ],
    ids=lambda line: f"{len(line)}-{line[:24]!r}",
)
@pytest.mark.parametrize("known", [b"", b'{"a":0.5,"s":"x"}\n'])
def test_a_bad_line_is_told_and_leaves_no_trace(line: bytes, known: bytes) -> None:
    heard = Heard()
    batches = stream(known, b'{"a":1}\n\n' + line + b'\n{"a":2}\n', heard=heard)
    assert [value["a"] for value in batches[1].to_pylist()] == [1, 2]
    assert set(types(batches[1])) <= {"a", "s"}
    ((index, raw, why),) = heard
    assert (index, raw) == (2, line)
    assert isinstance(why, ValueError)
    assert str(why)


def test_nesting_is_held_up_to_the_limit() -> None:
    deep: object = 1
    for _ in range(63):
        deep = [deep]
    (batch,) = stream(lines({"a": deep}))
    assert batch["a"].to_pylist() == [deep]


def test_values_across_lines_are_bad_lines() -> None:
    heard = Heard()
    batches = stream(lines({"a": 1}), b'{"a":\n2}\n{"a":{}\n}\n{"a":3}\n', heard=heard)
    assert heard.indices == [0, 1, 2, 3]
    assert batches[1]["a"].to_pylist() == [3]


def test_a_handler_that_raises_leaves_the_schema_as_it_was() -> None:
    decoder = InferringDecoder()
    decoder.settle(lines({"a": 1}), None, never)
    with pytest.raises(AssertionError, match="line 1"):
        decoder.settle(lines({"b": 1}) + b"no\n", None, never)
    assert decoder.schema.names == ["a"]


def test_strict_lets_the_first_records_make_the_schema_and_holds_it() -> None:
    decoder = InferringDecoder(strict=True, name="a.jsonl")
    for text in (b"\n", lines({"a": 1, "m": 1}, {"m": "x"}), lines({"a": -2, "m": 3}), lines({})):
        decoder.settle(text, decoder.attempt(text), never)
    assert types(decoder.settle(b"", None, never)) == {"a": "int64", "m": "string"}


@pytest.mark.parametrize(
    ("first", "then", "field", "seen"),
    [
        ({"a": 1}, {"b": 1}, "b", "integers"),
        ({"a": 1}, {"a": 0.5}, "a", "floats"),
        ({"a": 1}, {"a": "x"}, "a", "strings"),
        ({"a": "x"}, {"a": 1}, "a", "integers"),
        ({"a": 1}, {"a": 2**63}, "a", "integers beyond int64"),
        ({"a": 2**63}, {"a": -1}, "a", "negative integers"),
        ({"a": None}, {"a": "x"}, "a", "strings"),
        ({"a": [{"x": 1}]}, {"a": [{"x": 1}, {"y": []}]}, "a[].y", "lists"),
        ({"a": [None]}, {"a": ["x"]}, "a[]", "strings"),
        ({"a": 0.5}, {"a": 2**64}, "a", "values of several types"),
    ],
)
def test_strict_names_the_first_record_that_asks_for_another_schema(
    first: dict, then: dict, field: str, seen: str
) -> None:
    decoder = InferringDecoder(strict=True, name="a.jsonl")
    decoder.settle(lines(first), None, never)
    text = lines(first) + b"\n" + lines(first, then, then)
    with pytest.raises(SchemaMismatchError) as caught:
        decoder.settle(text, decoder.attempt(text), never)
    message = str(caught.value)
    assert f"a.jsonl, line index 3: field {field!r} holds {seen}" in message
    assert "strict" in message
    assert (caught.value.field, caught.value.line_index) == (field, 3)
    assert types(decoder.settle(lines(first), None, never)) == types(stream(lines(first))[0])


def test_attempts_in_two_threads_give_what_one_after_the_other_gives() -> None:
    texts = [
        lines(
            *(
                {"n": n, "x": [n / 2] * (n % 3), "late" if part > 3 else "s": "é"}
                for n in range(500)
            )
        )
        for part in range(8)
    ]
    decoder = InferringDecoder()
    with ThreadPoolExecutor(2) as pool:
        attempts = [(text, pool.submit(decoder.attempt, text)) for text in texts]
        batches = [decoder.settle(text, made.result(), never) for text, made in attempts]
    assert unify(batches).equals(unify(stream(*texts)))


@pytest.mark.parametrize("text", [b"null", b"null\n", b"\nnull\n", b"{}\nnull\n", b"{} null\n{}\n"])
def test_a_line_null_does_not_crash_the_interpreter(text: bytes) -> None:
    program = (
        "import sys; from penstock.decode import InferringDecoder\n"
        "text = eval(sys.argv[1])\n"
        "for warm in (b'', b'{\"a\":1}\\n'):\n"
        "    decoder = InferringDecoder(); heard = []\n"
        "    for part in (warm, text, text):\n"
        "        decoder.settle(part, decoder.attempt(part), lambda *bad: heard.append(bad))\n"
        "    print(len(heard))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, repr(text)], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "2\n2\n", "")
