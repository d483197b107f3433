"""Programs that run units, each in a process of its own."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import sys
import time
from pathlib import Path

from penstock.errors import UnsafeForkError, WorkerError
from penstock.work import run_units
from tests.loading.processes import descendants
from tests.work.units import Deadly, Failing, OddError, Waiting, Writing


def go_on(folder: str) -> str:
    """Go on until somebody ends it."""
    return _go_on(folder, forks=False)


def go_on_beside_a_fork(folder: str) -> str:
    """Do the same, while another process has a copy of all that is open."""
    return _go_on(folder, forks=True)


def _go_on(folder: str, *, forks: bool) -> str:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begun: list[int] = []

    def advance(_: int) -> None:
        begun.append(1)
        if len(begun) < 2:
            return
        if forks and not os.fork():
            os.close(1)  # Somebody waits for its end.
            time.sleep(60)
            os._exit(0)
        print("going", flush=True)

    try:
        run_units([Waiting(folder, name) for name in "ab"], workers=2, advance=advance)
    except KeyboardInterrupt:
        return f"interrupted, {len(descendants(os.getpid()))} left"
    return "ended"


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def leftovers(folder: str) -> dict[str, list[int]]:
    """Return how many files were open before and after each way to end."""
    found = {}
    for name, kind, error in (
        ("well", Writing, None),
        ("after a death", Deadly, None),
        ("in an error", Failing, OddError),
    ):
        before = _open_files()
        with contextlib.suppress(error or ()):
            run_units([kind(folder, f"{name} {n}") for n in range(3)], workers=2)
        gc.collect()
        found[name] = [before, _open_files()]
    try:
        found["ended processes"] = list(os.waitpid(-1, os.WNOHANG))
    except ChildProcessError:
        found["ended processes"] = []
    return found


def among_many_files(folder: str) -> list[str]:
    """Return what became of units where many files are open, and where no more can be."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1500)]
    run_units([Writing(folder, "a"), Writing(folder, "b")], workers=2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 3, most))
    try:
        run_units([Writing(folder, "c"), Writing(folder, "d")], workers=2)
    except WorkerError as error:
        return [*sorted(path.name for path in Path(folder).iterdir()), str(error)]
    return []


def in_children(folder: str) -> list[int | None]:
    """Return the exit codes of a fork, while units run, and of a daemon, which both run units."""
    codes: list[int | None] = []

    def fork(_: int) -> None:
        if codes:
            return
        child = os.fork()
        if not child:
            run_units([Writing(folder, "c"), Writing(folder, "d")], workers=2)
            os._exit(0)
        codes.append(os.waitpid(child, 0)[1])

    run_units([Writing(folder, "a"), Writing(folder, "b")], workers=2, advance=fork)
    daemon = multiprocessing.get_context("fork").Process(
        target=run_units, args=[[Writing(folder, "e")]], kwargs={"workers": 1}, daemon=True
    )
    daemon.start()
    daemon.join()
    return [*codes, daemon.exitcode]


def in_children_that_leave(folder: str) -> dict[str, int]:
    """Fork children that leave the work of their parent in all ways; return how they ended."""
    codes: dict[str, int] = {}
    caller = os.getpid()

    def fork(_: int) -> None:
        if os.getpid() != caller or codes:
            return
        for way in ("exit", "raise", "go on"):
            child = os.fork()
            if child:
                codes[way] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            elif way == "exit":
                sys.exit(7)
            elif way == "raise":
                raise OddError
            else:
                return
        (Path(folder) / "go").touch()

    try:
        run_units([Waiting(folder, name) for name in "ab"], workers=2, advance=fork)
    except OddError:
        os._exit(8)
    except UnsafeForkError:
        os._exit(9)
    return codes


def with_what_there_is(folder: str) -> None:
    """Run units, whatever is open."""
    run_units([Deadly(folder, "a"), Writing(folder, "b")], workers=2)


def without_standard_streams(folder: str) -> None:
    """Run units where the first files that are opened get the numbers of the standard ones."""
    for number in range(3):
        os.close(number)
    with_what_there_is(folder)
    os._exit(0)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
