"""The worker's side of a connection: it ends when its parent does, and leaves Ctrl-C to it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

_LOOK_AROUND = 1.0
"""Seconds after which a worker looks whether its parent is still there."""


def ignore_interrupts() -> None:
    """Ignore Ctrl-C, which reaches every process of a terminal: the parent decides.

    The parent starts a worker with the signal blocked, so that none comes before this call.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def listen(connection: Connection, parent: int, hear: Callable[[], object]) -> NoReturn:
    """Call `hear` for each message, and end the process when the connection or the parent ends.

    A thread of its own does this, so that a worker ends at once in the middle of its work.
    """
    with suppress(EOFError, OSError):
        while True:
            # The connection outlives a parent that was forked since, so the parent is checked.
            while not connection.poll(_LOOK_AROUND):
                if os.getppid() != parent:
                    os._exit(0)
            hear()
    os._exit(0)
