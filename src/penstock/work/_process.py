"""Worker processes: how they are talked to and ended, and how those for units are started."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from penstock.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


def end_all(workers: list[WorkerProcess]) -> None:
    """End processes, in the middle of their work."""
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
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _connected() -> tuple[Connection, int]:
    """Return both ends of a new connection, the second as a descriptor."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        # Where standard error is closed, an end could get its number, and with it all error output.
        first = Connection(fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, _STANDARD))
        try:
            return first, fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, _STANDARD)
        except BaseException:
            first.close()
            raise


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
    stream = sys.__stderr__
    if stream is None or stream.closed:
        # Another file may have the number by now.
        return subprocess.DEVNULL
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
