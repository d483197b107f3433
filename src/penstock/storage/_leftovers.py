"""What killed writers and builders left in a directory, and away with it.

Files are drafts and claims (`_drafts.py`), folders are hidden ones (`_folders.py`). All of them
stay while a process holds their lock.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.storage._drafts import list_drafts, remove_draft
from penstock.storage._folders import hidden_beside, hidden_of
from penstock.storage._locks import Holder, holder_of
from penstock.storage._store import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

BUILDING = ".penstock-building-"
"""Begins the name of a folder with finished parts of columns."""
COLUMNS_LOCK = ".lock"
"""In a folder of columns: held by the only process that changes them."""
_OF_COLUMNS = re.compile(
    rf"{re.escape(BUILDING)}[0-9a-f-]+|\.[0-9a-f]{{16}}\.penstock-column-(tmp|old)"
)


class Leftover(NamedTuple):
    """A file or a folder on its way to its name, or what is left of one."""

    entry: Entry
    writer: Holder


def drafts_in(directory: str) -> list[Leftover]:
    """Return the drafts and claims in a local directory."""
    return [
        Leftover(entry, "unknown" if gone is None else "gone" if gone else "at work")
        for entry, gone in sorted(list_drafts(directory), key=lambda found: found[0].name)
    ]


def hidden_folders_in(directory: str) -> list[Leftover]:
    """Return the hidden folders of builders in a local directory."""
    with suppress(OSError):
        found = [path for path in sorted(Path(directory).iterdir()) if is_hidden_folder(path)]
        return [_leftover(path) for path in found]
    return []


def is_hidden_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path is, by its name, a folder on its way, or one that was replaced; no link is.

    A folder that was put aside and has no other in its place is neither: it is to be brought back.
    """
    place = Path(path)
    if place.name[:1] != "." or place.is_symlink() or not place.is_dir():
        return False
    if (name := hidden_of(place.name, "old")) is not None:
        return os.path.lexists(place.with_name(name))
    return bool(hidden_of(place.name, "tmp") or is_of_columns(place.name))


def is_of_columns(name: str) -> bool:
    """Whether a name is that of a hidden folder of columns."""
    return _OF_COLUMNS.fullmatch(name) is not None


def has_builder(folder: str) -> bool:
    """Whether a living process is about to put a folder under this name."""
    for found in hidden_beside(folder, "tmp"):
        with holder_of(found) as holder:
            if holder != "gone" and os.path.exists(found):
                return True
    return False


def remove_dead(
    path: str, undo: Callable[[Path], bool] = lambda _: True, *, undecided: bool = False
) -> bool:
    """Remove a file or a folder whose writer is gone; return whether that was so.

    With `undecided` also where that cannot be known. `undo` takes back what the builder of a
    folder had begun to publish, and says whether the folder may go.
    """
    place = Path(path)
    if not is_hidden_folder(place):
        return remove_draft(path, undecided=undecided)
    with holder_of(_lock_of(place)) as holder:
        is_going = holder == "gone" or (holder == "unknown" and undecided)
        if is_going and hidden_of(place.name, "tmp"):
            is_going = undo(place)
        if is_going:
            with suppress(FileNotFoundError):  # Another process removes it, too.
                shutil.rmtree(path)
        return is_going and not os.path.lexists(path)


def _leftover(path: Path) -> Leftover:
    """Return a folder with its bytes, the last change of anything in it, and its builder."""
    size, modified = 0, 0.0
    # Neither fails where a folder is removed while it looks, nor follows links.
    for folder, _, files in os.walk(path):
        for place in (folder, *(f"{folder}/{name}" for name in files)):
            with suppress(OSError):
                status = os.lstat(place)
                size += 0 if place is folder else status.st_size
                modified = max(modified, status.st_mtime)
    with holder_of(_lock_of(path)) as holder:
        return Leftover(Entry(str(path), size, modified), holder)


def _lock_of(path: Path) -> str:
    """Return what the builder of a hidden folder locks."""
    if is_of_columns(path.name):
        return str(path.with_name(COLUMNS_LOCK))
    # That of a folder that was put aside is not known by it.
    return str(path) if hidden_of(path.name, "tmp") else ""
