from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage._object import retry

if TYPE_CHECKING:
    from collections.abc import Callable


class PassingError(Exception):
    pass


def _is_passing(failure: Exception) -> bool:
    return isinstance(failure, PassingError)


def _failing(*failures: BaseException) -> tuple[Callable[[], str], list[int]]:
    """Return a call that fails so before it succeeds, and how often it was made."""
    left = list(failures)
    calls: list[int] = []

    def call() -> str:
        calls.append(len(calls))
        if left:
            raise left.pop(0)
        return "done"

    return call, calls


def _retry(call: Callable[[], str], timeout: float = 60) -> str:
    return retry(call, what="it", is_passing=_is_passing, timeout=timeout)


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_what_passes_is_tried_again_until_it_works(failures: int) -> None:
    call, calls = _failing(*[PassingError()] * failures)
    assert _retry(call) == "done"
    assert len(calls) == failures + 1


@pytest.mark.parametrize("failure", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_what_does_not_pass_is_raised_at_once(failure: BaseException) -> None:
    call, calls = _failing(PassingError(), failure)
    with pytest.raises(type(failure)) as raised:
        _retry(call)
    assert raised.value is failure
    assert len(calls) == 2


def test_the_deadline_ends_it_with_the_last_failure() -> None:
    failures = [PassingError(str(number)) for number in range(10_000)]
    call, calls = _failing(*failures)
    with pytest.raises(PassingError) as raised:
        _retry(call, timeout=0.5)
    assert raised.value is failures[len(calls) - 1]


@given(st.floats(0, 1e-9))
def test_without_time_it_is_tried_once(timeout: float) -> None:
    call, calls = _failing(PassingError())
    with pytest.raises(PassingError):
        _retry(call, timeout)
    assert len(calls) == 1


def test_the_users_own_random_numbers_are_left_alone() -> None:
    random.seed(0)
    expected = random.random()
    random.seed(0)
    call, _ = _failing(PassingError())
    assert _retry(call) == "done"
    assert random.random() == expected


def test_pauses_are_random_and_within_bounds_that_double(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock.storage")
    pauses: dict[int, list[float]] = {}
    for turn in range(60):
        if turn >= 6 and max(pauses[2]) > 0.1:
            break  # Three of four are so long: that none of sixty is does not happen.
        call, _ = _failing(PassingError(), PassingError())
        caplog.clear()
        assert _retry(call) == "done"
        for record in caplog.records:
            assert isinstance(record.args, tuple)
            what, attempt, pause = record.args
            if what != "it":
                continue  # Another test's thread waits for a storage that never answers.
            assert isinstance(attempt, int)
            assert isinstance(pause, float)
            pauses.setdefault(attempt, []).append(pause)
    assert sorted(pauses) == [1, 2]
    for attempt, seen in pauses.items():
        assert len(set(seen)) == len(seen) >= 6
        assert all(0 <= pause <= 0.1 * 2**attempt for pause in seen)
    assert max(pauses[2]) > 0.1


def test_a_try_that_fails_is_told_to_the_debug_log_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    call, _ = _failing(PassingError())
    _retry(call)
    ours = [r for r in caplog.records if r.args and r.args[0] == "it"]
    assert [(r.name, r.levelno) for r in ours] == [("penstock.storage", logging.DEBUG)]
