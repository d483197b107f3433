"""How a whole is cut into units."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.work import shares


@given(
    total=st.integers(0, 200),
    borders=st.lists(st.integers(0, 220)).map(sorted),
    least=st.integers(-1, 50),
)
def test_shares_cut_the_whole_at_borders_as_soon_as_they_are_large_enough(
    total: int, borders: list[int], least: int
) -> None:
    found = shares(total, borders, least)
    assert [n for start, stop in found for n in range(start, stop)] == list(range(total))
    assert all(start < stop for start, stop in found)
    assert all(one[1] == other[0] for one, other in pairwise(found))
    for start, stop in found[:-1]:
        assert stop in borders
        assert stop - start >= least
    for start, stop in found:
        assert not any(start < border < stop and border - start >= least for border in borders)


def test_shares_are_plain_numbers_whatever_borders_are() -> None:
    found = shares(100, np.arange(0, 101, 10), 35)
    assert found == [(0, 40), (40, 80), (80, 100)]
    assert {type(end) for share in found for end in share} == {int}


@pytest.mark.parametrize("borders", [[], [0], [0, 7], [7]])
def test_without_a_border_inside_there_is_one_share(borders: list[int]) -> None:
    assert shares(7, borders, 1) == [(0, 7)]
    assert shares(0, borders, 1) == []
