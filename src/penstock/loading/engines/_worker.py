"""What runs in a worker process: tasks in, batches out, until the other side is gone.

Nothing here knows ranks, orders or states: a task says which records it wants.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from penstock.errors import WorkerError
from penstock.loading._fetch import Fetch
from penstock.loading.engines._engines import waited_for
from penstock.loading.engines._transfer import receive, send
from penstock.storage import Meter, metered
from penstock.work import Failure, failure_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from penstock.loading._fetch import Fetched

_BETWEEN_COLLECTIONS = 100_000
"""Objects, where Python itself looks for garbage after 700."""
_LOOK_AROUND = 5.0
"""Seconds after which a worker looks whether its parent is still there."""


class Ask(NamedTuple):
    """A question: what are you waiting for?"""


class Told(NamedTuple):
    """Its answer."""

    waited_for: str


class Done(NamedTuple):
    """What became of one task, and what reading cost until now."""

    result: Fetched | Failure
    costs: dict[str, float]


def run(connection: Connection, fetch: Fetch | bytes, foreign: Sequence[Connection]) -> None:
    """Serve one connection; never returns.

    `foreign` are the ends that a fork copied from the parent: held open here, they would keep other
    workers from seeing that the parent is gone.
    """
    for other in foreign:
        other.close()
    # Ctrl-C reaches every process of a terminal; the parent decides what it means. It started us
    # with the signal blocked, so that none came before this line.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _Server(connection).serve(fetch)


class _Server:
    """One thread that listens and one that works.

    Two, so that a parent with much to say never waits for a worker with much to say, and that a
    worker ends at once, whatever it does, when the parent is gone.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._meter = Meter()
        self._sending = threading.Lock()

    def serve(self, fetch: Fetch | bytes) -> NoReturn:
        threading.Thread(target=self._listen, daemon=True).start()
        work = _loaded(fetch)
        # What is there now stays: to look through it for garbage again and again, 200,000 objects
        # with torch, would cost 7 % of the time, and in a fork copy pages that are shared.
        gc.freeze()
        # Lists inside of records are garbage as soon as their batch is made, and never in cycles.
        gc.set_threshold(_BETWEEN_COLLECTIONS)
        with metered(self._meter):
            while True:
                request = self._requests.get()
                result = work if isinstance(work, Failure) else _result(work, request)
                costs = self._meter.counts()
                try:
                    self._answer(Done(result, costs))
                except Exception as error:  # noqa: BLE001 (nothing was sent: it does not pickle)
                    refused = _unsendable(error)
                    if isinstance(work, Fetch):
                        refused.add_note(work.reader.name(request))
                    self._answer(Done(failure_of(refused), costs))

    def _listen(self) -> None:
        parent = os.getppid()
        with suppress(EOFError, OSError):
            while True:
                while not self._connection.poll(_LOOK_AROUND):
                    if os.getppid() != parent:
                        os._exit(0)
                message = receive(self._connection)
                if isinstance(message, Ask):
                    self._answer(Told(waited_for(self._meter)))
                else:
                    self._requests.put(message)
        os._exit(0)

    def _answer(self, value: Done | Told) -> None:
        with self._sending:
            try:
                send(self._connection, value)
            except OSError:
                os._exit(0)


def _loaded(fetch: Fetch | bytes) -> Fetch | Failure:
    try:
        loaded: Fetch = pickle.loads(fetch) if isinstance(fetch, bytes) else fetch  # noqa: S301 (the parent's)
    except BaseException as error:  # noqa: BLE001 (told to the parent)
        return failure_of(_unloadable(error))
    _use_one_thread()
    return loaded


def _unloadable(error: BaseException) -> WorkerError:
    told = WorkerError(
        f"a worker process cannot load what encode or the source needs: {error}. Define it in a "
        "module that can be imported, or give num_workers='auto' (threads), or "
        "multiprocessing_context='fork'."
    )
    told.__cause__ = error
    return told


def _unsendable(error: Exception) -> WorkerError:
    told = WorkerError(
        f"a worker process cannot send what encode made: {error}. Return tensors, arrays and plain "
        "objects, or give num_workers=0 or 'auto' (threads)."
    )
    told.__cause__ = error
    return told


def _use_one_thread() -> None:
    """Keep torch, for a user's own callable, from sharing an operation out among threads.

    A pool of threads that the parent had is not here after a fork, and OpenMP waits for it for
    ever. Several workers use several cores anyway.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _result(fetch: Fetch, request: Any) -> Fetched | Failure:  # noqa: ANN401 (its feed's)
    try:
        return fetch(request)
    except BaseException as error:  # noqa: BLE001 (raised in the user's process)
        return failure_of(error)
