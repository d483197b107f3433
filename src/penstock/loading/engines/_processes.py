"""Batches made by worker processes, in turn."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError, StorageError, UnsafeForkError, WorkerError
from penstock.loading.engines._engines import Engine, Stalled
from penstock.loading.engines._transfer import SharedPickle, receive, send
from penstock.loading.engines._worker import END, TaskDone, run
from penstock.storage import environment, fork_is_safe
from penstock.work import Failure, end_all, error_of, interrupts_held, started_worker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.context import BaseContext

    from penstock.loading._fetch import Fetch, Fetched
    from penstock.work import StartMethod, WorkerProcess

METHODS = ("fork", "forkserver", "spawn")
_ANSWER_SECONDS = 5.0
"""How long a worker has to say what it waits for."""
_CLOSE_SECONDS = 2.0
"""How long workers have to close what they read."""
_HINTS = {
    1: "if its own output above speaks of bootstrapping, guard the script by "
    "if __name__ == '__main__', or define what encode needs in a module"
}
"""What may be the reason for an exit code."""


class InProcesses(Engine):
    """Makes batches in worker processes: request n goes to worker n modulo their number.

    Where a request has a `lane`, that is its n. Each worker has one pipe and nothing else: no
    queue, no shared memory, no thread here.
    """

    def __init__(self, fetch: Fetch, processes: int, ahead: int, method: StartMethod) -> None:
        super().__init__(fetch)
        self.depth = processes * ahead
        self._workers: list[WorkerProcess] = []
        self._costs: dict[WorkerProcess, Mapping[str, float]] = {}
        self._costs_before: Counter[str] = Counter()
        """What earlier passes cost, with answers that were dropped."""
        self._requests: deque[tuple[Any, WorkerProcess]] = deque()
        self._submitted = 0
        self._stale: Counter[WorkerProcess] = Counter()
        """How many answers still come that no pass waits for."""
        self._environment = environment()
        if multiprocessing.current_process().daemon:
            raise WorkerError(
                "this process is a daemon of multiprocessing, which may not start processes of its "
                "own. Give num_workers=0 or 'auto' (threads), or start it with daemon=False."
            )
        payload = _payload(fetch, method)
        try:
            for number in range(processes):
                name = f"penstock-worker-{number}"
                with interrupts_held():  # A worker that started is one that is ended.
                    worker = started_worker(method, run, payload, self._workers, name=name)
                    self._workers.append(worker)
        except BaseException:
            self.close()
            raise
        finally:
            if isinstance(payload, SharedPickle):
                payload.close()

    def submit(self, request: Any) -> None:  # noqa: ANN401 (its feed's)
        self._refuse_fork()
        number = getattr(request, "lane", self._submitted)
        worker = self._workers[number % len(self._workers)]
        self._submitted += 1
        self._requests.append((request, worker))
        # A dead worker is noticed when its answer is due.
        with suppress(BrokenPipeError, ConnectionResetError):
            send(worker.connection, request)

    def take(self, timeout: float) -> tuple[Any, Fetched]:
        self._refuse_fork()
        request, worker = self._requests[0]
        try:
            done = self._answer(worker, timeout)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise WorkerError(
                f"{worker.death(_HINTS)} Nothing was lost: the state goes up to the batch before. "
                f"{self._fetch.reader.name(request)}"
            ) from None
        self._requests.popleft()
        self._costs[worker] = done.costs
        if isinstance(done.result, Failure):
            raise error_of(done.result)
        return request, done.result

    def _answer(self, worker: WorkerProcess, timeout: float) -> TaskDone:
        """Return what became of the oldest request of a worker."""
        connection = worker.connection
        deadline = time.monotonic() + timeout
        while connection.poll(max(0.0, deadline - time.monotonic())):
            found = receive(connection)
            if not isinstance(found, TaskDone):
                continue  # The answer to an earlier question came too late.
            if not self._stale[worker]:
                return found
            self._stale[worker] -= 1
            self._costs_before.update(found.costs)
            self._costs_before.subtract(self._costs.get(worker, {}))
            self._costs[worker] = found.costs
        # The worker listens in another thread than the one that hangs.
        send(connection, None)
        found = receive(connection) if connection.poll(_ANSWER_SECONDS) else ""
        if isinstance(found, TaskDone) and not self._stale[worker]:
            return found
        raise Stalled("" if isinstance(found, TaskDone) else found)

    def costs(self) -> Mapping[str, float]:
        total: Counter[str] = Counter()
        for costs in self._costs.values():
            total.update(costs)
        total.subtract(self._costs_before)
        return total

    def rest(self) -> None:
        """End a pass and keep the workers: what they still make is dropped as it comes."""
        self._stale.update(worker for _, worker in self._requests)
        self._requests.clear()
        self._submitted = 0
        self._costs_before.update(self.costs())

    def is_ready(self) -> bool:
        """Whether another pass can have its workers: all live, and are this process's own.

        They have the variables of their start: credentials may be new since then.
        """
        is_same = self._process == os.getpid() and self._environment == environment()
        return is_same and not any(one.has_ended() for one in self._workers)

    def close(self) -> None:
        if self._process == os.getpid():
            for worker in self._workers:
                with suppress(OSError):
                    send(worker.connection, END)
        end_all(self._workers, _CLOSE_SECONDS)
        self._workers = []


def start_method(context: str | BaseContext | None, *, is_remote: bool) -> tuple[StartMethod, str]:
    """Return how worker processes are started, and why."""
    if context is not None:
        method = context if isinstance(context, str) else context.get_start_method()
        if method not in METHODS or method not in multiprocessing.get_all_start_methods():
            raise OptionError(
                f"multiprocessing_context={context!r}: expected one of {', '.join(METHODS)}."
            )
        return method, "as given"  # type: ignore[return-value]
    if is_remote:
        return "forkserver", "the client of an object store does not survive a fork"
    if "fork" not in multiprocessing.get_all_start_methods():
        return "spawn", "nothing else is possible here"
    return "fork", "what is local is read as well after a fork"


def _payload(fetch: Fetch, method: StartMethod) -> Fetch | bytes:
    """Return what a worker needs, as it is sent; a fork inherits it."""
    if method == "fork":
        if fetch.reader.is_remote and not fork_is_safe():
            raise UnsafeForkError(
                "workers would be forked from a process that already used object storage, and "
                "would hang. Give multiprocessing_context='forkserver' (or 'spawn'), or none."
            )
        fetch.reader.warm_up(fetch.recipe)
        return fetch
    try:
        return SharedPickle.of(fetch)
    except StorageError:
        raise
    except Exception as why:
        raise OptionError(
            f"what encode or the source needs cannot be sent to worker processes: {why}. Define it "
            "in a module, "
            "or give num_workers=0 or 'auto' (threads), or multiprocessing_context='fork'."
        ) from why
