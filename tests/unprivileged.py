"""What a user may do who is not root, also where the tests run as root."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
_NOBODY = 65534


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """Make a folder that every user can reach; pytest's own are for one user only."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_nobody(call: Callable[[], T]) -> T:
    """Return what a call gives in a forked process without root's rights.

    What it imports must be imported before: another user may not reach the interpreter's files.
    """
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, context, initializer=_become_nobody) as process:
        return process.submit(call).result(timeout=60)


def _become_nobody() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
