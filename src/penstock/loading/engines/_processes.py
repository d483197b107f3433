"""Batches made by worker processes, in turn."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import operator
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections import Counter, deque
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import resource_tracker
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

from penstock.errors import OptionError, UnsafeForkError, WorkerError
from penstock.loading.engines._engines import HasHelpers, Stalled
from penstock.loading.engines._transfer import receive, send
from penstock.loading.engines._worker import Ask, Done, Told, run
from penstock.storage import fork_is_safe
from penstock.work import Failure, error_of, interrupts_held

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess

    from penstock.loading._fetch import Fetch, Fetched

    StartMethod = Literal["fork", "forkserver", "spawn"]

METHODS = ("fork", "forkserver", "spawn")
JOIN_SECONDS = 5.0
"""How long a worker has to end by itself, or to answer a question."""
_starting = threading.Lock()
_started: WeakSet[BaseProcess] = WeakSet()


def _after_fork_in_child() -> None:
    global _starting  # noqa: PLW0603 (a thread of the parent may hold it)
    _starting = threading.Lock()
    # Else a child that exits ends them: Python takes every daemon that it knows for its own. There
    # is no public way to make it forget one.
    children = multiprocessing.process._children  # type: ignore[attr-defined]  # noqa: SLF001
    children.difference_update(_started)


os.register_at_fork(after_in_child=_after_fork_in_child)


class InProcesses(HasHelpers):
    """Makes batches in worker processes; task n is worker n modulo their number's.

    Each worker has a pipe of its own and nothing else: no queue, no shared memory, no thread here.
    A worker ends when its pipe does, so none outlives this process, however it dies.
    """

    def __init__(self, fetch: Fetch, processes: int, ahead: int, method: StartMethod) -> None:
        super().__init__()
        self.depth = processes * ahead
        self.together = 1
        self._fetch = fetch
        self._workers: list[_Worker] = []
        self._requests: deque[Any] = deque()
        self._submitted = self._taken = 0
        if multiprocessing.current_process().daemon:
            raise WorkerError(
                "this process is a daemon of multiprocessing, which may not start processes of its "
                "own. Give num_workers=0 or 'auto' (threads), or start it with daemon=False."
            )
        payload = _payload(fetch, method)
        try:
            for number in range(processes):
                foreign = [worker.connection for worker in self._workers]
                if method != "fork":
                    resource_tracker.ensure_running()  # Which would let interrupts in again.
                with interrupts_held():
                    self._workers.append(_Worker(number, payload, foreign, method))
        except BaseException:
            self.close()
            raise

    def submit(self, request: Any) -> None:  # noqa: ANN401 (its feed's)
        self._refuse_fork()
        worker = self._workers[self._submitted % len(self._workers)]
        self._submitted += 1
        self._requests.append(request)
        # A dead worker is told of when its answer is due.
        with suppress(BrokenPipeError, ConnectionResetError):
            send(worker.connection, request)

    def take(self, timeout: float) -> tuple[Any, Fetched]:
        self._refuse_fork()
        worker = self._workers[self._taken % len(self._workers)]
        try:
            done = worker.answer(timeout)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            batch = self._fetch.reader.name(self._requests[0])
            raise WorkerError(f"{worker.death()} {batch}") from None
        self._taken += 1
        request = self._requests.popleft()
        worker.costs = done.costs
        if isinstance(done.result, Failure):
            raise error_of(done.result)
        return request, done.result

    def costs(self) -> Mapping[str, float]:
        total: Counter[str] = Counter()
        for worker in self._workers:
            total.update(worker.costs)
        return total

    def close(self) -> None:
        if self._is_inherited:
            return
        for worker in self._workers:
            worker.hang_up()
        deadline = time.monotonic() + JOIN_SECONDS
        for worker in self._workers:
            worker.end(deadline)
        self._workers = []


class _Ignoring:
    """Unpickled, it makes a process ignore Ctrl-C."""

    def __reduce__(self) -> tuple[Any, ...]:
        return signal.signal, (signal.SIGINT, signal.SIG_IGN)


class _Name(str):
    """The name of a process, which ignores Ctrl-C as soon as it reads its name.

    That is the first thing that a process of a fork server reads, before it imports the user's
    script and Penstock. Others are started with the signal blocked.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, ((_Ignoring(), str(self)), 1)


