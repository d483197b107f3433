from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from penstock.storage._coalesce import GAP, coalesce, read_coalesced

RANGES = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60)), max_size=40)
GAPS = st.integers(0, 80)


def _bytes_of(ranges: list[tuple[int, int]]) -> set[int]:
    return {at for start, length in ranges for at in range(start, start + length)}


@given(RANGES, GAPS)
def test_every_byte_asked_for_is_read_and_no_wide_gap(
    ranges: list[tuple[int, int]], gap: int
) -> None:
    asked, read = _bytes_of(ranges), _bytes_of(coalesce(ranges, gap))
    assert asked <= read
    run = 0
    for at in sorted(read):
        run = 0 if at in asked else run + 1
        assert run <= gap


@given(RANGES, GAPS)
def test_reads_are_sorted_and_further_apart_than_the_gap(
    ranges: list[tuple[int, int]], gap: int
) -> None:
    reads = coalesce(ranges, gap)
    assert all(length > 0 for _, length in reads)
    for (start, length), (following, _) in itertools.pairwise(reads):
        assert start + length + gap < following


@given(RANGES, GAPS)
def test_the_order_and_number_of_times_asked_do_not_matter(
    ranges: list[tuple[int, int]], gap: int
) -> None:
    assert coalesce(ranges, gap) == coalesce([*reversed(ranges), *ranges], gap)
    assert coalesce(coalesce(ranges, gap), gap) == coalesce(ranges, gap)


@given(st.lists(st.tuples(st.integers(0, 5 * GAP), st.integers(0, GAP)), max_size=10))
def test_ranges_come_back_in_the_order_asked_by_the_fewest_reads(
    ranges: list[tuple[int, int]],
) -> None:
    content = bytes(range(251)) * (6 * GAP // 251 + 1)
    reads: list[tuple[int, int]] = []

    def read_at(start: int, length: int) -> bytes:
        reads.append((start, length))
        return content[start : start + length]

    expected = [content[start : start + length] for start, length in ranges]
    assert read_coalesced(read_at, ranges) == expected
    assert reads == coalesce(ranges)
