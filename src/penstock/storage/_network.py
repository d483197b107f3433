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
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""  # macOS has no list of mounts: files are mapped.
    best, kind = "", ""
    for line in mounts.splitlines():
        _, point, found, *_ = line.split(" ")
        around = point.replace("\\040", " ")
        inside = folder == around or folder.startswith(around.rstrip("/") + "/")
        if inside and len(around) >= len(best):
            best, kind = around, found
    return kind
