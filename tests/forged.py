"""What tests of forged data share: a whole tree as it is, to be compared afterwards."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def tree(root: Path) -> dict[str, tuple[int, int, object]]:
    """Return type, inode and content of everything below a folder; links are not followed."""
    found: dict[str, tuple[int, int, object]] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            status = path.lstat()
            content: object = None
            if stat.S_ISLNK(status.st_mode):
                content = path.readlink()
            elif stat.S_ISREG(status.st_mode) and status.st_size < 1 << 20:
                content = path.read_bytes()
            found[str(path.relative_to(root))] = (status.st_mode, status.st_ino, content)
    return found


def outside(root: Path, base: Path) -> dict[str, tuple[int, int, object]]:
    """Return the same of everything that is not below a base."""
    name = str(base.relative_to(root))
    return {path: what for path, what in tree(root).items() if path.split("/")[0] != name}


ODD = ("pipe", "device", "folder", "sparse", "loop")
"""What may lie where a small regular file is expected."""


def put_odd(path: Path, kind: str) -> None:
    """Put something else than a small regular file in a place."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
