from __future__ import annotations

from itertools import pairwise
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decode import bad_rows, read_around_bad

ERRORS = (ValueError,)
batches = st.lists(st.booleans(), max_size=200) | st.builds(
    lambda length, bad: [row in bad for row in range(length)],
    st.integers(1, 3000),
    st.sets(st.integers(0, 2999), max_size=5),
)


class Batch:
    """Rows of which some are bad, and how often they are asked for."""

    def __init__(self, is_bad: list[bool]) -> None:
        self.is_bad = is_bad
        self.calls = self.rows = 0

    def read(self, start: int, stop: int) -> list[int]:
        assert 0 <= start < stop <= len(self.is_bad)
        self.calls += 1
        self.rows += stop - start
        bad = [row for row in range(start, stop) if self.is_bad[row]]
        if bad:
            raise ValueError(bad[0])
        return list(range(start, stop))


@given(batches)
def test_the_bad_rows_are_those_that_fail_alone(is_bad: list[bool]) -> None:
    alone = Batch(is_bad)
    expected = []
    for row in range(len(is_bad)):
        try:
            alone.read(row, row + 1)
        except ValueError as why:
            expected.append((row, str(why)))
    batch = Batch(is_bad)
    assert [(row, str(why)) for row, why in bad_rows(len(is_bad), batch.read, ERRORS)] == expected
    if expected:
        known = bad_rows(len(is_bad), batch.read, ERRORS, has_bad=True)
        assert [(row, str(why)) for row, why in known] == expected


@given(batches)
def test_every_good_row_is_read_once_in_order(is_bad: list[bool]) -> None:
    found = list(read_around_bad(len(is_bad), Batch(is_bad).read, ERRORS))
    assert all(one.stop == next_.start for one, next_ in pairwise(found))
    assert [row for one in found if one.why is None for row in one.value or ()] == [
        row for row, bad in enumerate(is_bad) if not bad
    ]


@given(batches)
def test_calls_and_rows_are_bounded(is_bad: list[bool]) -> None:
    batch, bad, length = Batch(is_bad), sum(is_bad), max(1, len(is_bad))
    list(read_around_bad(len(is_bad), batch.read, ERRORS))
    if not bad:
        assert batch.calls == bool(is_bad)
    assert batch.calls <= 1 + (bad + 1) * (2 * log2(length) + 3)
    assert batch.calls <= 2 * length + log2(length) + 1
    assert batch.rows <= (5 + log2(length)) * length


def test_all_bad_rows_cost_little_more_than_one_call_each() -> None:
    batch = Batch([True] * 1024)
    assert len(list(bad_rows(1024, batch.read, ERRORS))) == 1024
    assert batch.calls <= 1024 + 11


def test_other_errors_are_not_caught() -> None:
    def read(start: int, stop: int) -> None:
        raise KeyError(start, stop)

    with pytest.raises(KeyError):
        list(bad_rows(3, read, ERRORS))
