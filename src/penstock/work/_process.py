"""Worker processes: how they are started, talked to and ended."""

from __future__ import annotations

import fcntl
import multiprocessing
import multiprocessing.process
import operator
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from weakref import WeakSet

from penstock.errors import UnsafeForkError, WorkerError
from penstock.storage import environment, set_environment

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

StartMethod: TypeAlias = Literal["fork", "forkserver", "spawn"]
_starting = threading.Lock()
_started: WeakSet[BaseProcess] = WeakSet()
_END_SECONDS = 5.0
_STANDARD = 3
"""Descriptors below are standard input, output and error, even where they are closed."""
# Nothing but `sys` may be imported before the path is the caller's: a module of the same name may
# lie in the working directory.
_PROGRAM = """
import sys
descriptor, parent, *sys.path[:] = sys.argv[1:]
from multiprocessing.connection import Connection
connection = Connection(int(descriptor))
try:
    from penstock.work._worker import serve
except BaseException:
    import traceback
    connection.send(traceback.format_exc())
    sys.exit(1)
serve(connection, int(parent))
"""


class _Program(subprocess.Popen[bytes]):
    """A program with the surface of a process of multiprocessing."""

    @property
    def exitcode(self) -> int | None:
        return self.poll()

    def join(self, timeout: float | None = None) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(timeout)

    def close(self) -> None:
        """Nothing is open any more once it was waited for."""


class WorkerProcess:
    """A worker process and the connection to it: talk to it, notice its death, end it.

    A worker ends when its connection does, so none outlives the caller. A fork of the caller has a
    copy of this object, which ends nothing.
    """

    def __init__(self, connection: Connection, process: Any) -> None:  # noqa: ANN401 (a BaseProcess or the like)
        self.connection = connection
        self._process = process
        self._caller = os.getpid()
        self._is_over = False
        self.pid: int = process.pid

    def send(self, message: bytes) -> None:
        # A worker that died in the meantime is noticed when its answer is due.
        with suppress(OSError):
            self.connection.send_bytes(message)

    def hear(self) -> Any:  # noqa: ANN401 (what workers of this kind say)
        """Return its next message. Raise `EOFError` if it is gone."""
        if not self.connection.poll():
            # It ended, but a process that was forked since holds its end open.
            raise EOFError
        return self.connection.recv()

    def has_ended(self) -> bool:
        """Whether the process is over; its last messages may still be there to be heard."""
        return self._is_over or self._process.exitcode is not None

    def death(self, hints: Mapping[int, str] | None = None) -> str:
        """Say how a process ended that is gone, and leave nothing of it.

        `hints` are added for their exit codes.
        """
        self.hang_up()
        self._process.join(_END_SECONDS)
        code = self._process.exitcode
        if code is None:
            self.end(0.0)
            return f"worker process {self.pid} did not answer any more."
        why = {-signal.SIGKILL: "the machine may be out of memory", **(hints or {})}.get(code)
        how = f"ended with exit code {code}" if code >= 0 else f"was killed by {_signal(-code)}"
        return f"worker process {self.pid} {how}{f'; {why}' if why else ''}."

    def hang_up(self) -> None:
        """End the connection, and so the worker, in the middle of its work."""
        if self._caller != os.getpid():
            return
        # To close this end is not enough: a process that was forked since has a copy of it.
        with suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def wait(self, deadline: float) -> None:
        """Wait until it ended."""
        if not self._is_over and self._caller == os.getpid():
            self._process.join(max(0.0, deadline - time.monotonic()))

    def end(self, deadline: float) -> None:
        """Wait until it ended; kill it if it does not."""
        if self._is_over or self._caller != os.getpid():
            return
        self._process.join(max(0.0, deadline - time.monotonic()))
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        self._is_over = True
        self._process.close()


def end_all(workers: list[WorkerProcess], patience: float = 0.0) -> None:
    """End processes, in the middle of their work; first give them time to end by themselves."""
    until = time.monotonic() + patience
    for worker in workers:
        worker.wait(until)
    for worker in workers:
        worker.hang_up()
    deadline = time.monotonic() + _END_SECONDS
    for worker in workers:
        worker.end(deadline)


def fresh_worker() -> WorkerProcess:
    """Start a process that runs units.

    It has the caller's `sys.path`, interpreter options, environment and working directory, but
    nothing that the caller loaded or defined; a daemon of multiprocessing may start it as well.
    """
    if not sys.executable:
        raise WorkerError(
            "no Python interpreter is known that worker processes could run: sys.executable is "
            "empty. Set it, or give workers=0."
        )
    try:
        connection, theirs = _connected()
        try:
            return WorkerProcess(connection, _program(theirs))
        except BaseException:
            connection.close()
            raise
        finally:
            os.close(theirs)
    except OSError as why:
        raise WorkerError(
            f"a worker process could not be started: {why}. Give fewer workers, or workers=0."
        ) from why


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back, here and in processes started meanwhile, which let it in themselves."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    # A thread of another library may take the signal, for which Python calls the handler here.
    handler, came = signal.getsignal(signal.SIGINT), []
    is_handled = callable(handler) and threading.current_thread() is threading.main_thread()
    if is_handled:
        signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield
    finally:
        if is_handled:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def _connected() -> tuple[Connection, int]:
    """Return both ends of a new connection, the second as a descriptor."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        # Where standard error is closed, an end could get its number, and with it all error output.
        first = Connection(fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, _STANDARD))
        return first, fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, _STANDARD)


def _program(descriptor: int) -> _Program:
    # Output of a unit must not get in between the output of the caller.
    output = _standard_error()
    # As multiprocessing starts its own: there is no public way to ask for -O, -X utf8 or -W.
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    # Python imports from no other entries, such as a Path.
    path = [place for place in sys.path if type(place) is str]
    return _Program(
        [sys.executable, *options, "-c", _PROGRAM, str(descriptor), str(os.getpid()), *path],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=[descriptor],
    )


def _standard_error() -> int:
    """Return where the caller's standard error goes; nowhere if it is closed."""
    with suppress(OSError):
        if sys.__stderr__ is not None and not sys.__stderr__.closed:
            os.fstat(2)  # Else another file may have the number by now.
            return 2
    return subprocess.DEVNULL


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


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
        run: Callable[..., None] = target
        arguments: tuple[Any, ...] = (theirs, payload, foreign if method == "fork" else [])
        if method == "forkserver":
            # The server has the variables of its own start: credentials may be new since then.
            run, arguments = _in_environment, (environment(), target, *arguments)
        # Daemons, so that Python's own exit ends them, too.
        process = context.Process(target=run, args=arguments, name=_Name(name), daemon=True)
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


def _in_environment(
    variables: Mapping[str, str], target: Callable[..., None], *arguments: object
) -> None:
    set_environment(variables)
    target(*arguments)


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


def _after_fork_in_child() -> None:
    global _starting  # noqa: PLW0603 (a thread of the parent may hold it)
    _starting = threading.Lock()
    # Python takes every daemon in this set for the child's own and ends it when the child exits.
    # There is no public way to remove one.
    children = multiprocessing.process._children  # type: ignore[attr-defined]  # noqa: SLF001
    children.difference_update(_started)


os.register_at_fork(after_in_child=_after_fork_in_child)
