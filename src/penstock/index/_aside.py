"""An index that a builder has put aside: for a moment, or for good where it was killed."""

from __future__ import annotations

import os
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import CorruptIndexError
from penstock.index._names import FILES, PUT_ASIDE
from penstock.index.tokens._journal import JOURNAL, journal_problem
from penstock.storage import StorageOptions, has_builder, hidden_beside, hidden_of

if TYPE_CHECKING:
    from collections.abc import Callable

_GAP_SECONDS = 3.0
"""For how long an index may be gone while it is replaced."""
_LOOKS = 3
"""Between two looks one builder may end and the next one begin."""
_PAUSE = 0.002


def put_aside(folder: str) -> list[str]:
    """Return where indexes lie that were put aside to be replaced by one in this folder."""
    of_tokens = [
        f"{found}/{PUT_ASIDE}"
        for found in hidden_beside(folder, "tmp")
        if os.path.lexists(f"{found}/{JOURNAL}")
    ]
    return [*old_indexes(folder), *filter(os.path.isdir, of_tokens)]


def old_indexes(folder: str) -> list[str]:
    """Return the hidden folders with an index that had this folder's name."""
    return [old for old in hidden_beside(folder, "old") if os.path.exists(f"{old}/{FILES}")]


def put_aside_in(directory: str) -> list[tuple[Path, Path]]:
    """Return indexes in a directory that killed builders put aside, each with its place.

    Not those in the folder of a builder of tokens: its journal brings them back.
    """
    with suppress(OSError):
        names = {hidden_of(path.name, "old") for path in Path(directory).iterdir()}
        finals = sorted(Path(directory) / name for name in names if name is not None)
        return [
            (Path(aside[0]), final)
            for final in finals
            if not os.path.lexists(final) and not has_builder(str(final))
            if (aside := old_indexes(str(final)))
        ]
    return []


def appears(folder: str, is_there: Callable[[], bool]) -> bool:
    """Whether there is an index; waits for a living builder that put one aside just now."""
    deadline, looks = time.monotonic() + _GAP_SECONDS, 0
    while not is_there():
        if not put_aside(folder) or looks == _LOOKS or time.monotonic() > deadline:
            return is_there()
        looks = 0 if has_builder(folder) else looks + 1
        time.sleep(_PAUSE)
    return True


def refuse_put_aside(folder: str) -> None:
    """Raise where a killed builder has put an index aside; the error names the way back."""
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
