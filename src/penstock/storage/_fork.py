"""Refuse what would hang: object-store clients, threads and workers do not survive a fork.

The client's runtime is one per process. Used in a parent and then in its forked child, the child
hangs for ever and the parent may crash, so the child refuses before it touches the client.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from penstock.errors import UnsafeForkError

_clients: dict[object, Any] = {}
_MOST_CLIENTS = 256
"""Each may hold connections and open files."""
_used = False
_unsafe = False


def guarded_client(key: object, make: Callable[[], Any]) -> Any:  # noqa: ANN401 (of any library)
    """Return this process's client of a key, for immediate use; refuse in an unsafe fork."""
    global _used  # noqa: PLW0603 (one flag a process is what this module is for)
    if _unsafe:
        raise UnsafeForkError(
            "this process was forked from one that had already used remote storage; its client "
            "would hang here. Start workers with multiprocessing_context='forkserver' (or "
            "'spawn'), or fork before the first remote read or write."
        )
    _used = True
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = make()
        for oldest in [*_clients][:-_MOST_CLIENTS]:  # A copy: other threads add to it meanwhile.
            _clients.pop(oldest, None)
    return client


def refuse_inherited(process: int, doing: str, remedy: str) -> None:
    """Raise where this process is not `process`, which was `doing` something when it was forked."""
    if process != os.getpid():
        raise UnsafeForkError(
            f"this process was forked while {doing}; the threads or processes that do so belong to "
            f"process {process}, its parent. {remedy}"
        )


def fork_is_safe() -> bool:
    """Whether a child that is forked now could use remote storage."""
    return not _used and not _unsafe


def _after_fork_in_child() -> None:
    global _unsafe  # noqa: PLW0603
    if _used:
        _unsafe = True
        # Their destructors belong to the parent's runtime: keep them from ever running here.
        for client in _clients.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
        _clients.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
