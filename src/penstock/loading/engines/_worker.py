"""The program of a worker process: requests in, batches out, until the connection ends.

A worker knows no ranks, orders or states: a request says which records it wants.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, TypeVar

from penstock.errors import PenstockError, WorkerError
from penstock.loading._fetch import Fetch
from penstock.loading.engines._engines import waited_for
from penstock.loading.engines._transfer import MappedPickle, receive, send
from penstock.storage import Meter, metered
from penstock.work import Failure, begin_worker, failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from penstock.loading._feed import Reader
    from penstock.loading._fetch import Fetched

END = "end"
"""Asks a worker to close what it reads, and to end."""
_CLOSE_SECONDS, _LOOK_SECONDS = 1.0, 0.005
"""How long the end waits for a read that goes on, and how often it looks."""
Sent: TypeAlias = Fetch | MappedPickle | bytes
"""What a worker needs, as it is sent."""
A = TypeVar("A")
T = TypeVar("T")


class TaskDone(NamedTuple):
    """What became of one request, and what reading cost until now."""

    result: Fetched | Failure
    costs: dict[str, float]


def run(connection: Connection, fetch: Sent, foreign: Sequence[Connection]) -> None:
    """Serve one connection; never returns.

    A message is a request, None to ask which read the worker waits for, or `END`. An answer is a
    `TaskDone`, or the text that names the read, "" for none.

    `foreign` are the ends that a fork copied from the parent: open here, they would keep other
    workers from noticing that the parent is gone.
    """
    for other in foreign:
        other.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _Server(connection).serve(fetch)


class _Server:
    """One thread that listens and one that works.

    With two, parent and worker never wait for each other while both send, and a worker ends at
    once, in the middle of its work, when the parent is gone.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._meter = Meter()
        self._sending = threading.Lock()
        self._reader: Reader | None = None
        self._is_over = self._is_busy = False

    def serve(self, fetch: Sent) -> NoReturn:
        begin_worker(self._connection, os.getppid(), self._hear)
        work = _tried(_loaded, fetch)
        if isinstance(work, Fetch):
            self._reader = work.reader
        # Objects of now stay: 200,000 of them with torch, whose collections would cost 7 % of the
        # time, and in a fork copy shared pages.
        gc.freeze()
        with metered(self._meter):
            while True:
                request = self._requests.get()
                self._is_busy = not self._is_over
                if self._is_over:
                    continue
                result = work if isinstance(work, Failure) else _tried(work, request)
                self._is_busy = False
                costs = self._meter.counts()
                try:
                    self._answer(TaskDone(result, costs))
                except Exception as why:  # noqa: BLE001 (nothing was sent: it does not pickle)
                    refused = WorkerError(
                        f"a worker process cannot send what encode made: {why}. Return tensors, "
                        "arrays and plain objects, or give num_workers=0 or 'auto' (threads)."
                    )
                    refused.__cause__ = why
                    if isinstance(work, Fetch):
                        refused.add_note(work.reader.name(request))
                    self._answer(TaskDone(failure_of(refused), costs))

    def _hear(self) -> None:
        request = receive(self._connection)
        if request is None:
            self._answer(waited_for(self._meter))
        elif request == END:
            self._end()
        else:
            self._requests.put(request)

    def _end(self) -> NoReturn:
        # Here, for the other thread may wait until the parent takes a batch, which never happens.
        self._is_over = True
        until = time.monotonic() + _CLOSE_SECONDS
        while self._is_busy and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        try:
            if self._reader is not None:
                self._reader.close()
        except BaseException:  # noqa: BLE001 (of a user's generator)
            traceback.print_exc()
        finally:
            os._exit(0)

    def _answer(self, value: TaskDone | str) -> None:
        with self._sending:
            try:
                send(self._connection, value)
            except OSError:
                os._exit(0)


def _loaded(fetch: Sent) -> Fetch:
    loaded: Fetch
    try:
        if isinstance(fetch, MappedPickle):
            loaded = fetch.loads()
        else:
            loaded = pickle.loads(fetch) if isinstance(fetch, bytes) else fetch  # noqa: S301 (the parent's)
    except PenstockError:
        raise  # The source itself has changed, and says so.
    except BaseException as why:
        raise WorkerError(
            f"a worker process cannot load what encode or the source needs: {why}. Define it "
            "in a module that can be imported, or give num_workers='auto' (threads), or "
            "multiprocessing_context='fork'."
        ) from why
    _use_one_thread()
    return loaded


def _use_one_thread() -> None:
    """Let torch, in a user's own callable, use one thread.

    The parent's pool of threads does not exist after a fork, and OpenMP would wait for it for
    ever. Several workers use several cores anyway.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _tried(call: Callable[[A], T], argument: A) -> T | Failure:
    try:
        return call(argument)
    except BaseException as error:  # noqa: BLE001 (raised in the user's process)
        return failure_of(error)
