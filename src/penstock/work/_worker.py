"""What runs in a worker process: units in, how far it is out, until the other side is gone."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import time
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from penstock.errors import WorkerError
from penstock.work._failures import Failure, failure_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from penstock.work._unit import Unit

_BETWEEN_COLLECTIONS = 100_000
"""Objects, where Python itself looks for garbage after 700."""
_LOOK_AROUND = 1.0
"""Seconds after which a worker looks whether its parent is still there."""
_BETWEEN_REPORTS = 0.05
"""Seconds. Somebody looks at them; a unit may count every record."""


class Ready(NamedTuple):
    """The process runs and takes units."""


class Advance(NamedTuple):
    """Some more of a unit is done."""

    amount: int


class Done(NamedTuple):
    """A unit is done, or failed."""

    failure: Failure | None


Message = Ready | Advance | Done


def serve(connection: Connection, parent: int) -> NoReturn:
    """Do the units that come over a connection from the parent; never returns."""
    # Ctrl-C reaches every process of a terminal; the parent decides what it means. It started us
    # with the signal blocked, so that none came before this line.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # A process that a unit starts must not hold the connection open when this one is gone.
    os.set_inheritable(connection.fileno(), False)  # noqa: FBT003 (as it is spelt)
    # Both go to the same place, but only this one shows a line when it is printed.
    sys.stdout = sys.stderr
    units: SimpleQueue[bytes] = SimpleQueue()
    # Two threads, so that this ends at once, in the middle of a unit, when the parent is gone.
    threading.Thread(target=_listen, args=(connection, parent, units), daemon=True).start()
    gc.set_threshold(_BETWEEN_COLLECTIONS)
    _say(connection, Ready())
    while True:
        _say(connection, Done(_failure(connection, units.get())))


def _listen(connection: Connection, parent: int, units: SimpleQueue[bytes]) -> None:
    with suppress(EOFError, OSError):
        while True:
            # Where it was forked since, the connection does not end with it.
            while not connection.poll(_LOOK_AROUND):
                if os.getppid() != parent:
                    os._exit(0)
            units.put(connection.recv_bytes())
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
    """Says how far a unit is, but not all the time; what is left unsaid counts with its end."""

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
        os._exit(0)  # Nobody listens any more.