class _Worker:
    """One process and the pipe to it."""

    def __init__(
        self, number: int, payload: Fetch | bytes, foreign: list[Connection], method: StartMethod
    ) -> None:
        context: Any = multiprocessing.get_context(method)
        self.connection, theirs = multiprocessing.Pipe()
        self.costs: dict[str, float] = {}
        # Only a fork has more than it is given.
        foreign = [*foreign, self.connection] if method == "fork" else []
        # Daemons, so that Python's own exit ends them, too.
        self._process = context.Process(
            target=run,
            args=(theirs, payload, foreign),
            name=_Name(f"penstock-worker-{number}"),
            daemon=True,
        )
        needs_main = method == "fork" or b"__main__" in payload  # type: ignore[operator]
        with _starting, nullcontext() if needs_main else _without_main():
            try:
                self._process.start()
                _started.add(self._process)
            except BaseException as why:
                self.connection.close()
                if isinstance(why, ChildProcessError):
                    # Python asks after the server's end, as only its parent may.
                    raise UnsafeForkError(
                        "the server that multiprocessing forks workers from belongs to the parent "
                        "of this process, which was forked. Give multiprocessing_context='spawn'."
                    ) from None
                raise
            finally:
                theirs.close()
        self.pid: int = self._process.pid

    def answer(self, timeout: float) -> Done:
        """Return what became of the oldest task."""
        deadline = time.monotonic() + timeout
        while self.connection.poll(max(0.0, deadline - time.monotonic())):
            found = receive(self.connection)
            if isinstance(found, Done):
                return found
            # What was told came too late for the one who asked.
        # It listens in another thread than the one that hangs.
        send(self.connection, Ask())
        found = receive(self.connection) if self.connection.poll(JOIN_SECONDS) else Told("")
        if isinstance(found, Done):
            return found
        raise Stalled(found.waited_for)

    def death(self) -> str:
        """Say how it died."""
        self._process.join(JOIN_SECONDS)
        code = self._process.exitcode
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        why = "; the machine may be out of memory" if code == -signal.SIGKILL else ""
        if code == 1:
            why = (
                "; if its own output above speaks of bootstrapping, guard the script by "
                "if __name__ == '__main__', or define what encode needs in a module"
            )
        return (
            f"worker process {self.pid} {how}{why}. Nothing was lost: the state goes up to the "
            "batch before."
        )

    def hang_up(self) -> None:
        """Tell it that nothing more will come.

        To close our end would not: any process that was forked from this one since then, a worker
        of another loader say, has a copy of it.
        """
        with suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def end(self, deadline: float) -> None:
        """Wait until it ended by itself; kill it if it does not."""
        self._process.join(max(0.0, deadline - time.monotonic()))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()


def start_method(context: str | BaseContext | None, *, is_remote: bool) -> tuple[StartMethod, str]:
    """Return how worker processes are started, and why."""
    if context is not None:
        method = context if isinstance(context, str) else context.get_start_method()
        if method not in METHODS or method not in multiprocessing.get_all_start_methods():
            raise OptionError(
                f"multiprocessing_context={context!r}: expected one of {', '.join(METHODS)}."
            )
        return method, "as told"  # type: ignore[return-value]
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
        return pickle.dumps(fetch)
    except Exception as why:
        raise OptionError(
            f"what encode needs cannot be sent to worker processes: {why}. Define it in a module, "
            "or give num_workers=0 or 'auto' (threads), or multiprocessing_context='fork'."
        ) from why


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the user's script from a process that is being started.

    A new process would import it, and so run it again unless it is guarded; nothing that is sent
    refers to it.
    """
    real = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = real
