"""Units are done, each once, by as many processes as were asked for, and counted."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import OptionError, WorkerError
from penstock.work import run_units
from tests.loading.processes import descendants
from tests.work.unit_contract import UnitContract
from tests.work.units import (
    Counting,
    Deadly,
    DyingLate,
    Failing,
    FailingElsewhere,
    Leaving,
    Meeting,
    OddError,
    Survived,
    Unsendable,
    Waiting,
    Writing,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.work import Unit

HERE_AND_THERE = pytest.mark.parametrize("workers", [0, 1, 2])


class TestWriting(UnitContract):
    @pytest.fixture
    def unit(self, tmp_path: Path) -> Unit:
        return Writing(str(tmp_path), "a")

    def published(self, unit: Unit) -> object:
        assert isinstance(unit, Writing)
        return unit.output.name, len(unit.output.read_text().splitlines())


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path)


def doers(units: list[Writing]) -> list[list[int]]:
    """Return the processes that worked for each unit."""
    return [[int(line) for line in unit.output.read_text().splitlines()] for unit in units]


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@HERE_AND_THERE
def test_every_unit_is_done_once_and_progress_sums_to_the_total(workers: int, folder: str) -> None:
    units = [Writing(folder, f"u{n}", n) for n in range(9)]
    told: list[int] = []
    run_units(units, workers=workers, advance=told.append)
    found = doers(units)
    assert [len(each) for each in found] == [1] * 9
    assert sum(told) == sum(range(9))
    pids = {pid for each in found for pid in each}
    assert (os.getpid() in pids) == (workers == 0)
    assert len(pids) <= max(1, workers)


@HERE_AND_THERE
def test_what_was_done_before_is_skipped_and_counted_at_once(workers: int, folder: str) -> None:
    units = [Writing(folder, f"u{n}") for n in range(4)]
    for unit in units[1::2]:
        unit.output.write_text("earlier")
    told: list[int] = []
    run_units(iter(units), workers=workers, advance=told.append)
    assert told[:2] == [10, 10]
    assert sum(told) == 40
    assert [unit.output.read_text() for unit in units[1::2]] == ["earlier"] * 2
    told.clear()
    run_units(units, workers=workers, advance=told.append)
    assert told == [10] * 4


@pytest.mark.parametrize("workers", [None, 0, 3])
def test_no_units_need_nobody(workers: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")  # Nobody could be started.
    run_units([], workers=workers)


def test_there_are_no_more_workers_than_units(folder: str) -> None:
    before = len(descendants(os.getpid()))
    counts: list[int] = []

    def count(_: int) -> None:
        counts.append(len(descendants(os.getpid())) - before)
        Path(folder, "go").touch()

    run_units([Waiting(folder, "a"), Waiting(folder, "b")], workers=50, advance=count)
    assert counts[0] == 2


@pytest.mark.parametrize("workers", [-1, 1.5, "2", True])
def test_a_number_of_workers_that_cannot_be_is_refused(workers: Any, folder: str) -> None:
    with pytest.raises(OptionError, match=f"workers={workers!r}: expected a whole number, 0"):
        run_units([Writing(folder, "a")], workers=workers)
    assert not Writing(folder, "a").is_done()


def test_a_unit_may_count_everything_it_does(folder: str) -> None:
    told: list[int] = []
    run_units([Counting(folder, "a", 100_000)], workers=1, advance=told.append)
    assert sum(told) == 100_000
    assert len(told) < 1000


def test_units_run_from_a_thread(folder: str) -> None:
    units = [Writing(folder, f"u{n}") for n in range(3)]
    told: list[str] = []
    thread = threading.Thread(
        target=run_units,
        args=[units],
        kwargs={"workers": 2, "advance": lambda _: told.append(threading.current_thread().name)},
        name="another",
    )
    thread.start()
    thread.join()
    assert all(unit.is_done() for unit in units)
    assert set(told) == {"another"}


# What goes wrong in a unit.


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_is_raised_as_it_is_and_ends_the_others(workers: int, folder: str) -> None:
    units = [Failing(folder, "bad"), *(Waiting(folder, f"u{n}") for n in range(3))]
    before = descendants(os.getpid())
    with pytest.raises(OddError) as raised:
        run_units(units, workers=workers)
    assert str(raised.value) == "too odd"
    assert raised.value.__notes__ == ["In truth, a note", f"In bad of {folder}."]
    shown = "".join(traceback.format_exception(raised.value))
    assert "in odd" in shown
    assert "KeyError: 'missing'" in shown
    assert descendants(os.getpid()) == before
    assert not any(unit.is_done() for unit in units)


def test_an_error_of_the_callers_own_ends_the_workers(folder: str) -> None:
    before = descendants(os.getpid())

    def give_up(_: int) -> None:
        raise OddError("enough")

    with pytest.raises(OddError, match="enough"):
        run_units([Waiting(folder, "a"), Waiting(folder, "b")], workers=2, advance=give_up)
    assert descendants(os.getpid()) == before


def test_a_unit_that_cannot_be_sent_is_refused_with_the_remedy(folder: str) -> None:
    unit = Unsendable(folder, "held", held=lambda: None)
    with pytest.raises(OptionError, match=r"^held of .* cannot be sent .*lambda.*workers=0\.$"):
        run_units([unit], workers=1)
    run_units([unit], workers=0)
    assert unit.is_done()


# What kills a worker.


def test_a_killed_worker_is_replaced_and_its_unit_begun_again(folder: str) -> None:
    units = [Waiting(folder, f"u{n}") for n in range(3)]
    told: list[int] = []
    thread = threading.Thread(
        target=run_units, args=[units], kwargs={"workers": 2, "advance": told.append}
    )
    thread.start()
    wait_until(units[0].begun)
    victim = units[0].begun()[0]
    wait_until(lambda: told.count(3) == 2)  # What both workers had done has arrived.
    os.kill(victim, 9)
    wait_until(lambda: len(units[0].begun()) == 2)
    Path(folder, "go").touch()
    thread.join()
    found = doers(units)
    assert found[0][0] == victim
    assert [len(each) for each in found] == [2, 1, 1]
    assert victim not in {pid for each in found for pid in each[1:]} | {*found[1], *found[2]}
    assert sum(told) == 30
    assert min(told) < 0  # What the killed one had done was taken back.


def test_a_unit_that_costs_two_workers_is_done_by_the_third(folder: str) -> None:
    units = [Deadly(folder, "hard", deaths=2), Writing(folder, "easy")]
    told: list[int] = []
    run_units(units, workers=2, advance=told.append)
    assert [len(set(each)) for each in doers(units)] == [3, 1]
    assert sum(told) == 20


@pytest.mark.parametrize(
    ("unit", "how"),
    [
        (Deadly("", "u", deaths=9), "was killed by SIGKILL; the machine may be out of memory"),
        (Deadly("", "u", deaths=9, number=11), "was killed by SIGSEGV"),
        (Deadly("", "u", deaths=9, number=40), "was killed by signal 40"),
        (Leaving("", "u", code=0), "ended with exit code 0"),
        (Leaving("", "u", code=7), "ended with exit code 7"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_a_unit_that_costs_three_workers_is_named_with_what_ended_them(
    unit: Writing, how: str, folder: str
) -> None:
    unit = replace(unit, folder=folder)
    told: list[int] = []
    with pytest.raises(WorkerError) as raised:
        run_units([unit], workers=2, advance=told.append)
    pids = unit.begun()
    assert len(set(pids)) == 3
    assert str(raised.value).startswith(
        f"worker process {pids[-1]} {how}. That happened 3 times with u of {folder}. "
    )
    assert sum(told) == 0


def test_a_worker_that_died_after_its_unit_was_done_is_not_asked_for_it_again(folder: str) -> None:
    units = [DyingLate(folder, "a"), DyingLate(folder, "b")]
    told: list[int] = []
    run_units(units, workers=1, advance=told.append)
    assert [len(each) for each in doers(units)] == [1, 1]  # type: ignore[arg-type]
    assert sum(told) == 20


def test_a_dead_worker_is_noticed_though_a_child_of_its_own_holds_on(folder: str) -> None:
    unit = Survived(folder, "a")
    run_units([unit], workers=1)
    os.kill(int(Path(folder, "child").read_text()), 9)
    assert len(doers([unit])[0]) == 2


# Workers that cannot even begin.


@pytest.mark.parametrize(
    ("interpreter", "told"),
    [
        ("", r"sys\.executable is empty\. Set it, or give workers=0\."),
        ("/nowhere/python", r"could not be started: .*/nowhere/python.*workers=0\."),
        ("/bin/false", r"exit code 1\. Like 2 others before, it had not begun yet.*workers=0\."),
    ],
    ids=["empty", "missing", "no interpreter"],
)
def test_an_interpreter_that_is_none_is_told(
    interpreter: str, told: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter)
    units = [Writing(folder, f"u{n}") for n in range(5)]
    with pytest.raises(WorkerError, match=told):
        run_units(units, workers=2)
    assert not any(unit.begun() for unit in units)


def test_workers_that_cannot_import_us_say_so(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = [place for place in sys.path if not Path(place, "penstock").exists()]
    monkeypatch.setattr(sys, "path", elsewhere)
    with pytest.raises(WorkerError, match=r"No module named 'penstock'.*workers=0") as raised:
        run_units([Writing(folder, "a")], workers=1)
    assert "Traceback" in str(raised.value.__cause__)


def test_workers_have_the_callers_path_as_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "just_made.py").write_text(
        "from tests.work.units import Writing\nclass Made(Writing):\n    pass\n"
    )
    # What is no text is no place to import from.
    monkeypatch.setattr(sys, "path", [tmp_path, str(tmp_path), *sys.path])
    module = importlib.import_module("just_made")
    unit = module.Made(str(tmp_path), "a")
    run_units([unit], workers=1)
    assert unit.is_done()
    del sys.modules["just_made"]


def test_a_caller_that_helps_works_beside_its_workers(folder: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    units = [Meeting(folder, f"{number}") for number in range(6)]
    told: list[int] = []
    run_units(units, advance=told.append, caller_helps=True)
    processes = {process for unit in units for process in doers([unit])[0]}
    assert os.getpid() in processes
    assert len(processes) >= 2
    assert sum(told) == sum(unit.size for unit in units)


def test_a_caller_that_helps_is_not_one_of_those_that_were_counted(folder: str) -> None:
    units = [Writing(folder, f"{number}") for number in range(4)]
    run_units(units, workers=1, caller_helps=True)
    (process,) = {process for unit in units for process in doers([unit])[0]}
    assert process != os.getpid()


def test_an_error_in_a_caller_that_helps_ends_the_workers(folder: str) -> None:
    units = [Failing(folder, "a"), *(Waiting(folder, f"{n}") for n in range(3))]
    before = descendants(os.getpid())  # Servers that other tests use.
    with pytest.raises(OddError, match="too odd"):
        run_units(units, caller_helps=True)
    assert not {*descendants(os.getpid())} - {*before}


def test_an_error_of_a_worker_is_not_blamed_on_the_caller(folder: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    units = [Meeting(folder, "here"), FailingElsewhere(folder, "there", os.getpid())]
    with pytest.raises(OddError) as caught:
        run_units(units, caller_helps=True)
    assert caught.value.__notes__ == ["In truth, a note", f"In there of {folder}."]
