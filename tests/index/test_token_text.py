"""Texts out of lines: what Python's `json` reads is read, and what is wrong is said."""

from __future__ import annotations

import json
import pickle
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.index.tokens._documents import BadText, TextCall, TextField, get_text_from_jsonl
from tests.index.text_samples import ODD_TEXTS
from tests.rounds import rounds

any_text = st.text(st.characters(codec=None), max_size=40)  # with halves of surrogate pairs
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=rounds(50, 3000))
@given(st.lists(st.tuples(st.dictionaries(any_text, values, max_size=4), any_text), max_size=5))
def test_texts_are_those_that_json_reads(documents: list[tuple[dict[str, Any], str]]) -> None:
    texts = [text for _, text in documents]
    lines = [json.dumps({**others, "text": text}).encode() + b"\n" for others, text in documents]
    assert list(map(TextField(), lines)) == texts
    assert [get_text_from_jsonl(line) for line in lines] == texts


def test_odd_texts_come_through_as_they_are_however_they_were_written() -> None:
    for ascii_only in (True, False):
        lines = [json.dumps({"body": t}, ensure_ascii=ascii_only).encode() for t in ODD_TEXTS]
        assert list(map(TextField("body"), lines)) == ODD_TEXTS


@pytest.mark.parametrize(
    "line",
    [
        b'{"other": NaN, "text": "a"}',
        b'{"other": -Infinity, "text": "a"}',
        rb'{"other": "\ud800", "text": "a"}',
        b'{"other": 123456789012345678901234567890, "text": "a"}',
        b'\xef\xbb\xbf{"text": "a"}',
        b'\xef\xbb\xbf{"other": NaN, "text": "a"}\r\n',
        rb'{"te\u0078t": "a"}',
        b'{"text": 1, "text": "a"}',
        b' \t{"text": "a"} \r\n',
    ],
    ids=["nan", "infinity", "half", "big", "mark", "mark+nan", "escaped", "twice", "blanks"],
)
def test_what_json_reads_is_read(line: bytes) -> None:
    assert json.loads(line)["text"] == "a"
    assert TextField()(line) == "a"
    assert get_text_from_jsonl(line) == "a"


def test_a_path_leads_to_a_field_inside() -> None:
    lines = [
        b'{"meta": {"page": {"body": "a"}}}',
        b'{"body": "no", "meta": {"page": {"body": ""}}}',
    ]
    assert list(map(TextField("meta.page.body"), lines)) == ["a", ""]
    assert get_text_from_jsonl(lines[0], "meta.page.body") == "a"


def test_a_field_of_the_whole_name_wins_over_the_path() -> None:
    line = b'{"meta": {"body": "inside"}, "meta.body": "itself"}'
    assert TextField("meta.body")(line) == "itself"


BAD = {
    "not JSON": (b'{"text": "a"', "at character 13 of the line"),
    "nothing": (b"", "Expecting value at character 1 of the line"),
    "not UTF-8": (b'{"text": "\xff"}', "not UTF-8 at byte 10 of the line"),
    "not UTF-8 elsewhere": (b'{"other": "\xff", "text": "a"}', "not UTF-8 at byte 11 of the line"),
    "control": (b'{"text": "a\tb"}', "Invalid control character at character 12 of the line"),
    "array": (b'["text"]', "an array, not an object"),
    "string": (b'"text"', "a string, not an object"),
    "null": (b"null", "null, not an object"),
    "missing": (b'{"texts": "a"}', "no field 'text'"),
    "null text": (b'{"text": null}', "field 'text' is null, not a string"),
    "number text": (b'{"text": 1.5}', "field 'text' is a number, not a string"),
    "list text": (b'{"text": ["a"]}', "field 'text' is an array, not a string"),
    "object text": (b'{"text": {"a": "b"}}', "field 'text' is an object, not a string"),
    "deep": (b'{"text": ' + b"[" * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_named_with_its_reason(name: str) -> None:
    line, reason = BAD[name]
    with pytest.raises(BadText) as failure:
        TextField()(line)
    assert reason in str(failure.value)
    with pytest.raises(KeyError if name == "missing" else ValueError):
        get_text_from_jsonl(line)


@pytest.mark.parametrize("line", [b'{"a": "x"}', b'{"a": {"c": "x"}}', b'{"a": ["b"]}', b"{}"])
def test_a_path_that_ends_early_is_missing(line: bytes) -> None:
    with pytest.raises(BadText, match=r"no field 'a\.b'"):
        TextField("a.b")(line)


def test_a_missing_key_says_which_ones_there_are() -> None:
    with pytest.raises(KeyError, match=r"no field 'text' among 'body', 'id'"):
        get_text_from_jsonl(b'{"body": "a", "id": 1}')


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8", "UTF8", "utf-8-sig"])
def test_a_line_may_have_another_encoding(encoding: str) -> None:
    line = '{"text": "caf\u00e9"}'.encode(encoding)
    assert get_text_from_jsonl(line, text_encoding=encoding) == "caf\u00e9"


def test_a_function_of_the_user_gives_texts() -> None:
    shout = TextCall(lambda line: line.decode().upper())
    assert list(map(shout, [b"a", b"b"])) == ["A", "B"]
    title = TextCall(partial(get_text_from_jsonl, text_key="title"))
    assert pickle.loads(pickle.dumps(title))(b'{"title": "a"}') == "a"


def test_what_a_function_refuses_is_named() -> None:
    title = TextCall(partial(get_text_from_jsonl, text_key="title"))
    with pytest.raises(BadText) as failure:
        title(b'{"text": "a"}')
    assert str(failure.value) == """KeyError: "no field 'title' among 'text'\""""
    assert isinstance(failure.value.__cause__, KeyError)
    with pytest.raises(BadText, match="decode_wrongly returned b'a', not a string"):
        TextCall(decode_wrongly)(b"a")


def decode_wrongly(line: bytes) -> Any:
    return line


def test_fields_travel_between_processes() -> None:
    assert pickle.loads(pickle.dumps(TextField("a.b"))) == TextField("a.b")
