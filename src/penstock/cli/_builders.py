"""What killed builders of indexes and columns left: hidden folders that nobody holds any more."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from penstock.cli._paths import Leftover
from penstock.index import take_back_dead
from penstock.storage import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.storage import StorageOptions

    Writer = Literal["gone", "at work", "unknown"]

# As docs/formats.md has them.
_INDEX = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.penstock-index-(?P<state>tmp|old)", re.DOTALL)
_COLUMN = re.compile(r"\.penstock-building-[0-9a-f-]+|\.[0-9a-f]{16}\.penstock-column-(tmp|old)")
_LOCK = ".lock"
"""Beside columns: held by the only process that changes them."""


def is_builder(path: str) -> bool:
    """Whether a path is that of a folder on its way, or of one that was replaced, by its name.

    An index that was put aside and has no other in its place is neither: whoever opens the data
    next brings it back.
    """
    name = Path(path).name
    index = _INDEX.fullmatch(name)
    if index is not None and index["state"] == "old":
        return Path(path).with_name(index["name"]).exists() and Path(path).is_dir()
    return bool(index or _COLUMN.fullmatch(name)) and Path(path).is_dir()


def builders_in(directory: str) -> list[Leftover]:
    """Return the folders of builders in a directory, each with whether its builder is gone."""
    with suppress(OSError):
        hidden = sorted(str(path) for path in Path(directory).iterdir() if path.name[:1] == ".")
        return [_leftover(path) for path in hidden if is_builder(path)]
    return []


def remove_builder(path: str, options: StorageOptions, *, undecided: bool = False) -> bool:
    """Remove a folder whose builder is gone; return whether that was so.

    With `undecided` also where nobody can know; one that is held is never removed. Tokens that a
    builder was killed in replacing come back first.
    """
    with _held(path) as writer:
        is_going = writer == "gone" or (writer == "unknown" and undecided)
        if is_going and not take_back_dead(Path(path), options):
            return False
        if is_going:
            shutil.rmtree(path)
        return is_going


def _leftover(path: str) -> Leftover:
    with _held(path) as writer:
        return Leftover(_entry(path), writer)


def _entry(path: str) -> Entry:
    """Return the bytes of a folder, and when something in it last changed."""
    size, modified = 0, 0.0
    # Neither fails where a folder is removed meanwhile, nor follows links, which may lead back.
    for folder, _, files in os.walk(path):
        for name in ("", *files):
            with suppress(OSError):
                status = Path(folder, name).lstat()
                size += status.st_size if name else 0
                modified = max(modified, status.st_mtime)
    return Entry(path, size, modified)


@contextmanager
def _held(path: str) -> Iterator[Writer]:
    """Say who has a folder, and keep others from taking it in the meantime."""
    lock = _lock_of(Path(path))
    descriptor = -1
    writer: Writer = "unknown"
    try:
        if lock is not None:
            descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            writer = "gone"
    except BlockingIOError:
        writer = "at work"
    except OSError:
        pass  # No locks on this file system, or nothing that could be locked.
    try:
        yield writer
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _lock_of(path: Path) -> Path | None:
    """Return what the builder of a folder holds a lock on; None where nobody can say."""
    index = _INDEX.fullmatch(path.name)
    if index is None:
        return path.with_name(_LOCK)
    return path if index["state"] == "tmp" else None
