"""What goes through a pipe comes out equal, in memory of its own."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from penstock.loading.engines._transfer import receive, send

DTYPES = st.sampled_from([np.dtype(name) for name in ("i8", "i4", "u1", "f4", "f8", "?")])
SHAPES = arrays.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=20)


def through(value: object) -> Any:
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        # In a thread: a large value does not fit into a pipe that nobody reads from.
        sending = threading.Thread(target=send, args=(ours, value))
        sending.start()
        found = receive(theirs)
        sending.join()
    return found


@given(st.lists(arrays.arrays(DTYPES, SHAPES), max_size=5), st.text())
def test_arrays_and_what_stands_beside_them_arrive_equal(
    given_arrays: list[np.ndarray], text: str
) -> None:
    found, told = through((given_arrays, text))
    assert told == text
    for one, other in zip(given_arrays, found, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
        assert one.shape == other.shape
        assert other.flags.writeable or not other.size


@given(
    start=st.integers(-(2**40), 2**40),
    step=st.integers(-(2**20), 2**20),
    count=st.integers(0, 50),
    at=st.integers(0, 49),
    off=st.integers(0, 3),
)
def test_numbers_in_equal_steps_arrive_equal_and_so_do_those_that_are_nearly(
    start: int, step: int, count: int, at: int, off: int
) -> None:
    numbers = start + step * np.arange(count, dtype=np.int64)
    if at < count:
        numbers[at] += off
    found = through(numbers)
    assert found.dtype == np.int64
    assert found.tolist() == numbers.tolist()
    assert found.flags.writeable or not count


@pytest.mark.parametrize("size", [0, 1, 2**18 - 64, 2**18, 2**18 + 1, 2**22])
def test_bodies_of_any_size_arrive_whole(size: int) -> None:
    given_bytes = np.arange(size, dtype=np.uint64).astype(np.uint8)
    found = through({"a": given_bytes, "b": np.ones(3, np.float32)})
    assert np.array_equal(found["a"], given_bytes)
    assert found["b"].tolist() == [1, 1, 1]
    found["b"][0] = 5
