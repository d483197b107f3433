"""Worker processes started by multiprocessing: fork, forkserver, spawn."""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import operator
import os
import signal
import sys
import threading
from contextlib import contextmanager, nullcontext
from multiprocessing import resource_tracker
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import WeakSet

from penstock.errors import UnsafeForkError
from penstock.work._process import WorkerProcess, interrupts_held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

StartMethod: TypeAlias = Literal["fork", "forkserver", "spawn"]
_starting = threading.Lock()
_started: WeakSet[BaseProcess] = WeakSet()


def _after_fork_in_child() -> None:
    global _starting  # noqa: PLW0603 (a thread of the parent may hold it)
    _starting = threading.Lock()
    # Python takes every daemon in this set for the child's own and ends it when the child exits.
    # There is no public way to remove one.
    children = multiprocessing.process._children  # type: ignore[attr-defined]  # noqa: SLF001
    children.difference_update(_started)


os.register_at_fork(after_in_child=_after_fork_in_child)


def started_worker(
    method: StartMethod,
    target: Callable[[Connection, Any, Sequence[Connection]], None],
    payload: object,
    others: Sequence[WorkerProcess],
    *,
    name: str,
) -> WorkerProcess:
    """Start a process that runs `target(connection, payload, foreign)`.

    `foreign` are the ends of connections that a fork copies and should close: those to `others`,
    and this side's own. Without fork, `payload` is a pickle, and the user's script is imported only
    where the pickle refers to it.
    """
    context: Any = multiprocessing.get_context(method)
    if method != "fork":
        resource_tracker.ensure_running()  # Its start would let interrupts in again.
    with interrupts_held():
        connection, theirs = multiprocessing.Pipe()
        foreign = [*(worker.connection for worker in others), connection]
        # Daemons, so that Python's own exit ends them, too.
        process = context.Process(
            target=target,
            args=(theirs, payload, foreign if method == "fork" else []),
            name=_Name(name),
            daemon=True,
        )
        needs_main = not isinstance(payload, bytes) or b"__main__" in payload
        with _starting, nullcontext() if needs_main else _without_main():
            try:
                process.start()
                _started.add(process)
            except BaseException as why:
                connection.close()
                if isinstance(why, ChildProcessError):
                    # Python waits for the server's end, as only its parent may.
                    raise UnsafeForkError(
                        "the server that multiprocessing forks workers from belongs to the parent "
                        "of this process, which was forked. Give multiprocessing_context='spawn'."
                    ) from None
                raise
            finally:
                theirs.close()
        return WorkerProcess(connection, process)


class _Ignoring:
    """Unpickled, it makes a process ignore Ctrl-C."""

    def __reduce__(self) -> tuple[Any, ...]:
        return signal.signal, (signal.SIGINT, signal.SIG_IGN)


class _Name(str):
    """The name of a process, which ignores Ctrl-C as soon as it reads its name.

    A process of a fork server reads its name first, before it imports the user's script and
    Penstock. Others are started with the signal blocked.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, ((_Ignoring(), str(self)), 1)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the user's script from a process that is being started.

    The process would import the script, and so run it again unless it is guarded.
    """
    real = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = real
