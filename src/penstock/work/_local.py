"""Runs units in fresh processes of this machine, or in the caller itself."""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from penstock._cpus import usable_cpus
from penstock.errors import OptionError, PenstockError, WorkerError
from penstock.order import whole_number
from penstock.storage import refuse_inherited
from penstock.work._failures import WorkerTraceback, error_of
from penstock.work._process import WorkerProcess, end_all, fresh_worker, interrupts_held
from penstock.work._unit import Unit, are_done
from penstock.work._worker import Advance, UnitDone

_TRIES = 3
"""How many workers may die with the same unit, or in a row before they begin, until the run
fails."""
_LOOK_AROUND = 1.0
"""Seconds after which silent workers are checked for their death."""


def run_units(
    units: Iterable[Unit],
    *,
    workers: int | None = None,
    advance: Callable[[int], object] = lambda _: None,
    done: Callable[[Any], object] = lambda _: None,
    caller_helps: bool = False,
) -> None:
    """Run all units that are not done yet; return when every one of them is.

    Fresh processes run them; they do not import the caller's script, so it needs no guard, and
    they end with the caller. A worker that is killed is replaced, and its unit starts again. The
    first error of a unit ends the run and is raised here.

    Args:
        units: The work, in the order in which it is begun.
        workers: How many processes; by default one a processor, 0 for the caller itself.
        advance: Called in the caller's thread with the amount that was done since: at once with
            what earlier runs did, and with a negative amount where a unit starts again.
        done: Called in the caller's thread with each unit when it is done, also by an earlier run.
        caller_helps: Let the caller stand in for one of the default processes, and begin while
            they start. For work that cannot harm the caller.
    """
    limit = usable_cpus() if workers is None else whole_number("workers", workers, 0)
    waiting: deque[_Job] = deque()
    units = list(units)
    for unit, is_done in zip(units, are_done(units), strict=True):
        job = _Job(unit, advance, done)
        if is_done:
            job.finish()
        else:
            waiting.append(job)
    helps = caller_helps and workers is None
    count = min(len(waiting), limit) - helps
    if count > 0:
        _Crew(waiting).work(count, caller_helps=helps)
        return
    for job in waiting:
        job.run()


@dataclass(eq=False)
class _Job:
    """A unit, and its progress."""

    unit: Unit
    report: Callable[[int], object]
    done: Callable[[Any], object]
    advanced: int = 0
    deaths: int = 0
    has_own_error: bool = True
    """False if what the caller does meanwhile failed: that error is of another unit."""

    def run(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Run it here, and call `meanwhile` whenever it advances."""

        def advance(amount: int) -> None:
            self.advance(amount)
            self.has_own_error = False
            meanwhile()
            self.has_own_error = True

        try:
            self.unit.run(advance)
        except Exception as error:
            self.add_name(error)
            raise
        self.finish()

    def advance(self, amount: int) -> None:
        self.advanced += amount
        self.report(amount)

    def finish(self) -> None:
        self.advance(self.unit.size - self.advanced)
        self.done(self.unit)

    def add_name(self, error: BaseException) -> None:
        # Errors of Penstock name file and record by themselves.
        if self.has_own_error and not isinstance(error, PenstockError):
            error.add_note(f"In {self.unit}.")

    def pickled(self) -> bytes:
        try:
            return pickle.dumps(self.unit)
        except Exception as why:
            raise OptionError(
                f"{self.unit} cannot be sent to worker processes: {why}. Give workers=0."
            ) from why


class _Crew:
    """Workers, the unit that each of them has, and the units left."""

    def __init__(self, waiting: deque[_Job]) -> None:
        self._process = os.getpid()
        self._waiting = waiting
        self._jobs: dict[WorkerProcess, _Job | None] = {}
        self._ready: list[WorkerProcess] = []
        """Those that take units, or have one."""
        self._false_starts = 0

    def work(self, count: int, *, caller_helps: bool) -> None:
        try:
            for _ in range(count):
                self._start()
            while self._waiting or any(self._jobs.values()):
                self._go_on(0.0 if caller_helps and self._waiting else _LOOK_AROUND)
                if caller_helps and self._waiting:
                    self._waiting.popleft().run(self._go_on)
        finally:
            end_all([*self._jobs])

    def _go_on(self, seconds: float = 0.0) -> None:
        """Handle messages for so long, and give units to idle workers."""
        self._refuse_fork()
        for worker in self._ready:
            if self._waiting and self._jobs[worker] is None:
                job = self._jobs[worker] = self._waiting.popleft()
                worker.send(job.pickled())
        heard = wait([worker.connection for worker in self._jobs], seconds)
        for worker in [*self._jobs]:
            if worker.connection in heard or (seconds and worker.has_ended()):
                self._refuse_fork()  # It would take the message from the parent.
                self._hear(worker)

    def _refuse_fork(self) -> None:
        refuse_inherited(
            self._process, "units of work ran", "Begin the work in the forked process itself."
        )

    def _start(self) -> None:
        # Until the worker is in the list of those to end.
        with interrupts_held():
            self._jobs[fresh_worker()] = None

    def _hear(self, worker: WorkerProcess) -> None:
        try:
            message = worker.hear()
        except (EOFError, OSError):
            self._bury(worker)
            return
        if isinstance(message, Advance):
            if (job := self._jobs[worker]) is not None:
                job.advance(message.amount)
        elif isinstance(message, UnitDone):
            job, self._jobs[worker] = self._jobs[worker], None
            assert job is not None  # noqa: S101 (it is done)
            if message.failure is not None:
                error = error_of(message.failure)
                job.add_name(error)
                raise error
            job.finish()
        elif isinstance(message, str):
            raise _unable(message)
        else:
            self._ready.append(worker)
            self._false_starts = 0

    def _bury(self, worker: WorkerProcess) -> None:
        death = worker.death()
        job = self._jobs.pop(worker)
        if worker in self._ready:
            self._ready.remove(worker)
            if job is not None:
                self._try_again(job, death)
        else:
            self._false_starts += 1
            if self._false_starts >= _TRIES:
                raise WorkerError(
                    f"{death} Like {_TRIES - 1} others before, it had not begun yet: what they "
                    "printed may say why. Repair that, or give workers=0."
                )
        if self._waiting:
            self._start()

    def _try_again(self, job: _Job, death: str) -> None:
        if job.unit.is_done():
            job.finish()
            return
        job.advance(-job.advanced)
        job.deaths += 1
        if job.deaths >= _TRIES:
            raise WorkerError(
                f"{death} That happened {_TRIES} times with {job.unit}. Give fewer workers if "
                "memory is short, or workers=0 to see what happens."
            )
        self._waiting.appendleft(job)


def _unable(trace: str) -> WorkerError:
    error = WorkerError(
        f"a worker process cannot import what it needs: {trace.strip().splitlines()[-1]}. It has "
        "the sys.path of this process, but no other import hooks. "
        "Give workers=0."
    )
    error.__cause__ = WorkerTraceback(trace)
    return error
