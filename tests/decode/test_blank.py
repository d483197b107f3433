from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.decode import blank_lines

LINES = st.lists(
    st.lists(
        st.sampled_from([b"a", b" ", b"\t", b"\r", b"\v", b"\f", b"\0", b"\x1f", b"\xff"])
    ).map(b"".join)
)


@given(LINES, st.sampled_from([b"", b"\n"]))
def test_a_line_is_blank_if_nothing_is_left_of_it_when_stripped(
    lines: list[bytes], end: bytes
) -> None:
    text = b"\n".join(lines) + end
    lengths = np.array([len(line) for line in lines], np.int64)
    ends = np.cumsum(lengths + 1) - 1
    for form in (text, memoryview(text)):
        found = blank_lines(form, ends - lengths, ends).tolist()
        assert found == [not line.strip() for line in lines]
