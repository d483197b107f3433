from __future__ import annotations

import gc
import threading
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage import ReadAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

WEIGHTS = st.lists(st.integers(0, 20), max_size=60)


def _ahead(items: Iterator[int], limit: int = 10) -> ReadAhead[int]:
    return ReadAhead(items, limit=limit, weigh=int, name="test")


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "penstock-test"]


@given(WEIGHTS, st.integers(1, 30))
def test_items_come_in_order_and_all_of_them(weights: list[int], limit: int) -> None:
    ahead = _ahead(iter(weights), limit)
    assert list(ahead) == weights
    assert list(ahead) == []
    ahead.close()
    assert _threads() == []


@given(WEIGHTS, st.integers(1, 30))
def test_no_more_waits_than_the_limit_allows(weights: list[int], limit: int) -> None:
    made: list[int] = []

    def source() -> Iterator[int]:
        for weight in weights:
            made.append(weight)
            yield weight

    ahead = _ahead(source(), limit)
    for taken, _ in enumerate(ahead, start=1):
        # Besides what waits, one is on its way in, and one may have been made since.
        waiting = made[taken:]
        assert sum(waiting[:-2]) <= limit or len(waiting) <= 3
    ahead.close()


def test_a_source_is_drawn_on_only_as_far_as_the_limit() -> None:
    made = threading.Semaphore(0)
    count = 0

    def source() -> Iterator[int]:
        nonlocal count
        while True:
            count += 1
            made.release()
            yield 1

    ahead = _ahead(source(), limit=5)
    for _ in range(6):
        made.acquire()
    # Five wait, the sixth is held by the thread, and the seventh is not begun: not even by the
    # time that the thread has been stopped.
    ahead.close()
    assert count == 6


def test_an_item_heavier_than_the_limit_still_passes() -> None:
    assert list(_ahead(iter([100, 1, 100, 100]), limit=1)) == [100, 1, 100, 100]


@given(WEIGHTS, st.integers(0, 60), st.integers(1, 30))
def test_an_error_comes_out_at_its_place(weights: list[int], place: int, limit: int) -> None:
    place = min(place, len(weights))

    def source() -> Iterator[int]:
        yield from weights[:place]
        raise LookupError("here")

    ahead = _ahead(source(), limit)
    seen: list[int] = []
    with pytest.raises(LookupError, match="here"):
        seen.extend(ahead)
    assert seen == weights[:place]
    assert list(ahead) == []
    ahead.close()


def test_an_error_of_weighing_comes_out_too() -> None:
    def weigh(item: int) -> int:
        return 10 // item

    ahead = ReadAhead(iter([1, 2, 0]), limit=100, weigh=weigh, name="test")
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ZeroDivisionError):
        next(ahead)
    ahead.close()


def test_an_error_that_nobody_takes_is_not_reported_anywhere(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def source() -> Iterator[int]:
        yield 1
        raise LookupError("nobody takes this")

    ahead = _ahead(source())
    ahead.close()
    del ahead
    gc.collect()
    assert capfd.readouterr() == ("", "")


def _for_ever(closed: threading.Event) -> Iterator[int]:
    try:
        while True:
            yield 1
    finally:
        closed.set()


def _close(ahead: ReadAhead[int]) -> None:
    ahead.close()


def _drop(ahead: ReadAhead[int]) -> None:
    del ahead


@pytest.mark.parametrize("end", [_close, _drop])
def test_ending_early_stops_the_thread_and_closes_the_source(
    end: Callable[[ReadAhead[int]], None],
) -> None:
    closed = threading.Event()
    holder = [_ahead(_for_ever(closed))]
    assert next(holder[0]) == 1
    end(holder.pop())
    assert closed.is_set()
    assert _threads() == []


def test_closing_twice_does_nothing_and_nothing_comes_after() -> None:
    ahead = _ahead(_for_ever(threading.Event()))
    next(ahead)
    ahead.close()
    ahead.close()
    assert list(ahead) == []


def test_closing_waits_for_a_source_that_is_busy() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        begun.set()
        may_end.wait()
        ended.set()
        yield 1

    ahead = _ahead(source())
    begun.wait()
    closer = threading.Thread(target=ahead.close)
    closer.start()
    assert closer.is_alive()
    may_end.set()
    closer.join()
    assert ended.is_set()
    assert _threads() == []


def test_a_consumer_that_waits_is_woken_by_closing() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        begun.set()
        may_end.wait()
        yield 1

    ahead = _ahead(source())
    taken: list[list[int]] = []
    consumer = threading.Thread(target=lambda: taken.append(list(ahead)))
    consumer.start()
    begun.wait()
    closer = threading.Thread(target=ahead.close)
    closer.start()
    consumer.join()
    assert taken == [[]]
    may_end.set()
    closer.join()


def test_work_begins_before_the_first_item_is_asked_for() -> None:
    begun = threading.Event()

    def source() -> Iterator[int]:
        begun.set()
        yield 1

    ahead = _ahead(source())
    begun.wait()
    ahead.close()


def test_a_thousand_early_ends_leave_no_thread() -> None:
    before = threading.active_count()
    for number in range(1000):
        ahead = _ahead(_for_ever(threading.Event()))
        if number % 3:
            next(ahead)
        if number % 2:
            ahead.close()
        del ahead
    assert threading.active_count() == before


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 30))
def test_a_source_that_is_taken_over_goes_on_where_it_stood(
    total: int, before: int, limit: int
) -> None:
    makers: list[int] = []
    closed = threading.Event()

    def made() -> Iterator[int]:
        try:
            for number in range(total):
                makers.append(threading.get_ident())
                yield number
        finally:
            closed.set()

    ahead = ReadAhead(made(), limit=limit, weigh=lambda _: 1, name="test")
    taken = list(islice(ahead, before))
    ahead.take_over()
    assert taken + list(ahead) == list(range(total))
    ahead.close()
    assert closed.wait(10)
    own = threading.get_ident()
    assert makers == sorted(makers, key=lambda maker: maker == own)  # Never back to the thread.


def test_a_source_that_is_taken_over_is_closed_and_fails_at_its_place() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("at its place")

    ahead = ReadAhead(failing(), limit=1, weigh=lambda _: 1, name="test")
    ahead.take_over()
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ValueError, match="at its place"):
        next(ahead)
    ahead.close()
    source = iter_counting()
    ahead = ReadAhead(source, limit=1, weigh=lambda _: 1, name="test")
    ahead.take_over()
    assert next(ahead) == 0
    ahead.close()
    assert source.gi_frame is None


def iter_counting() -> Generator[int, None, None]:
    yield from range(100)


@pytest.mark.parametrize("name", ["start", "__init__"])
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_its_start_is_all_that_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            _ahead(iter([1]))
    gc.collect()
