"""Programs as people write, start and end them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.work import run_units
from penstock.work._process import end_all, fresh_worker, interrupts_held
from penstock.work._worker import Ready
from tests.faults.child import ROOT, Child, run
from tests.loading.processes import descendants, still_there
from tests.work import work_programs
from tests.work.units import Writing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

UNITS = """
from tests.work.units import Telling, Writing
"""
SCRIPT = f"""
import sys
sys.path.append({str(ROOT)!r})
print("once")
SECRET = 7
from penstock.work import run_units
from own_units import Telling, Writing
run_units([Telling(sys.argv[-1], "a"), Writing(sys.argv[-1], "b")], workers=2)
print("done")
"""
OWN_UNIT = f"""
import sys
sys.path.append({str(ROOT)!r})
from penstock.work import run_units
from tests.work.units import Writing
class Mine(Writing):
    pass
run_units([Mine(sys.argv[-1], "a")], workers=WORKERS)
"""


def python(
    arguments: Sequence[object], folder: Path, **options: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize("way", ["a file", "stdin", "-c", "-O"])
def test_a_program_without_a_guard_is_run_once_and_its_output_is_its_own(
    way: str, tmp_path: Path
) -> None:
    (tmp_path / "own_units.py").write_text(UNITS)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    if way == "stdin":
        done = python(["-", tmp_path], tmp_path, input=SCRIPT)
    elif way == "-c":
        done = python(["-c", SCRIPT, tmp_path], tmp_path)
    else:
        options = ["-O"] if way == "-O" else []
        done = python([*options, script, tmp_path], tmp_path)
    assert (done.returncode, done.stdout) == (0, "once\ndone\n")
    told = sorted(done.stderr.splitlines())
    assert told == ["from a unit", "from below", "main=None", f"optimize={int(way == '-O')}"]


def test_modules_of_the_working_directory_do_not_stand_in_for_pythons_own(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for name in ("json", "pickle", "socket", "multiprocessing", "struct"):
        (tmp_path / "elsewhere" / f"{name}.py").write_text("raise RuntimeError")
    (tmp_path / "program" / "own_units.py").write_text(UNITS)
    (tmp_path / "program" / "script.py").write_text(SCRIPT)
    done = python([tmp_path / "program" / "script.py", tmp_path], tmp_path / "elsewhere")
    assert (done.returncode, done.stdout) == (0, "once\ndone\n")


def test_a_unit_that_only_the_script_knows_is_refused_with_the_remedy(tmp_path: Path) -> None:
    done = python(["-c", OWN_UNIT.replace("WORKERS", "1"), tmp_path], tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert "WorkerError: a worker process cannot load its work: Can't get attribute 'Mine'" in last
    assert "module that can be imported, or give workers=0." in last
    assert python(["-c", OWN_UNIT.replace("WORKERS", "0"), tmp_path], tmp_path).returncode == 0


@pytest.mark.parametrize("way", [work_programs.go_on, work_programs.go_on_beside_a_fork])
def test_no_worker_outlives_a_caller_that_is_killed(
    way: Callable[[str], str], tmp_path: Path
) -> None:
    with Child(way, str(tmp_path)) as program:
        assert program.hear() == "going"
        workers = [
            each
            for each in descendants(program.pid)
            if each.pid in {int(path.read_text()) for path in tmp_path.glob("*.tries")}
        ]
        assert len(workers) == 2
        program.kill()
        assert still_there(workers) == []
    assert not list(tmp_path.glob("*.done"))


def test_an_interrupt_ends_the_workers_and_is_the_callers(tmp_path: Path) -> None:
    with Child(work_programs.go_on, str(tmp_path)) as program:
        assert program.hear() == "going"
        os.killpg(program.pid, signal.SIGINT)  # Ctrl-C reaches all processes of a terminal.
        assert program.result() == "interrupted, 0 left"


def test_an_interrupt_does_not_end_a_worker_that_only_begins() -> None:
    with interrupts_held():
        worker = fresh_worker()
    os.kill(worker.pid, signal.SIGINT)
    try:
        while not worker.connection.poll(1):
            assert not worker.has_ended()
        assert worker.hear() == Ready()
        os.kill(worker.pid, signal.SIGINT)
        time.sleep(0.05)
        assert not worker.has_ended()
    finally:
        end_all([worker])
    assert worker.has_ended()


def test_nothing_is_left_open_or_undead(tmp_path: Path) -> None:
    found = run(work_programs.leftovers, str(tmp_path))
    assert found.pop("ended processes") == []
    assert len(found) == 3
    assert all(before == after for before, after in found.values())


def test_units_run_among_many_open_files_and_say_when_no_more_can_be(tmp_path: Path) -> None:
    *done, error = run(work_programs.among_many_files, str(tmp_path))
    assert done == ["a.done", "b.done"]
    assert "could not be started: " in error
    assert "Too many open files. Give fewer workers, or workers=0." in error


def test_units_run_in_a_fork_and_in_a_daemon(tmp_path: Path) -> None:
    assert run(work_programs.in_children, str(tmp_path)) == [0, 0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{x}.done" for x in "abcde"]


def test_however_a_fork_leaves_the_work_of_its_parent_the_workers_go_on(tmp_path: Path) -> None:
    codes = run(work_programs.in_children_that_leave, str(tmp_path))
    assert codes == {"exit": 7, "raise": 8, "go on": 9}
    # None of the units was begun twice, which a worker that ended would cost.
    assert [len((tmp_path / f"{x}.done").read_text().split()) for x in "ab"] == [1, 1]


@pytest.mark.parametrize(
    ("program", "closed"),
    [
        ("without_standard_streams", ""),
        ("with_what_there_is", "<&- >&- 2>&-"),
        ("with_what_there_is", "2>&-"),
    ],
)
def test_units_run_without_standard_streams(program: str, closed: str, tmp_path: Path) -> None:
    call = [sys.executable, "-m", "tests.work.work_programs", program]
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *call, str(tmp_path)], cwd=ROOT, check=False
    )
    assert ended.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.done", "b.done"]


def test_units_run_where_standard_error_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = Writing(str(tmp_path), "a")
    monkeypatch.setattr(sys, "stderr", None)
    run_units([unit], workers=1)
    monkeypatch.setattr(sys, "__stderr__", None)
    run_units([Writing(str(tmp_path), "b")], workers=1)
    assert unit.is_done()
