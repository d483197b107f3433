"""Which files lie on a network file system, where a map may kill the process that reads it."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_NETWORK = frozenset(
    (
        "9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4",
        "orangefs", "smb3", "smbfs",
    )
)  # fmt: skip


def is_network(path: str) -> bool:
    """Whether a file lies on a network file system; False where the system does not say."""
    kind = _kind_at(os.path.dirname(os.path.realpath(path)))
    return kind in _NETWORK or kind.startswith("fuse.")


@lru_cache(maxsize=1024)
def _kind_at(folder: str) -> str:
    best, kind = "", ""
    for point, found in _mounts():
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def _mounts() -> list[tuple[str, str]]:
    try:
        text = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []  # macOS has no list of mounts: files are mapped.
    fields = [line.split(" ") for line in text.splitlines()]
    return [(parts[1].replace("\\040", " "), parts[2]) for parts in fields if len(parts) > 2]  # noqa: PLR2004
