"""Private memory of processes, as the kernel counts it: files that are mapped are no part of it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_EVERY = 0.05
"""Seconds between two looks at other processes."""


def private_now(pid: int | str = "self") -> int:
    """Return the bytes in memory that no file stands behind; 0 for a process that is gone."""
    return _status(pid, "RssAnon:")


def writable_now() -> int:
    """Return the bytes of this process that the limit RLIMIT_DATA counts."""
    return _status("self", "VmData:")


def _status(pid: int | str, name: str) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    # A process that has just ended has no memory to tell of.
    words = text.partition(name)[2].split()
    return int(words[0]) * 1024 if words else 0


@contextmanager
def most_private(pids: Callable[[], Iterable[int]]) -> Iterator[list[int]]:
    """Yield a list that in the end has the private bytes of the largest process ever seen."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(_EVERY):
            most[0] = max([most[0], *map(private_now, pids())])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield most
    finally:
        ended.set()
        looking.join()
