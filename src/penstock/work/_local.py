"""Units run by fresh processes of this machine, or by the caller itself."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from penstock._cpus import usable_cpus
from penstock.errors import OptionError, WorkerError
from penstock.work._failures import error_of
from penstock.work._worker import Advance, Done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.work._unit import Unit

_TRIES = 3
"""How often a unit is begun before it is blamed for the death of its workers."""
_END_SECONDS = 5.0
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from penstock.work._worker import serve
serve(int(sys.argv[1]))
"""


def run_units(
    units: Iterable[Unit],
    *,
    workers: int | None = None,
    advance: Callable[[int], object] = lambda _: None,
) -> None:
    """Do all units that are not done yet; return when every one of them is.

    `workers` fresh processes do them, by default one a processor; 0: the caller itself. They do
    not import the caller's script, so it needs no guard, and they end with the caller, however it
    ends. A worker that is killed is replaced, and its unit begun again. The first error of a unit
    ends everything and is raised here. `advance` is told, in the caller's thread, how much more is
    done, what was done before at once.
    """
    waiting: deque[Unit] = deque()
    for unit in units:
        if unit.is_done():
            advance(unit.size)
        else:
            waiting.append(unit)
    count = min(len(waiting), usable_cpus() if workers is None else workers)
    if not count:
        while waiting:
            waiting.popleft().run(advance)
        return
    _Crew(waiting, advance).work(count)


class _Crew:
    """Workers, and the units that are left for them."""

    def __init__(self, waiting: deque[Unit], advance: Callable[[int], object]) -> None:
        self._waiting = waiting
        self._advance = advance
        self._tries: Counter[int] = Counter()
        self._workers: list[_Worker] = []

    def work(self, count: int) -> None:
        try:
            for _ in range(count):
                self._workers.append(_Worker(self._advance))
            while self._give():
                busy = [worker for worker in self._workers if worker.unit is not None]
                for connection in wait([worker.connection for worker in busy]):
                    self._hear(next(one for one in busy if one.connection is connection))
        finally:
            self._end()

    def _give(self) -> bool:
        """Give a unit to everybody who has none; return whether anybody has one."""
        for worker in self._workers:
            if worker.unit is None and self._waiting:
                worker.begin(self._waiting.popleft())
        return any(worker.unit is not None for worker in self._workers)

    def _hear(self, worker: _Worker) -> None:
        try:
            message = worker.hear()
        except (EOFError, OSError):
            self._replace(worker)
            return
        if isinstance(message, Done):
            worker.unit = None
            if message.failure is not None:
                raise error_of(message.failure)

    def _replace(self, worker: _Worker) -> None:
        unit, death = worker.unit, worker.death()
        assert unit is not None  # noqa: S101 (only those who have one are heard)
        self._tries[id(unit)] += 1
        self._workers.remove(worker)
        worker.close()
        if self._tries[id(unit)] >= _TRIES:
            raise WorkerError(f"{death} That was the {_TRIES}rd time with {unit}.")
        self._waiting.appendleft(unit)
        self._workers.append(_Worker(self._advance))

    def _end(self) -> None:
        for worker in self._workers:
            worker.close()
        deadline = time.monotonic() + _END_SECONDS
        for worker in self._workers:
            worker.end(deadline)


class _Worker:
    """One process and the connection to it."""

    def __init__(self, advance: Callable[[int], object]) -> None:
        if not sys.executable:
            raise WorkerError(
                "no Python interpreter is known that worker processes could run: sys.executable is "
                "empty. Set it, or give workers=0."
            )
        self._advance = advance
        self._advanced = 0
        self.unit: Unit | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            self.connection = Connection(ours.detach())
            number = theirs.fileno()
            try:
                # What a unit prints must not get in between what the caller prints.
                self._process = subprocess.Popen(  # noqa: S603 (this very interpreter)
                    [sys.executable, "-c", _PROGRAM, str(number), json.dumps(sys.path)],
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    pass_fds=[number],
                )
            except OSError as why:
                self.connection.close()
                raise WorkerError(f"a worker process could not be started: {why}.") from why

    def begin(self, unit: Unit) -> None:
        try:
            message = pickle.dumps(unit)
        except Exception as why:
            raise OptionError(
                f"{unit} cannot be sent to worker processes: {why}. Give workers=0"
            ) from why
        self.unit, self._advanced = unit, 0
        # Whoever died in the meantime is told of when it is heard.
        with suppress(OSError):
            self.connection.send_bytes(message)

    def hear(self) -> Advance | Done:
        """Return what it says; how far it is, is passed on."""
        message: Advance | Done = pickle.loads(self.connection.recv_bytes())  # noqa: S301 (our own worker's)
        assert self.unit is not None  # noqa: S101 (only those who have one are heard)
        if isinstance(message, Advance):
            self._advanced += message.amount
            self._advance(message.amount)
        elif message.failure is None:
            self._advance(self.unit.size - self._advanced)
        return message

    def death(self) -> str:
        """Say how it died, and take back what it had done."""
        self._advance(-self._advanced)
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return f"worker process {self._process.pid} does not answer any more."
        if code >= 0:
            return f"worker process {self._process.pid} ended with exit code {code}."
        why = "; the machine may be out of memory" if code == -signal.SIGKILL else ""
        name = signal.Signals(-code).name
        return f"worker process {self._process.pid} was killed by {name}{why}."

    def close(self) -> None:
        """Tell it that nothing more will come; it ends at once, whatever it does."""
        # To close our end would not do: a process that was forked since has a copy of it.
        with suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def end(self, deadline: float) -> None:
        """Wait until it ended; kill it if it does not."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def shares(total: int, borders: Sequence[int], least: int) -> list[tuple[int, int]]:
    """Cut `[0, total)` at some of the ascending borders into ranges of at least `least` each.

    Only the last may be shorter.

    >>> shares(10, [0, 1, 4, 5, 9, 10], 4)
    [(0, 4), (4, 9), (9, 10)]
    """
    ranges, start = [], 0
    for border in [*borders, total]:
        if start < border < total and border - start >= least:
            ranges.append((start, border))
            start = border
    return [*ranges, (start, total)] if start < total else ranges
