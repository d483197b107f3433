"""Which processes are there, and what they leave behind."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_SHM = Path("/dev/shm")


class Process(NamedTuple):
    """A process that cannot be taken for a later one with the same number."""

    pid: int
    born: int
    """In clock ticks since the machine was started."""


def process(pid: int) -> Process | None:
    """Return the process of a number, if there is one."""
    found = _look(pid)
    return None if found is None else found[0]


def descendants(pid: int) -> list[Process]:
    """Return all processes that a process has started, and those that these have."""
    children: dict[int, list[Process]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (found := _look(int(entry.name))) is not None:
            each, parent, is_over = found
            if not is_over:
                children.setdefault(parent, []).append(each)
    result = []
    waiting = [pid]
    while waiting:
        more = children.get(waiting.pop(), [])
        result += more
        waiting += [each.pid for each in more]
    return result


def still_there(processes: list[Process], timeout: float = 20.0) -> list[Process]:
    """Return those that have not ended in time; a zombie has."""
    deadline = time.monotonic() + timeout
    while left := [each for each in processes if _is_alive(each)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.01)
    return []


def shared_memory() -> set[str]:
    """Return the names in shared memory."""
    return {path.name for path in _SHM.iterdir()} if _SHM.exists() else set()


def left_in_shared_memory(before: set[str], timeout: float = 10.0) -> set[str]:
    """Return the names that came since then and stay, though no living process uses them."""
    deadline = time.monotonic() + timeout
    while (left := shared_memory() - before) and (left := left - _used(left)):
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return set()


def _used(names: set[str]) -> set[str]:
    used: set[str] = set()
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = (entry / "maps").read_text()
                text += "\n".join(str(link.readlink()) for link in (entry / "fd").iterdir())
                used |= {name for name in names if f"{_SHM}/{name}" in text}
    return used


def _look(pid: int) -> tuple[Process, int, bool] | None:
    """Return a process, its parent, and whether it is over."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    state, parent, *rest = text.rpartition(") ")[2].split()
    return Process(pid, int(rest[17])), int(parent), state in ("Z", "X")


def _is_alive(one: Process) -> bool:
    found = _look(one.pid)
    return found is not None and found[0] == one and not found[2]
