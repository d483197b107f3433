"""What runs in a worker process: units in, how far it is out, until the other side is gone."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from penstock.errors import WorkerError
from penstock.work._failures import Failure, failure_of

if TYPE_CHECKING:
    from penstock.work._unit import Unit

_BETWEEN_COLLECTIONS = 100_000
"""Objects, where Python itself looks for garbage after 700."""


class Advance(NamedTuple):
    """Some more of a unit is done."""

    amount: int


class Done(NamedTuple):
    """A unit is done, or failed."""

    failure: Failure | None


def serve(descriptor: int) -> NoReturn:
    """Do the units that come over a connection; never returns."""
    # Ctrl-C reaches every process of a terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(descriptor)
    units: SimpleQueue[bytes] = SimpleQueue()
    # Two threads, so that this ends at once, in the middle of a unit, when the parent is gone.
    threading.Thread(target=_listen, args=(connection, units), daemon=True).start()
    gc.set_threshold(_BETWEEN_COLLECTIONS)
    while True:
        _say(connection, Done(_failure(connection, units.get())))


def _listen(connection: Connection, units: SimpleQueue[bytes]) -> None:
    with suppress(EOFError, OSError):
        while True:
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
        unit.run(lambda amount: _say(connection, Advance(amount)))
    except BaseException as error:  # noqa: BLE001 (raised by the parent)
        return failure_of(error)
    return None


def _say(connection: Connection, message: Advance | Done) -> None:
    try:
        connection.send_bytes(pickle.dumps(message))
    except OSError:
        os._exit(0)  # Nobody listens any more.
