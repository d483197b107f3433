from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.index._scan import LineScan

BOM = b"\xef\xbb\xbf"
TEXTS = st.lists(
    st.sampled_from([b"a", b" ", b"\n", b"\r\n", b"long" * 20, BOM, b"\t", b"\x0b", b"\0", b"\xff"])
).map(b"".join)


def expected(text: bytes) -> list[list[int]]:
    at = len(BOM) if text.startswith(BOM) else 0
    rows = []
    for line in text[at:].split(b"\n"):
        size = min(len(line) + 1, len(text) - at)
        if line.strip():
            rows.append([at, size])
        at += size
    return rows


@given(TEXTS, st.lists(st.integers(1, 30)))
def test_lines_are_found_however_the_text_is_cut(text: bytes, sizes: list[int]) -> None:
    scan = LineScan()
    rows: list[list[int]] = []
    at = 0
    for size in [*(max(3, size) if i == 0 else size for i, size in enumerate(sizes)), len(text)]:
        if at < len(text):
            rows += scan.add(memoryview(text)[at : at + size]).tolist()
        at += size
    rows += scan.finish().tolist()
    assert rows == expected(text)


def test_a_line_over_many_blocks_is_one_line() -> None:
    scan = LineScan()
    for _ in range(100):
        assert not len(scan.add(b"x" * 1000))
    assert scan.add(b"\n").tolist() == [[0, 100_001]]
    assert not len(scan.finish())
