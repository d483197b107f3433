"""Errors of the operating system, and of a disk without room, in plain words."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    PenstockError,
    StorageError,
    StoragePermissionError,
)

_REMEDIES: dict[int, tuple[type[StorageError], str]] = {
    errno.ENOENT: (ObjectNotFoundError, "there is no such file or directory"),
    errno.ENOTDIR: (ObjectNotFoundError, "a part of the path is not a directory"),
    errno.EEXIST: (ObjectExistsError, "the name is taken"),
    errno.EACCES: (StoragePermissionError, "permission denied; check owner and mode"),
    errno.EPERM: (StoragePermissionError, "operation not permitted here"),
    errno.EROFS: (StoragePermissionError, "the file system is read-only"),
    errno.ENOSPC: (StorageError, "the disk is full; free space and write again"),
    errno.EDQUOT: (StorageError, "the disk quota is used up; free space and write again"),
    errno.EFBIG: (StorageError, "the file would pass the size limit (see ulimit -f)"),
    errno.EMFILE: (StorageError, "too many open files (see ulimit -n)"),
}
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What `errno` says where there is no room for what is written."""
LEADS_NOWHERE = frozenset({errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG})
"""What `errno` says of a link to what is not there, or cannot be."""


@contextmanager
def translated(path: str, verb: str) -> Iterator[None]:
    """Raise operating-system errors as `StorageError`s that name the path and the way out."""
    try:
        yield
    except PenstockError:
        raise
    except OSError as failure:
        number = failure.errno or 0
        kind, why = _REMEDIES.get(number, (StorageError, failure.strerror or str(failure)))
        if number in LEADS_NOWHERE and os.path.islink(path):
            kind = ObjectNotFoundError
            why = (
                f"it is a link to {os.readlink(path)}, and nothing is there. Bring that back, or "
                "remove the link"
            )
        raise kind(f"cannot {verb} {path}: {why}.", path=path, errno=failure.errno) from failure


def free_bytes(folder: str | Path) -> int:
    """Return the free bytes of the disk where a folder is, or will be."""
    path = Path(folder).absolute()
    return shutil.disk_usage(next(p for p in (path, *path.parents) if p.is_dir())).free


def refuse_full_disk(needed: int, folder: Path, what: str, remedy: str) -> None:
    """Raise `no_room` unless so many bytes are free in a folder."""
    free = free_bytes(folder)
    if needed > free:
        raise no_room(needed, folder, what, remedy, why=f"{free:,} are free", number=errno.ENOSPC)


def no_room(  # noqa: PLR0913 (all parts of a sentence)
    needed: int, folder: Path, what: str, remedy: str, *, why: str, number: int | None
) -> StorageError:
    """Return the error that `what` needs more bytes than a disk has; `remedy` names other disks."""
    return StorageError(
        f"{what} takes about {needed:,} bytes in {folder}: {why}.",
        remedy=f"Free space there, or give another folder: {remedy}.",
        path=str(folder),
        errno=number,
    )
