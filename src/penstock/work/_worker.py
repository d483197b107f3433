"""The program of a worker process: units in, progress out, until the connection ends."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from penstock.errors import WorkerError
from penstock.work._failures import Failure, failure_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from penstock.work._unit import Unit

_BETWEEN_COLLECTIONS = 100_000
"""Objects between two searches for garbage, where Python's own default is 700."""
_LOOK_AROUND = 1.0
"""Seconds after which a worker looks whether its parent is still there."""
_BETWEEN_REPORTS = 0.05
"""Seconds: a unit may count every record, and a person reads the reports."""


class Ready(NamedTuple):
    """The process runs and takes units."""


class Advance(NamedTuple):
    """Some more of a unit is done."""

    amount: int


class UnitDone(NamedTuple):
    """A unit is done, or failed."""

    failure: Failure | None


Message = Ready | Advance | UnitDone


def serve(connection: Connection, parent: int) -> NoReturn:
    """Run the units that the parent sends; never returns."""
    # A process that a unit starts must not hold the connection open when this one is gone.
    os.set_inheritable(connection.fileno(), False)  # noqa: FBT003 (as it is spelt)
    # Both go to the same place, but only standard error shows a line at once.
    sys.stdout = sys.stderr
    units: SimpleQueue[bytes] = SimpleQueue()

    begin_worker(connection, parent, lambda: units.put(connection.recv_bytes()))
    _say(connection, Ready())
    while True:
        _say(connection, UnitDone(_failure(connection, units.get())))


def begin_worker(connection: Connection, parent: int, hear: Callable[[], object]) -> None:
    """Make this process a worker: `hear` is called for each message, in a thread of its own.

    So a worker ends at once, in the middle of its work, when the connection or the parent ends.
    """
    # Ctrl-C reaches every process of a terminal: the parent decides. It starts a worker with the
    # signal blocked, so that none comes before.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_listen, args=(connection, parent, hear), daemon=True).start()
    # What a unit or batch leaves behind is garbage at once, and never in cycles.
    gc.set_threshold(_BETWEEN_COLLECTIONS)


def _listen(connection: Connection, parent: int, hear: Callable[[], object]) -> NoReturn:
    with suppress(EOFError, OSError):
        while True:
            # The connection outlives a parent that was forked since, so the parent is checked.
            while not connection.poll(_LOOK_AROUND):
                if os.getppid() != parent:
                    os._exit(0)
            hear()
    os._exit(0)


def _failure(connection: Connection, message: bytes) -> Failure | None:
    try:
        try:
            unit: Unit = pickle.loads(message)  # noqa: S301 (the parent's)
        except Exception as why:
            raise WorkerError(
                f"a worker process cannot load its work: {why}. Define what it needs in a module "
                "that can be imported, or give workers=0."
            ) from why
        unit.run(_Reports(connection).advance)
    except BaseException as error:  # noqa: BLE001 (raised by the parent)
        return failure_of(error)
    return None


class _Reports:
    """Reports the progress of a unit, at intervals; the rest counts when the unit ends."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._amount = 0
        self._due = 0.0

    def advance(self, amount: int) -> None:
        self._amount += int(amount)
        now = time.monotonic()
        if now >= self._due:
            _say(self._connection, Advance(self._amount))
            self._amount, self._due = 0, now + _BETWEEN_REPORTS


def _say(connection: Connection, message: Message) -> None:
    try:
        connection.send(message)
    except OSError:
        os._exit(0)  # The parent is gone.
