from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.cli.info._info import count_records


@given(st.lists(st.sampled_from([b"{}", b"\n", b" ", b"\r", b"\t", b"\v\f", b"\x00", b'"\xff"'])))
@example([])
@example([b"\n"])
@example([b"{}", b"\r", b"\n", b"\r", b"\n", b"{}"])
def test_lines_are_counted_unless_they_are_blank(parts: list[bytes]) -> None:
    text = b"".join(parts)
    expected = sum(1 for line in text.split(b"\n") if line and not line.isspace())
    assert count_records(text) == expected
