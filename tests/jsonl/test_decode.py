"""A line holds what Python's `json` reads in it, or is bad where `json` refuses it."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.jsonl._decode import DecodedRun, MalformedLine, decode_piece
from penstock.jsonl._text import TextPiece
from tests.rounds import rounds

spaces = st.sampled_from(["", "", " ", "\t", "\r", "  ", "\x0b", "\xa0"])
escapes = ["\\n", "\\u0041", "\\ud83d\\ude00", "\\ud800", "\\udc00", "\\u00zz", "\\x", "\\/"]
strings = st.lists(
    st.sampled_from([*escapes, "\\u0000", '\\"', "é", "😀", "null", "\x00", "\x1f", "\x7f"])
    | st.characters(exclude_characters='"\\\n', exclude_categories=["Cs"]),
    max_size=5,
).map(lambda parts: f'"{"".join(parts)}"')
number_words = """
    0 -0 00 01 +1 1. .5 -.5 1.0 -0.0 1e5 1E+5 1e-5 1e 1e400 -1e400 1e-400 NaN -NaN Infinity
    -Infinity Inf nan 0x10 1_000 9007199254740993 18446744073709551615 18446744073709551616
    -9223372036854775808 -9223372036854775809 0.1 1e22 123456789012345678901234567890 -
    5e-324 2.2250738585072011e-308 1.7976931348623157e308 0.30000000000000004
""".split()  # noqa: SIM905 (thirty quoted words would not fit the eye)
numbers = st.sampled_from(number_words) | st.builds(
    repr, st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
)
leaves = strings | numbers | st.sampled_from(["true", "false", "null", "True", "nul", "", "//"])


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    items = st.lists(st.builds("{}{}{}".format, spaces, inner, spaces), max_size=3)
    keys = strings | st.sampled_from(['"a"', '"a"', '"b"', "a", "1", "null"])
    members = st.lists(
        st.builds("{}{}{}:{}{}".format, spaces, keys, spaces, spaces, inner), max_size=3
    )
    ends = st.sampled_from(["", "", "", ",", "]", "}"])
    return st.one_of(
        st.builds(lambda parts, end: f"[{','.join(parts)}{end}]", items, ends),
        st.builds(lambda parts, end: f"{{{','.join(parts)}{end}}}", members, ends),
    )


json_like = st.builds(
    "{}{}{}".format, spaces, st.recursive(leaves, _nested, max_leaves=6), spaces
).map(str.encode)


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """Draw JSON text with a few bytes replaced, inserted or left out."""
    line = bytearray(draw(json_like))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(line)))
        line[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(line).replace(b"\n", b"")


def decoded(text: bytes) -> list[object]:
    """Return what comes of a text: records, and (line number, line) of bad lines."""
    seen: list[object] = []
    for run in decode_piece(TextPiece("file", 1, text)):
        if isinstance(run, DecodedRun):
            assert run.items
            seen += run.items
        else:
            assert run.path == "file"
            seen.append((run.number, run.line))
    return seen


def as_python_reads(lines: list[bytes]) -> list[object]:
    """Return the same, of lines, as Python's `json` has it."""
    seen: list[object] = []
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            continue
        try:
            seen.append(json.loads(line.decode("utf-8")))
        except ValueError:
            seen.append((number, line))
    return seen


@given(st.lists(mangled() | json_like, max_size=6), st.sampled_from([b"", b"\n"]))
@example([b'{"a":1,"a":2}'], b"")
@example([b"\xef\xbb\xbf{}"], b"")
@example([b"1" * 4300, b"1" * 4301, b"[" + b"9" * 5000 + b"]"], b"")
@example([b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xff"', b'"\x00"', b"\x00", b"[1]\x00"], b"\n")
@example([b"{} {}", b"[1][2]", b"1 2", b'""""', b"\x0c", b"\x1c{}"], b"\n")
def test_every_line_is_read_or_refused_as_python_has_it(lines: list[bytes], ending: bytes) -> None:
    text = b"\n".join(lines) + ending
    # repr tells NaN from None, 1 from 1.0, 0.0 from -0.0, and shows the order of keys.
    assert repr(decoded(text)) == repr(as_python_reads(text.split(b"\n")))


@given(st.lists(json_like, max_size=8), st.data())
def test_any_cut_into_pieces_gives_the_same_records_and_line_numbers(
    lines: list[bytes], data: st.DataObject
) -> None:
    cuts = sorted({0, len(lines), *data.draw(st.lists(st.integers(0, len(lines)), max_size=4))})
    seen: list[object] = []
    for start, stop in pairwise(cuts):
        text = b"".join(line + b"\n" for line in lines[start:stop])
        for run in decode_piece(TextPiece("file", start + 1, text)):
            seen += run.items if isinstance(run, DecodedRun) else [(run.number, run.line)]
    assert repr(seen) == repr(as_python_reads(lines))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"18446744073709551616", "18446744073709551616"),
        (b"-170141183460469231731687303715884105728", "-170141183460469231731687303715884105728"),
        (b"NaN", "nan"),
        (b"[Infinity, -Infinity]", "[inf, -inf]"),
        (b"-0", "0"),
        (b"-0.0", "-0.0"),
        (b"1e400", "inf"),
        (b"-1e400", "-inf"),
        (b'"\\ud800"', "'\\ud800'"),
        (b'{"a":1,"b":2,"a":3}', "{'a': 3, 'b': 2}"),
        (b'"\\u0000"', "'\\x00'"),
    ],
)
def test_values_are_those_of_pythons_json(line: bytes, shown: str) -> None:
    (value,) = decoded(line)
    assert repr(value) == shown == repr(json.loads(line))


def test_a_record_with_nan_between_others_keeps_its_place() -> None:
    text = b'{"a":1}\n{"a":NaN}\n\n{"a":2}\nbad\n{"a":Infinity}\n{"a":3}'
    expected = "[{'a': 1}, {'a': nan}, {'a': 2}, (5, b'bad'), {'a': inf}, {'a': 3}]"
    assert repr(decoded(text)) == expected


def test_a_line_nested_too_deeply_is_a_bad_line_and_no_crash() -> None:
    depth = rounds(200_000, 5_000_000)
    deep = b"[" * depth + b"]" * depth
    runs = list(decode_piece(TextPiece("file", 1, b"1\n" + deep + b"\n2\n")))
    assert [run.items for run in runs if isinstance(run, DecodedRun)] == [[1], [2]]
    (bad,) = (run for run in runs if isinstance(run, MalformedLine))
    assert bad.number == 2
    assert "deep" in str(bad.reason)


def test_nothing_comes_of_blank_lines_only() -> None:
    assert list(decode_piece(TextPiece("file", 1, b"\n \n\t\r\n\n"))) == []


@pytest.mark.parametrize("blank", [b"\n", b" \r\n", b"\t\n"])
def test_bad_lines_keep_their_numbers_among_any_number_of_blank_ones(blank: bytes) -> None:
    expected: list[object] = []
    text = b""
    for many in (0, 1, 70, 1023, 1024, 1025, 3000):
        text += blank * many
        line = text.count(b"\n") + 1
        text += b"bad\n" + blank + b"%d\n[NaN]\nbad\n" % many
        expected += [(line, b"bad"), many, [math.nan], (line + 4, b"bad")]
    seen: list[object] = []
    for run in decode_piece(TextPiece("file", 1, text + blank * 5000)):
        seen += run.items if isinstance(run, DecodedRun) else [(run.number, run.line)]
    assert repr(seen) == repr(expected)
