"""File systems that the tests of `make test-system` make, fill and take away; needs root."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXFAT_BYTES = 64 << 20


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


@contextlib.contextmanager
def small_tmpfs(place: Path, size: int) -> Iterator[Path]:
    """Mount a file system in memory that is full after so many bytes."""
    place.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    try:
        yield place
    finally:
        _run("umount", str(place))


def make_read_only(place: Path) -> None:
    _run("mount", "-o", "remount,ro", str(place))


@contextlib.contextmanager
def exfat(place: Path) -> Iterator[Path]:
    """Mount an exFAT file system, which has no hard links, by FUSE: not every kernel has FAT."""
    image = place.with_name(f"{place.name}.img")
    with image.open("wb") as file:
        file.truncate(EXFAT_BYTES)
    _run("mkfs.exfat", str(image))
    place.mkdir()
    device = _run("losetup", "--find", "--show", str(image))
    try:
        _run("mount.exfat-fuse", device, str(place))
        try:
            yield place
        finally:
            _run("umount", str(place))
    finally:
        _run("losetup", "--detach", device)
        image.unlink()
