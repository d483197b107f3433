"""Columns that outlive the index they lie in: taken along into the one that replaces it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_NO_LINKS = {
    errno.EPERM,
    errno.EXDEV,
    errno.EMLINK,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.ENOSYS,
}


def link_folder(old: Path, new: Path) -> None:
    """Give the files of a folder a second name in another: linked, or copied where that fails.

    What is hidden is on its way, and stays where it is. Links are neither followed nor copied.
    """
    if not _is_folder(old):
        return
    new.mkdir()
    for path in old.iterdir():
        if path.name.startswith("."):
            continue
        try:
            if _is_folder(path):
                link_folder(path, new / path.name)
            elif stat.S_ISREG(path.lstat().st_mode):
                _link(path, new / path.name)
        except FileNotFoundError:  # Somebody dropped the column in this moment.
            shutil.rmtree(new / path.name, ignore_errors=True)
    sync(new)


def move_rest(old: Path, new: Path) -> None:
    """Move what appeared in a folder since its files were linked, or is on its way there."""
    if not _is_folder(old):
        return
    new.mkdir(exist_ok=True)
    for path in old.iterdir():
        if not (path.is_symlink() or (new / path.name).exists()):
            with suppress(OSError):
                path.rename(new / path.name)


def _is_folder(path: Path) -> bool:
    """Whether a folder itself has this name, not a link to one."""
    return path.is_dir() and not path.is_symlink()


def _link(path: Path, new: Path) -> None:
    try:
        new.hardlink_to(path)
    except OSError as failure:
        if failure.errno not in _NO_LINKS:
            raise
        shutil.copyfile(path, new)
        sync(new)


def sync(path: Path) -> None:
    """Wait until a file or a folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
