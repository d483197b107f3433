"""The pytest plugin: a test that leaves a process, a thread or a descriptor behind fails.

What there is after a test and its fixtures is compared with what there was before it. Fixtures of
wider scope, such as servers, are not of the test that asks for them first.
"""

from __future__ import annotations

import builtins
import gc
import io
import os
import socket
import threading
import time
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pyarrow import csv

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

PATIENCE = 30.0
"""Seconds that a process or thread has to end, which was told to."""
_PAUSE = 0.01
_THREADS = {
    "fsspecIO",  # fsspec has one event loop for all its file systems.
    "tqdm_monitor",  # tqdm has one thread that looks after all its bars.
}
"""Threads of libraries that serve the whole process."""


class Held(NamedTuple):
    """What this process holds at a moment, by names that no other has."""

    processes: set[str]
    threads: set[str]
    descriptors: set[str]

    @classmethod
    def now(cls) -> Held:
        threads = threading.enumerate()
        # Threads without Python, as those of Arrow, start no process.
        processes = {child for one in threads for child in _children(os.getpid(), one.native_id)}
        names = {f"{one.name} ({one.native_id})" for one in threads if not _is_of_library(one)}
        return cls(processes, names, set(_descriptors()))

    def without(self, *others: Held) -> Held:
        """Return what is here, and in none of the others."""
        each = zip(self, *others, strict=True)
        return Held(*(mine.difference(*theirs) for mine, *theirs in each))


def _is_of_library(thread: threading.Thread) -> bool:
    """Whether a thread serves the whole process, or is one of Arrow's that has called Python."""
    return thread.name in _THREADS or isinstance(thread, threading._DummyThread)  # noqa: SLF001


def _children(process: int, thread: int | None) -> Iterator[str]:
    """Yield the processes that a thread of a process started, with all below them."""
    try:
        with open(f"/proc/{process}/task/{thread}/children", "rb", 0) as file:  # noqa: PTH123
            children = file.read().split()
    except OSError:  # It ended, or this is no Linux.
        return
    for child in map(int, children):
        yield str(child)
        yield from _children(child, child)


def _descriptors() -> Iterator[str]:
    # Twice as fast as with `Path`, and this runs 22,000 times.
    for number in os.listdir("/dev/fd"):  # noqa: PTH208
        with suppress(OSError):  # The one that lists them.
            yield f"{number} of {os.readlink(f'/dev/fd/{number}')}"  # noqa: PTH115


def _stay() -> Held:
    """Return what multiprocessing, Arrow and clients keep for the whole process."""
    server, tracker = forkserver._forkserver, resource_tracker._resource_tracker  # noqa: SLF001
    ours = {server._forkserver_alive_fd, tracker._fd}  # noqa: SLF001
    return Held(
        {str(server._forkserver_pid), str(tracker._pid)},  # noqa: SLF001
        set(),
        {one for one in _descriptors() if _is_of_the_process(*one.split(" of ", 1), ours)},
    )


def _is_of_the_process(number: str, target: str, ours: set[int | None]) -> bool:
    if target.startswith("anon_inode:"):  # The runtimes of obstore and polars wait with these.
        return True
    if target.endswith(".zip") or target.startswith(tuple(_wider_folders)):
        return True  # The clients of storage, which a process keeps, have archives open.
    if target.startswith("socket:"):  # The clients of storage keep connections for a while.
        with suppress(OSError), socket.socket(fileno=os.dup(int(number))) as copy:
            return copy.family in (socket.AF_INET, socket.AF_INET6)
    return int(number) in ours


# The first call makes a pipe, for the whole process, by which a signal would end Arrow's work.
csv.read_csv(io.BytesIO(b"a\n1\n"))


def _folders_in(base: Path | None) -> set[str]:
    return set() if base is None else {f"{base}/{name}/" for name in os.listdir(base)}  # noqa: PTH208


_wider: list[Held] = []
"""What fixtures of wider scope made."""
_wider_folders: list[str] = []
"""Their folders: a dataset in one of them opens a file when a test first reads it."""
_before = pytest.StashKey[tuple[int, Held]]()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    base: Path | None = None
    if "tmp_path_factory" in fixturedef.argnames:
        base = request.getfixturevalue("tmp_path_factory").getbasetemp()
    before, folders = Held.now(), _folders_in(base)
    try:
        return (yield)
    finally:
        _wider.append(Held.now().without(before))
        _wider_folders.extend(_folders_in(base) - folders)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    item.stash[_before] = item.session.testsfailed, Held.now()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    yield
    failed, before = item.stash[_before]
    if item.session.testsfailed > failed:
        return  # Its traceback holds its frame, with all that is in it.
    if isinstance(item, pytest.Function | pytest.DoctestItem):
        item.funcargs.clear()  # Pytest does so next.
    if isinstance(item, pytest.DoctestItem):
        item.dtest.globs.clear()
        vars(builtins).pop("_", None)  # The value that an example showed last.
    if left := left_since(before):
        pytest.fail(f"left behind: {', '.join(left)}", pytrace=False)


def left_since(before: Held) -> list[str]:
    """Return what is here and was not before, and does not end by itself."""
    if not any(Held.now().without(before)):
        return []

    def present() -> Held:
        return Held.now().without(before, *_wider, _stay())

    deadline = time.monotonic() + PATIENCE
    while any(present()[:2]) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    # Files may be held by a traceback that `pytest.raises` keeps, which is part of a cycle. No
    # process or thread may wait for the garbage collector.
    processes, threads, descriptors = present()
    for generation in (1, 2) if descriptors else ():
        if descriptors:
            gc.collect(generation)
            descriptors = present().descriptors
    return [
        *(
            f"process {one} ({command})"
            for one in sorted(processes)
            if (command := _command(one)) is not None
        ),
        *(f"thread {one}" for one in sorted(threads)),
        *(f"descriptor {one}" for one in sorted(descriptors)),
    ]


def _command(process: str) -> str | None:
    """Return the command of a process; None if it has ended by now."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8").replace("\0", " ")[:200]
    return None
