"""The cost of reading: requests, bytes, repeats, time, and the reads in flight."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_lock = threading.Lock()  # One for all meters: it is held for an addition at a time.
_meter: ContextVar[Meter | None] = ContextVar("penstock_meter", default=None)
_is_timed: ContextVar[bool] = ContextVar("penstock_is_timed", default=False)


class InFlight(NamedTuple):
    """A range of an object that is being read."""

    path: str
    start: int
    stop: int
    since: float
    """By `time.monotonic()`."""


class Meter:
    """Counters of reads inside a `metered` block.

    Any number of threads may count. Counts of several processes are added up by hand:
    `counts()` in one, `count` in the other.
    """

    COUNTS = ("requests", "bytes", "retries", "throttled", "cache_hits", "seconds_reading")

    def __init__(self) -> None:
        self.requests = 0
        """Requests for parts of objects, repeated ones included; not listings, not HEADs."""
        self.bytes = 0
        """Bytes of objects that were received."""
        self.retries = 0
        """Requests that were sent again after a failure."""
        self.throttled = 0
        """Answers that ask to slow down: 429, or 503."""
        self.cache_hits = 0
        """Blocks that were found in the host's cache, when a process first asked for them there."""
        self.seconds_reading = 0.0
        """How long callers of sources waited for bytes, local ones too; not for decoding them.

        Bringing a block includes what is done to it once: decompressing a frame, and reading
        the columns out of a row group.
        """
        self.waiting: dict[object, InFlight] = {}

    def count(self, **more: float) -> None:
        with _lock:
            for name, amount in more.items():
                setattr(self, name, getattr(self, name) + amount)

    def counts(self) -> dict[str, float]:
        with _lock:
            return {name: getattr(self, name) for name in self.COUNTS}

    def in_flight(self) -> list[InFlight]:
        """Return the reads in flight, the oldest first.

        Times are this process's own; a range may be on its way to another process.
        """
        with _lock:
            return sorted(self.waiting.values(), key=lambda one: one.since)

    def __getstate__(self) -> dict[str, float]:
        return self.counts()

    def __setstate__(self, counts: dict[str, float]) -> None:
        Meter.__init__(self)
        self.count(**counts)


@contextmanager
def metered(meter: Meter | None) -> Iterator[Meter | None]:
    """Count reads inside the block on `meter`; None counts nothing."""
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


def current_meter() -> Meter | None:
    return _meter.get()


def count(**more: float) -> None:
    """Count on the present meter, if there is one."""
    if (meter := _meter.get()) is not None:
        meter.count(**more)


@contextmanager
def waiting(path: str, start: int, stop: int) -> Iterator[None]:
    """Count a range as in flight on the present meter, if there is one."""
    meter = _meter.get()
    if meter is None:
        yield
        return
    key = object()
    with _lock:
        meter.waiting[key] = InFlight(path, start, stop, time.monotonic())
    try:
        yield
    finally:
        with _lock:
            del meter.waiting[key]


@contextmanager
def reading() -> Iterator[None]:
    """Time a block as reading, once: not again for what it does itself or through threads."""
    meter = _meter.get()
    if meter is None or _is_timed.get():
        yield
        return
    token = _is_timed.set(True)
    start = time.perf_counter()
    try:
        yield
    finally:
        _is_timed.reset(token)
        meter.count(seconds_reading=time.perf_counter() - start)


def carried(call: Callable[P, R]) -> Callable[P, R]:
    """Return `call` for other threads, each in a copy of this thread's context."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # A copy each: two threads cannot be in one context.
        return context.copy().run(call, *args, **kwargs)

    return run


def _after_fork_in_child() -> None:
    global _lock  # noqa: PLW0603 (a thread that is not here may hold it)
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
