"""Who makes batches: the caller itself, or threads ahead of it.

An engine takes tasks and gives back what was made of them, in the same order. Worker processes
are in `_processes.py`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.loading._fetch import Fetched, Gathered
from penstock.loading._recipes import made_bytes
from penstock.storage import Meter, metered, refuse_inherited

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.loading._fetch import Fetch
    from penstock.loading._steps import Task

_JOIN_SECONDS = 1.0
"""How long threads are waited for; one that hangs in a read harms nobody."""
_GROWTH = 4
"""How many times as many batches are read together as the time before."""

_OVERSIZE = 1.5
"""Times `bytes` that are borne: guesses are off by little more often than by much."""


class Stalled(Exception):  # noqa: N818 (told to the user as a StallError, where the rank is known)
    """Nothing came in time; the argument says what is being waited for, as far as anybody knows."""


class Engine(Protocol):
    """Makes batches ahead of time; used by one thread."""

    depth: int
    """Tasks it should have at a time."""
    together: int
    """Steps that the next task should have, at most."""

    def submit(self, task: Task) -> None:
        """Take a task."""
        ...

    def take(self, timeout: float) -> tuple[Task, Fetched]:
        """Return the oldest task and what was made of it, or raise what went wrong with it.

        What was submitted as one task may come back as several, of a step each.
        """
        ...

    def costs(self) -> Mapping[str, float]:
        """Return what reading cost until now."""
        ...

    def close(self) -> None:
        """End everything that was started."""
        ...


class Reach(NamedTuple):
    """How much is read at once."""

    steps: int
    """At most."""
    bytes: int
    """Of all of them, about: whoever keeps one batch may keep them all."""


class InCaller:
    """Makes a batch when it is asked for; the records of several batches are read at once.

    Where reading is nothing but taking numbers out of memory, each start of it costs as much: the
    processor has forgotten everything else meanwhile. How many are read at once, at most, `reach`
    says; it is found out: more and more, as long as they are small and there is nothing wrong with
    them.
    """

    def __init__(self, fetch: Fetch, reach: Reach | None = None, *, is_mixed: bool = False) -> None:
        self.depth = self.together = 1
        self._reach = reach
        # Of records that come mixed, some are as large as the others.
        self._weighs = not is_mixed and not fetch.recipe.has_even_rows
        self._fetch = fetch
        self._tasks: deque[Task] = deque()
        self._found: deque[tuple[Task, Gathered | Fetched | None]] = deque()
        """Tasks with what was done for them, together with others, until now."""
        self._meter = Meter()

    def submit(self, task: Task) -> None:
        self._tasks.append(task)

    def take(self, timeout: float) -> tuple[Task, Fetched]:
        del timeout  # Nobody can interrupt this thread but itself.
        with metered(self._meter):
            if not self._found:
                self._gather(self._tasks.popleft())
            task, found = self._found.popleft()
            match found:
                case Fetched():
                    return task, found
                case Gathered():
                    return task, self._fetch.finish(task, found)
            return task, self._fetch(task)

    def _gather(self, task: Task) -> None:
        """Read the records of a task, together where that pays and can be done."""
        reach = self._reach
        if reach is not None and task.steps > 1 and self._weighs and task.unread is None:
            task = self._bearable(task, reach)
        size = None if reach is None else self._gather_together(task)
        if reach is None or size is None:
            # Each step by itself, with whatever is wrong with it.
            self._found.extend((one, None) for one in task.apart())
            self.together = 1
            return
        bearable = reach.bytes * task.steps // max(1, size)
        self.together = max(1, min(_GROWTH * task.steps, bearable, reach.steps))

    def _bearable(self, task: Task, reach: Reach) -> Task:
        """Return as many of the steps as may be held at once; the others wait.

        What was read before says nothing of those that lie behind it, which may be a thousand times
        as large.
        """
        size = self._fetch.size_about(task)
        if size <= _OVERSIZE * reach.bytes:
            return task
        steps = max(1, reach.bytes * task.steps // size)
        self._tasks.appendleft(task.part(steps, task.steps))
        return task.part(0, steps)

    def _gather_together(self, task: Task) -> int | None:
        """Read, and perhaps make, all steps at once; return the bytes, or None where it fails."""
        fetch = self._fetch
        gathered = fetch.gather_together(task)
        if gathered is None:
            return None
        size = fetch.recipe.size(gathered.read)
        if not fetch.recipe.is_cut_last:
            self._found.extend(zip(task.apart(), fetch.cut(task, gathered), strict=True))
            return size
        fetched = fetch.make_together(task, gathered)
        if fetched is None:
            return None
        self._found.append((task, fetched))
        return size + (0 if fetched.made is gathered.read else made_bytes(fetched.made))

    def costs(self) -> Mapping[str, float]:
        return self._meter.counts()

    def close(self) -> None:
        self._tasks.clear()
        self._found.clear()


class HasHelpers:
    """An engine whose threads or workers belong to the process that started them.

    A forked child inherits the engine without them: it makes nothing and ends nothing.
    """

    def __init__(self) -> None:
        self._process = os.getpid()

    @property
    def _is_inherited(self) -> bool:
        return self._process != os.getpid()

    def _refuse_fork(self) -> None:
        refuse_inherited(
            self._process,
            "a loader went over an epoch",
            "Call iter() on the loader in the forked process, or build a loader there.",
        )


class InThreads(HasHelpers):
    """Makes batches in threads, `ahead` of them for each.

    What only one thread may do, a user's own callable, is done by the caller, in order.
    """

    def __init__(self, fetch: Fetch, threads: int, ahead: int) -> None:
        super().__init__()
        self._fetch = fetch
        self.depth = max(1, threads * ahead)
        self.together = 1
        self._meter = Meter()
        self._inbox: SimpleQueue[tuple[Task, _Answer] | None] = SimpleQueue()
        self._answers: deque[tuple[Task, _Answer]] = deque()
        self._is_closed = self._is_stalled = False
        self._threads = [
            # Daemons: one that waits for a dead network must not keep the program from ending.
            threading.Thread(target=self._work, name=f"penstock-load-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        with metered(self._meter):
            while (item := self._inbox.get()) is not None:
                if self._is_closed:
                    continue
                task, answer = item
                try:
                    whole = self._fetch.recipe.is_pure
                    answer.put(self._fetch(task) if whole else self._fetch.gather(task))
                except BaseException as failure:  # noqa: BLE001 (raised in the caller's thread)
                    answer.put(failure)

    def submit(self, task: Task) -> None:
        self._refuse_fork()
        answer: _Answer = SimpleQueue()
        self._answers.append((task, answer))
        self._inbox.put((task, answer))

    def take(self, timeout: float) -> tuple[Task, Fetched]:
        self._refuse_fork()
        task, answer = self._answers[0]
        try:
            found = answer.get(timeout=timeout)
        except Empty:
            self._is_stalled = True
            raise Stalled(waited_for(self._meter)) from None
        self._answers.popleft()
        if isinstance(found, BaseException):
            try:
                raise found
            finally:
                del found  # Its traceback holds this frame, which would hold it.
        if self._fetch.recipe.is_pure:
            return task, found  # type: ignore[return-value]
        return task, self._fetch.finish(task, found)  # type: ignore[arg-type]

    def costs(self) -> Mapping[str, float]:
        return self._meter.counts()

    def close(self) -> None:
        if self._is_inherited:
            return
        self._is_closed = True
        for _ in self._threads:
            self._inbox.put(None)
        # Who waited in vain for long enough does not wait for the same once more.
        deadline = time.monotonic() + (0 if self._is_stalled else _JOIN_SECONDS)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._answers.clear()


if TYPE_CHECKING:
    _Answer = SimpleQueue[Fetched | Gathered | BaseException]


def waited_for(meter: Meter) -> str:
    """Return which object and range the oldest unanswered read is for."""
    reads = meter.in_flight()
    if not reads:
        return ""
    path, start, stop, since = reads[0]
    waited = time.monotonic() - since
    return f"{path}, bytes {start:,} to {stop:,}, asked for {waited:.0f} s ago"
