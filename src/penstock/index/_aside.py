"""An index that a builder has put aside: for a moment, or for good where it was killed."""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import CorruptIndexError
from penstock.index._names import FILES, PUT_ASIDE, hidden_beside
from penstock.index.tokens._journal import JOURNAL, journal_problem
from penstock.storage import StorageOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GAP_SECONDS = 3.0
"""For how long an index may be gone while it is replaced."""
_LOOKS = 3
"""Between two looks one builder may end and the next one begin."""
_PAUSE = 0.002


def put_aside(folder: str) -> list[str]:
    """Return where indexes lie that were put aside to be replaced by one in this folder."""
    old = [found for found in hidden_beside(folder, "old") if os.path.exists(f"{found}/{FILES}")]
    of_tokens = [
        f"{found}/{PUT_ASIDE}"
        for found in hidden_beside(folder, "tmp")
        if os.path.lexists(f"{found}/{JOURNAL}")
    ]
    return [*old, *filter(os.path.isdir, of_tokens)]


def has_builder(folder: str) -> bool:
    """Whether a living process is about to put an index into a folder."""
    for found in hidden_beside(folder, "tmp"):
        with held_if_dead(Path(found)) as is_dead:
            if not is_dead and os.path.exists(found):
                return True
    return False


def appears(folder: str, is_there: Callable[[], bool]) -> bool:
    """Whether there is an index; waits for a living builder that has just put one aside."""
    deadline, looks = time.monotonic() + _GAP_SECONDS, 0
    while not is_there():
        if not put_aside(folder) or looks == _LOOKS or time.monotonic() > deadline:
            return is_there()
        looks = 0 if has_builder(folder) else looks + 1
        time.sleep(_PAUSE)
    return True


def refuse_put_aside(folder: str) -> None:
    """Raise where a killed builder has put an index aside; what brings it back is named."""
    aside = [] if os.path.lexists(folder) else put_aside(folder)
    if not aside or has_builder(folder):
        return
    around = os.path.dirname(aside[0])
    remedy = f"Bring it back: penstock clean {shlex.quote(os.path.dirname(folder))}"
    if os.path.basename(aside[0]) == PUT_ASIDE:
        remedy = journal_problem(Path(around), StorageOptions()) or remedy
    raise CorruptIndexError(
        f"there is no index in {folder}: a builder that was killed has put it aside, as "
        f"{aside[0]}. {remedy}",
        path=folder,
    )


@contextmanager
def held_if_dead(folder: Path) -> Iterator[bool]:
    """Say whether a folder's builder is gone; if so, no other process has it meanwhile."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # It vanished, or is no folder.
        yield False
        return
    try:
        is_dead = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # Held by a living builder, or locks are missing here.
            is_dead = False
        yield is_dead
    finally:
        os.close(descriptor)
