"""A fresh process that does units: how it is started, spoken with and ended."""

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
from typing import TYPE_CHECKING

from penstock.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.work._worker import Message

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


class WorkerProcess:
    """One process and the connection to it.

    It has the caller's `sys.path`, interpreter options, environment and working directory, but
    nothing that the caller loaded or defined. It ends when the connection does. A fork of the
    caller has a copy of this object, which ends nothing.
    """

    def __init__(self) -> None:
        if not sys.executable:
            raise WorkerError(
                "no Python interpreter is known that worker processes could run: sys.executable is "
                "empty. Set it, or give workers=0."
            )
        self._caller = os.getpid()
        try:
            self.connection, theirs = _connected()
            try:
                self._process = _started(theirs)
            except BaseException:
                self.connection.close()
                raise
            finally:
                os.close(theirs)
        except OSError as why:
            raise WorkerError(
                f"a worker process could not be started: {why}. Give fewer workers, or workers=0."
            ) from why

    def send(self, message: bytes) -> None:
        """Give it a unit."""
        # If it died in the meantime, that is told when it is heard.
        with suppress(OSError):
            self.connection.send_bytes(message)

    def hear(self) -> Message | str:
        """Return what it says; text is why it cannot start. Raise `EOFError` if it is gone."""
        if not self.connection.poll():
            # It ended, but a process that was forked since holds its end open.
            raise EOFError
        message: Message | str = self.connection.recv()
        return message

    def has_ended(self) -> bool:
        """Whether the process is over; what it said last may still be there to be heard."""
        return self._process.poll() is not None

    def death(self) -> str:
        """Say how a process ended that is gone, and leave nothing of it."""
        self.hang_up()
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.end(0.0)
            return f"worker process {self._process.pid} did not answer any more."
        if code >= 0:
            return f"worker process {self._process.pid} ended with exit code {code}."
        why = "; the machine may be out of memory" if code == -signal.SIGKILL else ""
        return f"worker process {self._process.pid} was killed by {_signal_name(-code)}{why}."

    def hang_up(self) -> None:
        """Tell it that nothing more will come; it ends at once, whatever it does."""
        if self._caller != os.getpid():
            return
        # To close our end would not do: a process that was forked since has a copy of it.
        with suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def end(self, deadline: float) -> None:
        """Wait until it ended; kill it if it does not."""
        if self._caller != os.getpid():
            return
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def end_all(workers: list[WorkerProcess]) -> None:
    """End processes, whatever they do."""
    for worker in workers:
        worker.hang_up()
    deadline = time.monotonic() + _END_SECONDS
    for worker in workers:
        worker.end(deadline)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let Ctrl-C wait, here and in processes that are started, which must let it in themselves."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _connected() -> tuple[Connection, int]:
    """Return both ends of a new connection, the second as a descriptor."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        # Where standard error is closed, an end may have got its number, and what it prints.
        first = Connection(fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, _STANDARD))
        try:
            return first, fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, _STANDARD)
        except BaseException:
            first.close()
            raise


def _started(descriptor: int) -> subprocess.Popen[bytes]:
    # What a unit prints must not get in between what the caller prints.
    output = _standard_error()
    # As multiprocessing starts its own: there is no public way to ask for -O, -X utf8 or -W.
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    # Others, a Path say, are no places to import from.
    path = [place for place in sys.path if type(place) is str]
    return subprocess.Popen(  # noqa: S603 (this very interpreter)
        [sys.executable, *options, "-c", _PROGRAM, str(descriptor), str(os.getpid()), *path],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=[descriptor],
    )


def _standard_error() -> int:
    """Return where the caller's standard error goes, or nowhere if it has none."""
    stream = sys.__stderr__
    if stream is None or stream.closed:
        # Whatever has the number now is something else.
        return subprocess.DEVNULL
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
