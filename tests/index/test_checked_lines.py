"""Lines that are read while they are found, in parts and blocks of any size."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.index import Profile
from penstock.index._parts import LinePieces
from penstock.index._scan import LineScan, LineScanner
from penstock.index.checked._build import LineCheck
from penstock.index.checked._checks import Checks, Look

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.storage import OpenFile

BOM = b"\xef\xbb\xbf"
GOOD = [b'{"a":1}', b'{"a":"\\ud800"}', b' {"n": NaN, "m": 1e999}\t', b'{"n":%d}' % 10**30, b"{}"]
GOOD += [b'{"t":"' + b"x" * 50 + b'"}']
BAD = [b"{oops", b'{"a":1} x', b'"\xff"', b'{"\xc3":1}', b"[1]", b"1", b"null", b'"text"', b"true"]
BLANK = [b"", b" ", b"\t\r", b"\x0b"]
TEXTS = st.builds(
    lambda mark, lines, end: mark + b"".join(lines) + end,
    st.sampled_from([b"", BOM]),
    st.lists(
        st.builds(
            bytes.__add__,
            st.sampled_from([*GOOD, *BAD, *BLANK]),
            st.sampled_from([b"\n", b"\r\n", b"\n\n"]),
        ),
        max_size=12,
    ),
    st.sampled_from([b"", *GOOD[:1], *BAD[:2], b"  "]),
)


def blocks_of(text: bytes, size: int) -> Iterator[bytes]:
    if text:
        yield text[: max(size, 3)]
    for at in range(max(size, 3), len(text), size):
        yield text[at : at + size]


class TextFile(NamedTuple):
    text: bytes

    @property
    def size(self) -> int:
        return len(self.text)

    def read_at(self, start: int, length: int) -> bytes:
        return self.text[start : start + length]


def checked(
    text: bytes, part: int, block: int, checks: Checks, profile: Profile | None = None
) -> tuple[list[list[int]], dict[int, str], list[tuple[int, int, int]]]:
    """Return the rows, the bad lines by offset, and where those are: line, offset, bytes."""
    rows: list[list[int]] = []
    reasons, places, newlines = {}, [], 0
    cuts = list(LineScanner().cuts(cast("OpenFile", TextFile(text)), 0, part))
    assert all(text[cut - 1 : cut] == b"\n" for cut in cuts)
    assert all(after - before >= part for before, after in pairwise([0, *cuts]))
    for start, stop in pairwise([0, *cuts, len(text)]):
        blocks = blocks_of(text[start:stop], block)
        pieces = LinePieces(start, blocks, checks.max_line_bytes)
        check = LineCheck(Look(checks, profile, lambda some: rows.extend(some.tolist())))
        for piece in pieces:
            check.add(piece)
        for bad in check.aside:
            reasons[bad.offset] = bad.reason
            places.append((newlines + bad.newlines + 1, bad.offset, bad.size))
        newlines += pieces.newlines
    assert newlines == text.count(b"\n")
    return rows, reasons, places


def plain(text: bytes) -> list[list[int]]:
    scan = LineScan()
    rows = scan.add(text).tolist() if text else []
    return [*rows, *scan.finish().tolist()]


def is_good(line: bytes) -> bool:
    try:
        return type(json.loads(line.decode())) is dict
    except ValueError:
        return False


PARTS, BLOCKS = st.integers(1, 60), st.integers(1, 60)


@given(TEXTS, PARTS, BLOCKS)
@example(BOM + b'{"a":1}\n', 4, 1)
def test_a_scan_that_checks_finds_the_same_lines_less_the_bad_ones(
    text: bytes, part: int, block: int
) -> None:
    rows, reasons, places = checked(text, part, block, Checks(validate=True))
    good = [row for row in plain(text) if is_good(text[row[0] :][: row[1]])]
    bad = [row for row in plain(text) if row not in good]
    assert rows == good
    assert [[offset, size] for _, offset, size in places] == bad
    assert [line for line, _, _ in places] == [1 + text[:at].count(b"\n") for at, _ in bad]
    assert all(reasons.values())


@given(TEXTS, PARTS, BLOCKS, st.integers(1, 60))
def test_long_lines_are_set_aside_without_being_read(
    text: bytes, part: int, block: int, most: int
) -> None:
    rows, reasons, places = checked(text, part, block, Checks(validate=True, max_line_bytes=most))
    for offset, size in plain(text):
        line = text[offset : offset + size]
        assert ([offset, size] in rows) == (size <= most and is_good(line))
        assert (reasons.get(offset) == f"longer than {most:,} bytes") == (size > most)
    assert len(rows) + len(places) == len(plain(text))


@given(TEXTS, PARTS, BLOCKS)
def test_a_profile_alone_sets_nothing_aside_and_knows_what_cannot_be_read(
    text: bytes, part: int, block: int
) -> None:
    whole, profile = Profile(), Profile()
    checks = Checks(profile=True)
    rows, reasons, _ = checked(text, part, block, checks, profile)
    assert rows == plain(text)
    assert reasons == {}
    checked(text, len(text) + 1, len(text) + 1, checks, whole)
    assert profile.document() == whole.document()
    types = profile.document()["record_types"]
    objects = [row for row in rows if is_good(text[row[0] :][: row[1]])]
    assert sum(one["count"] for one in types.values()) == len(rows)
    assert types.get("object", {"count": 0})["count"] == len(objects)


def test_reasons_say_what_is_wrong_and_where() -> None:
    lines = [b"{oops", b'{"a":"\xff"}', b"[1]", b"1.5", b"null", b'"x"', b"false", b"[" * 200_000]
    text = b"\n".join(lines)
    _, reasons, _ = checked(text, 1000, 1000, Checks(validate=True))
    told = list(reasons.values())
    assert told[0] == "Expecting property name enclosed in double quotes at character 2 of the line"
    assert told[1] == "not UTF-8 at byte 6 of the line"
    assert told[2:7] == [
        "an array, not an object",
        "a number, not an object",
        "null, not an object",
        "a string, not an object",
        "true or false, not an object",
    ]
    assert told[7] == "nested too deeply"
