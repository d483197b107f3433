"""One builder among many processes of this machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import IndexTimeoutError
from penstock.index._fingerprint import digest
from penstock.storage import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PAUSE = 0.05


@contextmanager
def only_builder(
    folder: str, timeout: float, is_there: Callable[[], bool] = lambda: False
) -> Iterator[bool]:
    """Hold the right to build an index in a folder; yields False when another just built it.

    The lock lies under the cache directory, so that data that may not be written to needs none.
    It ends with its process, however that ends. Between machines the first rename wins.
    """
    name = f"{digest(folder)}.lock"
    try:
        descriptor = _opened(cache_directory() / "locks", name)
    except OSError:  # A cache that may not be written to; the index may lie elsewhere.
        descriptor = _opened(Path(tempfile.gettempdir()) / f"penstock-locks-{os.getuid()}", name)
    try:
        deadline = time.monotonic() + timeout
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                raise IndexTimeoutError(
                    f"another process has been building the index in {folder} for {timeout:,.0f} s "
                    "and has not finished. Wait for it, or build the index once beforehand: "
                    "penstock index PATH",
                    path=folder,
                )
            time.sleep(_PAUSE)
        yield not is_there()
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # A process forked meanwhile holds a copy.
        os.close(descriptor)


def _opened(folder: Path, name: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
