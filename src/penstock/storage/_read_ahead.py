"""Run an iterator in a thread, a bounded distance ahead of its consumer."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, NoReturn, TypeVar

from penstock.storage._fork import refuse_inherited
from penstock.storage._meter import carried

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """An iterator whose items are made in a thread of its own, from now on.

    At most `limit` (sum of `weigh(item)`, and at least one item) waits to be taken. An error
    comes out at its place in the order. `close` stops the thread and waits for it; dropping the
    last reference does the same, so an early `break` leaves nothing behind. A forked process has
    no such thread and may not take items.
    """

    def __init__(
        self, source: Iterator[T], *, limit: int, weigh: Callable[[T], int], name: str
    ) -> None:
        self._process = os.getpid()
        self._waiting: _Waiting[T] = _Waiting(limit, weigh)
        # The thread must not hold `self`, or dropping the last reference would not end it.
        self._thread = threading.Thread(
            target=carried(_fill),
            args=(source, self._waiting),
            name=f"penstock-{name}",
            daemon=True,
        )
        self._thread.start()

    def __iter__(self) -> ReadAhead[T]:
        return self

    def __next__(self) -> T:
        refuse_inherited(
            self._process, "a file was read ahead", "Begin to read in the forked process itself."
        )
        return self._waiting.take()

    def take_over(self) -> None:
        """Make the rest in the thread that takes it, after what is waiting already.

        Two threads that only decode would take the interpreter from each other all the time.
        """
        self._waiting.take_over()

    def close(self) -> None:
        """Stop the thread and wait until it has let go of its source."""
        if self._process != os.getpid():
            return  # The thread is not here, and may have held the lock when the fork was made.
        self._waiting.close()
        if self._thread is not threading.current_thread():
            with suppress(RuntimeError):  # An interrupt came while it was being started.
                self._thread.join()

    def __del__(self) -> None:
        if hasattr(self, "_thread"):  # Else an interrupt came before.
            self.close()


class _Waiting(Generic[T]):
    """Items between the thread that makes them and the one that takes them."""

    def __init__(self, limit: int, weigh: Callable[[T], int]) -> None:
        self._limit = limit
        self._weigh = weigh
        self._items: deque[T] = deque()
        self._weight = 0
        self._changed = threading.Condition()
        self._closed = False
        self._taken_over = False
        self._rest: Iterator[T] | None = None
        """What follows the items once the thread has ended: the source itself if it is taken over,
        else nothing, or the error."""

    def put(self, item: T) -> bool:
        """Add an item as soon as there is room; False once the consumer is gone."""
        weight = self._weigh(item)
        with self._changed:
            while (
                self._items
                and self._weight + weight > self._limit
                and not (self._closed or self._taken_over)
            ):
                self._changed.wait()
            self._items.append(item)
            self._weight += weight
            self._changed.notify_all()
            return not (self._closed or self._taken_over)

    def end(self, failures: list[BaseException], source: Iterator[T]) -> None:
        """Mark the end of items; a source that is taken over continues elsewhere."""
        with self._changed:
            if self._taken_over and not self._closed and not failures:
                self._rest = source
                self._changed.notify_all()
                return
        close_source(source)
        with self._changed:
            self._rest = map(_raise, failures)
            self._changed.notify_all()

    def take_over(self) -> None:
        with self._changed:
            self._taken_over = True
            self._changed.notify_all()

    def take(self) -> T:
        with self._changed:
            while not self._items and self._rest is None and not self._closed:
                self._changed.wait()
            if self._items and not self._closed:
                item = self._items.popleft()
                self._weight -= self._weigh(item)
                self._changed.notify_all()
                return item
            rest = iter(()) if self._rest is None else self._rest
        return next(rest)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
            rest, self._rest = self._rest, None
        if rest is not None:
            close_source(rest)


def _fill(source: Iterator[T], waiting: _Waiting[T]) -> None:
    failures: list[BaseException] = []
    try:
        for item in source:
            if not waiting.put(item):
                break
    except BaseException as raised:  # noqa: BLE001 (handed to the consumer, whatever it is)
        failures.append(raised)
    finally:
        waiting.end(failures, source)


def _raise(failure: BaseException) -> NoReturn:
    raise failure


def close_source(source: object) -> None:
    """Close an iterator that can be closed."""
    close = getattr(source, "close", None)
    if close is not None:
        close()
