from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.decode._text import (
    count_object_lines,
    is_utf8,
    may_hold_endless_number,
    may_hold_foreign_numbers,
    may_hold_wide_integer,
)


@given(
    st.binary(max_size=40)
    | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
@example(b"")
@example(b"\xed\xa0\x80")
def test_utf8_is_what_decodes(text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError:
        assert not is_utf8(text)
    else:
        assert is_utf8(text)


@given(
    st.lists(
        st.sampled_from([b"{}", b'{"a"}', b"", b"\r", b"{}\r", b"{", b"}", b" {}", b"{} ", b"x"])
    )
)
def test_lines_are_counted_when_each_is_an_object(lines: list[bytes]) -> None:
    plain = [line.removesuffix(b"\r") for line in lines]
    filled = [line for line in plain if line]
    whole = all(line.startswith(b"{") and line.endswith(b"}") for line in filled)
    expected = len(filled) if whole else None
    for text in (b"\n".join(lines), b"".join(line + b"\n" for line in lines)):
        assert count_object_lines(text) == expected


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
def test_lines_are_counted_in_long_texts(end: bytes) -> None:
    lines = [b'{"a":"' + b"x" * (n * 10_007) + b'"}' for n in range(20)]
    assert count_object_lines(end.join(lines)) == 20
    for bad in (0, 7, 19):
        broken = [line[1:] if n == bad else line for n, line in enumerate(lines)]
        assert count_object_lines(end.join(broken)) is None


@given(
    st.sampled_from([b"", b"-", b"0.", b'"']),
    st.integers(1, 25),
    st.sampled_from([b"", b".5", b"e5", b" ", b'"']),
    st.integers(0, 40),
)
def test_an_integer_of_16_digits_or_more_is_never_overlooked(
    before: bytes, digits: int, after: bytes, offset: int
) -> None:
    text = b"x" * offset + b":" + before + b"7" * digits + after + b"}"
    really = digits >= 16 and before in (b"", b"-") and after.strip() == b""
    assert may_hold_wide_integer(text) == really


@pytest.mark.parametrize("length", [4301, 4400, 10_000])
def test_a_number_too_long_for_python_is_never_overlooked(length: int) -> None:
    for offset in range(0, 600, 7):
        assert may_hold_endless_number(b"{" * offset + b"1" * length + b"}" * 50)


def test_ordinary_digits_are_no_endless_number() -> None:
    assert not may_hold_endless_number(b'{"a":12345678901234567890,"b":"x"}\n' * 5000)


@pytest.mark.parametrize("number", [b"0.8444218515250481", b"123456789012345678", b"7" * 300])
def test_a_text_of_hardly_anything_but_digits_holds_no_endless_number(number: bytes) -> None:
    text = b"[" + (number + b",") * (200_000 // len(number)) + b"1]"
    assert not may_hold_endless_number(text)
    # Unless there is one among them.
    for place in (0, 1, 5000, 50_001, len(text) - 1):
        assert may_hold_endless_number(text[:place] + b"," + b"1" * 4301 + b"," + text[place:])
        assert not may_hold_endless_number(text[:place] + b"," + b"1" * 3500 + b"," + text[place:])


@given(st.lists(st.integers(1, 6000), max_size=8), st.integers(0, 300))
def test_a_run_of_digits_counts_by_its_length(lengths: list[int], offset: int) -> None:
    text = b" " * offset + b",".join(b"1" * length for length in lengths)
    longest = max(lengths, default=0)
    if longest > 4300:
        assert may_hold_endless_number(text)
    elif longest < 3840:
        assert not may_hold_endless_number(text)


@given(st.lists(st.sampled_from(["Infinity", "Inf", "-", "NaN", ",", "inity"])).map("".join))
def test_numbers_that_python_does_not_read_are_never_overlooked(text: str) -> None:
    foreign = re.search(r"Inf(?!inity)", text) or "-NaN" in text
    assert may_hold_foreign_numbers(text.encode()) == bool(foreign)
