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
from penstock.index import has_builder, hidden_of, journal_problem, put_aside, take_back_dead
from penstock.storage import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.storage import StorageOptions

    Writer = Literal["gone", "at work", "unknown"]

# As docs/formats.md has it.
_COLUMN = re.compile(r"\.penstock-building-[0-9a-f-]+|\.[0-9a-f]{16}\.penstock-column-(tmp|old)")
_LOCK = ".lock"
"""Beside columns: held by the only process that changes them."""


def is_builder(path: str) -> bool:
    """Whether a path is that of a folder on its way, or of one that was replaced, by its name.

    An index that was put aside and has no other in its place is neither; see `put_aside_in`. A
    link is nothing that a builder leaves.
    """
    place = Path(path)
    if place.is_symlink() or not place.is_dir():
        return False
    if (name := hidden_of(place.name, "old")) is not None:
        return os.path.lexists(place.with_name(name))
    return bool(hidden_of(place.name, "tmp") or _COLUMN.fullmatch(place.name))


def put_aside_in(directory: str) -> list[tuple[Path, Path]]:
    """Return indexes that killed builders have put aside, each with the place that it had."""
    with suppress(OSError):
        names = {hidden_of(path.name, "old") for path in Path(directory).iterdir()}
        finals = sorted(Path(directory) / name for name in names if name is not None)
        return [
            (Path(aside[0]), final)
            for final in finals
            if not os.path.lexists(final) and not has_builder(str(final))
            if (aside := [one for one in put_aside(str(final)) if hidden_of(Path(one).name, "old")])
        ]
    return []


def problem_of(path: str, options: StorageOptions) -> str | None:
    """Return why a folder of a builder that is gone cannot be removed; None where it can be."""
    return journal_problem(Path(path), options) if hidden_of(Path(path).name, "tmp") else None


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
        if is_going and hidden_of(Path(path).name, "tmp"):
            is_going = take_back_dead(Path(path), options)
        if is_going:
            with suppress(FileNotFoundError):  # Some of it vanished meanwhile.
                shutil.rmtree(path)
        return is_going and not os.path.lexists(path)


def _leftover(path: str) -> Leftover:
    with _held(path) as writer:
        return Leftover(_entry(path), writer)


def _entry(path: str) -> Entry:
    """Return the bytes of a folder, and when something in it last changed."""
    size, modified = 0, 0.0
    # Neither fails where a folder is removed while it looks, nor follows links.
    for folder, _, files in os.walk(path):
        for place in (folder, *(f"{folder}/{name}" for name in files)):
            with suppress(OSError):
                status = os.lstat(place)
                size += 0 if place is folder else status.st_size
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
            descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
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
    if hidden_of(path.name, "tmp"):
        return path
    return None if hidden_of(path.name, "old") else path.with_name(_LOCK)
