"""Whether a disk has room for what is to be written."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

from penstock.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path


def refuse_full_disk(needed: int, folder: Path, what: str, remedy: str) -> None:
    """Raise `no_room` unless so many bytes are free in a folder."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise no_room(needed, folder, what, remedy, why=f"{free:,} are free", number=errno.ENOSPC)


def no_room(  # noqa: PLR0913 (all parts of a sentence)
    needed: int, folder: Path, what: str, remedy: str, *, why: str, number: int | None
) -> StorageError:
    """Return the error that `what` needs more bytes than a disk has; `remedy` names other disks."""
    return StorageError(
        f"{what} takes about {needed:,} bytes in {folder}: {why}. Free space there, or give "
        f"another folder: {remedy}.",
        path=str(folder),
        errno=number,
    )
