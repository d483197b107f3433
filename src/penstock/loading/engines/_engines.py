# ruff: noqa: ANN401 (a request is what a feed says it is)
"""Engines: batches are made in the caller's thread, or in threads ahead of it.

An engine takes requests and gives back what was made of them, in the same order. Worker processes
are in `_processes.py`.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from penstock.loading._fetch import Fetched, ReadRows
from penstock.loading._recipes import made_bytes
from penstock.loading._steps import Task
from penstock.storage import Meter, metered, refuse_inherited

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.loading._fetch import Fetch

_JOIN_SECONDS = 1.0
"""How long `close` waits for threads; one that hangs in a read does no harm."""
_GROWTH = 4
"""How many times as many batches are read together as before."""

_OVERSIZE = 1.5
"""How many times `bytes` an estimate may be: most estimates are off by little."""


class Stalled(Exception):  # noqa: N818 (becomes a StallError, where the rank is known)
    """No batch came in time; the argument names the oldest read in flight, if there is one."""


class Engine(ABC):
    """Makes batches ahead of time; used by one thread, in the process that started it.

    A forked child inherits the engine without its threads or workers: there it makes and ends
    nothing.
    """

    depth = 1
    """How many requests it should have at a time."""
    together = 1
    """How many steps the next request should have, at most."""

    def __init__(self, fetch: Fetch, meter: Meter | None = None) -> None:
        self._fetch = fetch
        self._meter = meter or Meter()
        self._process = os.getpid()

    @abstractmethod
    def submit(self, request: Any) -> None:
        """Accept a request of a feed."""

    @abstractmethod
    def take(self, timeout: float) -> tuple[Any, Fetched]:
        """Return the oldest request and what was made of it, or raise its error.

        A request of several steps may come back as several, of fewer steps each.
        """

    @abstractmethod
    def close(self) -> None:
        """End everything that was started."""

    def costs(self) -> Mapping[str, float]:
        """Return what reading cost until now."""
        return self._meter.counts()

    def _refuse_fork(self) -> None:
        refuse_inherited(
            self._process,
            "a loader went over an epoch",
            "Call iter() on the loader in the forked process, or build a loader there.",
        )


class LotLimit(NamedTuple):
    """How much is read at once, at most."""

    steps: int
    bytes: int
    """About, of all steps: a user that keeps one batch may keep them all alive."""


class InCaller(Engine):
    """Makes a batch when it is asked for; the records of several batches are read at once.

    Reading from mapped memory costs mostly its start, with cold caches of the processor, and so
    does encoding a few records. So the number of batches that are read at once grows up to `limit`,
    as long as they are small and their records are good.
    """

    def __init__(
        self,
        fetch: Fetch,
        limit: LotLimit | None = None,
        *,
        is_mixed: bool = False,
        meter: Meter | None = None,
    ) -> None:
        super().__init__(fetch, meter)
        self._limit = limit
        # Records that come mixed have about the same size in every batch.
        self._weighs = not is_mixed and not fetch.recipe.has_even_rows
        self._requests: deque[Any] = deque()
        self._found: deque[tuple[Any, ReadRows | Fetched | None]] = deque()
        """Requests with what was done for them until now, together with others."""

    def submit(self, request: Any) -> None:
        self._requests.append(request)

    def take(self, timeout: float) -> tuple[Any, Fetched]:
        del timeout  # This thread cannot interrupt itself.
        with metered(self._meter):
            if not self._found:
                self._gather(self._requests.popleft())
            request, found = self._found.popleft()
            match found:
                case Fetched():
                    return request, found
                case ReadRows():
                    return request, self._fetch.finish(found)
            return request, self._fetch(request)

    def _gather(self, request: Any) -> None:
        """Read the records of a request, together where that pays and can be done."""
        limit = self._limit
        if limit is None or not isinstance(request, Task):
            self._found.append((request, None))
            return
        task = request
        if task.steps > 1 and self._weighs and task.unread is None:
            task = self._bearable(task, limit)
        size = self._gather_together(task)
        if size is None:
            # Each step by itself, so that the error of one is raised in its turn.
            self._found.extend((one, None) for one in task.apart())
            self.together = 1
            return
        bearable = limit.bytes * task.steps // max(1, size)
        self.together = max(1, min(_GROWTH * task.steps, bearable, limit.steps))

    def _bearable(self, task: Task, limit: LotLimit) -> Task:
        """Return as many of the steps as may be held at once; the others wait.

        The records that were read before say nothing about the next ones, which may be a thousand
        times as large.
        """
        size = self._fetch.size_about(task)
        if size <= _OVERSIZE * limit.bytes:
            return task
        steps = max(1, limit.bytes * task.steps // size)
        self._requests.appendleft(task.part(steps, task.steps))
        return task.part(0, steps)

    def _gather_together(self, task: Task) -> int | None:
        """Read, and perhaps make, all steps at once; return the bytes, or None where it fails."""
        fetch = self._fetch
        rows = fetch.gather_together(task)
        if rows is None:
            return None
        size = fetch.recipe.size(rows.read)
        if not fetch.recipe.is_cut_last:
            self._found.extend((one.opened.task, one) for one in fetch.cut(rows))
            return size
        fetched = fetch.make_together(rows)
        if fetched is None:
            return None
        self._found.append((task, fetched))
        return size + (0 if fetched.made is rows.read else made_bytes(fetched.made))

    def close(self) -> None:
        self._requests.clear()
        self._found.clear()
        self._fetch.reader.close()


class InThreads(Engine):
    """Makes batches in threads, `ahead` of them for each, and with a `limit` several at once.

    A user's own callable runs in the caller's thread, in order.
    """

    def __init__(
        self,
        fetch: Fetch,
        threads: int,
        ahead: int,
        limit: LotLimit | None = None,
        *,
        is_mixed: bool = False,
    ) -> None:
        super().__init__(fetch)
        self._limit, self._is_mixed = limit, is_mixed
        self._left = 0
        """Steps of the oldest request that were not taken yet, once some were."""
        self.depth = max(1, threads * ahead)
        self._inbox: SimpleQueue[tuple[Any, _Answer] | None] = SimpleQueue()
        self._answers: deque[tuple[Any, _Answer]] = deque()
        self._is_closed = self._is_stalled = False
        self._threads = [
            # Daemons: a thread that waits for a dead network must not keep the program alive.
            threading.Thread(target=self._work, name=f"penstock-load-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()
        _running.add(self)

    def _work(self) -> None:
        maker = self._maker()
        with metered(self._meter):
            while (item := self._inbox.get()) is not None:
                if self._is_closed:
                    continue
                request, answer = item
                try:
                    if self._fetch.recipe.is_pure:
                        maker.submit(request)
                        left = request.steps
                        while left:
                            made = maker.take(0)
                            left -= made[0].steps
                            answer.put(made)
                        self.together = maker.together
                    else:
                        answer.put((request, self._fetch.gather(request)))
                except BaseException as failure:  # noqa: BLE001 (raised in the caller's thread)
                    answer.put(failure)
                    maker = self._maker()

    def _maker(self) -> InCaller:
        return InCaller(self._fetch, self._limit, is_mixed=self._is_mixed, meter=self._meter)

    def submit(self, request: Any) -> None:
        self._refuse_fork()
        answer: _Answer = SimpleQueue()
        self._answers.append((request, answer))
        self._inbox.put((request, answer))

    def take(self, timeout: float) -> tuple[Any, Fetched]:
        self._refuse_fork()
        request, answer = self._answers[0]
        try:
            found = answer.get(timeout=timeout)
        except Empty:
            self._is_stalled = True
            raise Stalled(waited_for(self._meter)) from None
        if isinstance(found, BaseException):
            self._answers.popleft()
            try:
                raise found
            finally:
                del found  # Its traceback holds this frame, which would hold it.
        task, made = found
        self._left = (self._left or request.steps) - task.steps
        if not self._left:
            self._answers.popleft()
        return task, self._fetch.finished(task, made) if isinstance(made, ReadRows) else made

    def close(self) -> None:
        if self._process != os.getpid():
            return
        self.stop()
        self._answers.clear()
        self._fetch.reader.close()

    def stop(self) -> None:
        """End the threads; one that does not end in time is left behind."""
        _running.discard(self)
        self._is_closed = True
        for _ in self._threads:
            self._inbox.put(None)
        # After a stall the same read is not waited for once more.
        deadline = time.monotonic() + (0 if self._is_stalled else _JOIN_SECONDS)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


_running: WeakSet[InThreads] = WeakSet()


@atexit.register
def _stop_threads() -> None:
    """End all threads with the program: one that is inside of Arrow would abort it."""
    for engine in list(_running):
        if engine._process == os.getpid():  # noqa: SLF001 (of this module)
            engine.stop()


if TYPE_CHECKING:
    _Answer = SimpleQueue[tuple[Any, Fetched | ReadRows] | BaseException]


def waited_for(meter: Meter) -> str:
    """Return which object and range the oldest unanswered read is for."""
    reads = meter.in_flight()
    if not reads:
        return ""
    path, start, stop, since = reads[0]
    waited = time.monotonic() - since
    return f"{path}, bytes {start:,} to {stop:,}, asked for {waited:.0f} s ago"
