"""Runs units in fresh processes of this machine, or in the caller itself."""

from __future__ import annotations

import os
import pickle
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from penstock._cpus import usable_cpus
from penstock.errors import OptionError, PenstockError, WorkerError
from penstock.order import whole_number
from penstock.storage import refuse_inherited
from penstock.work._failures import WorkerTraceback, error_of
from penstock.work._process import end_all, fresh_worker, interrupts_held
from penstock.work._unit import are_done
from penstock.work._worker import Advance, UnitDone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.work._process import WorkerProcess
    from penstock.work._unit import Unit

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
        caller_helps: Let the caller stand in for one of the default processes, and begin while
            they start. For work that cannot harm the caller.
    """
    limit = usable_cpus() if workers is None else whole_number("workers", workers, 0)
    waiting: deque[_Job] = deque()
    units = list(units)
    for unit, is_done in zip(units, are_done(units), strict=True):
        if is_done:
            advance(unit.size)
        else:
            waiting.append(_Job(unit, advance))
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
    advanced: int = 0
    deaths: int = 0

    def run(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Run it here, and call `meanwhile` whenever it advances."""
        of_others: list[BaseException] = []

        def advance(amount: int) -> None:
            self.advance(amount)
            try:
                meanwhile()
            except BaseException as error:
                of_others.append(error)
                raise

        try:
            self.unit.run(advance)
        except Exception as error:
            if error not in of_others:
                self.add_name(error)
            raise
        self.finish()

    def advance(self, amount: int) -> None:
        self.advanced += amount
        self.report(amount)

    def finish(self) -> None:
        self.advance(self.unit.size - self.advanced)

    def take_back(self) -> None:
        self.advance(-self.advanced)

    def add_name(self, error: BaseException) -> None:
        # Errors of Penstock name file and record by themselves.
        if not isinstance(error, PenstockError):
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
        self._starting: list[WorkerProcess] = []
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, _Job] = {}
        self._false_starts = 0

    @property
    def _all(self) -> list[WorkerProcess]:
        return [*self._starting, *self._idle, *self._busy]

    def work(self, count: int, *, caller_helps: bool) -> None:
        try:
            for _ in range(count):
                self._start()
            while self._waiting or self._busy:
                self._go_on(0.0 if caller_helps and self._waiting else _LOOK_AROUND)
                if caller_helps and self._waiting:
                    self._waiting.popleft().run(self._go_on)
        finally:
            end_all(self._all)

    def _go_on(self, seconds: float = 0.0) -> None:
        """Handle messages for so long, and give units to idle workers."""
        refuse_inherited(
            self._process, "units of work ran", "Begin the work in the forked process itself."
        )
        while self._waiting and self._idle:
            self._give(self._idle.pop(), self._waiting.popleft())
        heard = wait([worker.connection for worker in self._all], seconds)
        for worker in self._all:
            if worker.connection in heard or (seconds and worker.has_ended()):
                self._hear(worker)

    def _start(self) -> None:
        # Until the worker is in the list of those to end.
        with interrupts_held():
            self._starting.append(fresh_worker())

    def _give(self, worker: WorkerProcess, job: _Job) -> None:
        self._busy[worker] = job
        worker.send(job.pickled())

    def _hear(self, worker: WorkerProcess) -> None:
        try:
            message = worker.hear()
        except (EOFError, OSError):
            self._bury(worker)
            return
        if isinstance(message, Advance):
            if (job := self._busy.get(worker)) is not None:
                job.advance(message.amount)
        elif isinstance(message, UnitDone):
            self._finish(worker, message)
        elif isinstance(message, str):
            raise _unable(message)
        else:
            self._starting.remove(worker)
            self._idle.append(worker)
            self._false_starts = 0

    def _finish(self, worker: WorkerProcess, done: UnitDone) -> None:
        job = self._busy.pop(worker)
        self._idle.append(worker)
        if done.failure is not None:
            error = error_of(done.failure)
            job.add_name(error)
            raise error
        job.finish()

    def _bury(self, worker: WorkerProcess) -> None:
        death = worker.death()
        job = self._busy.pop(worker, None)
        if job is not None:
            self._try_again(job, death)
        elif worker in self._idle:
            self._idle.remove(worker)
        else:
            self._starting.remove(worker)
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
        job.take_back()
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
