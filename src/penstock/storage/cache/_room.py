"""A folder of blocks that never holds more than its limit, whichever processes fill it."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.storage._folders import mark_as_cache
from penstock.storage._locks import locked

if TYPE_CHECKING:
    from pathlib import Path

_STRIPES = 256
_TOTAL = struct.Struct("<q")
_LEFT_WHEN_FULL = 0.9
"""Share of the limit that is left after making room: so that most blocks need no look around."""
_OURS = re.compile(r"([0-9a-f]{40})\.block(-tmp)?")
_WHAT = "Blocks of remote files, kept by Penstock; what is gone is fetched again."


class NoRoomError(Exception):
    """Raised if drafts of other processes leave no room for a block."""


class Room:
    """Names and space for blocks in one folder."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit

    def path(self, key: bytes) -> Path:
        return self.folder / f"{key.hex()}.block"

    def draft(self, key: bytes) -> Path:
        """Return where a block is while it is written, by the one who holds its lock."""
        return self.folder / f"{key.hex()}.block-tmp"

    def lock(self, key: bytes) -> Path:
        """Return the lock of a block; others have the same one."""
        return self.folder / "locks" / f"{key[0] % _STRIPES:02x}"

    @contextmanager
    def reserved(self, key: bytes, size: int) -> Iterator[int]:
        """Yield a descriptor of the block's draft, of this size, for which there is room now.

        Raises `NoRoomError` where drafts of others, which are never deleted, leave none. The draft
        goes if the block raises. The draft of a killed process goes when room is made next.
        """
        draft = self.draft(key)
        with self._total() as total:
            if total.bytes is None or total.bytes + size > self.limit:
                total.bytes = self._make_room(size)
                if total.bytes + size > self.limit:
                    raise NoRoomError
            descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                # At once as large as it will be: other processes count all of it.
                os.ftruncate(descriptor, size)
            except OSError:
                os.close(descriptor)
                draft.unlink(missing_ok=True)
                raise
            total.bytes += size
        try:
            yield descriptor
        except BaseException:
            with suppress(OSError), self._total() as total:
                draft.unlink(missing_ok=True)
                if total.bytes is not None:
                    total.bytes -= size
            raise
        finally:
            os.close(descriptor)

    @contextmanager
    def _total(self) -> Iterator[_Total]:
        """Yield the bytes of all files, which other processes wait to change."""
        path = self.folder / "total"
        with locked(path):
            total = _Total(path)
            try:
                yield total
            finally:
                total.write()

    def _make_room(self, size: int) -> int:
        """Delete what was not used for longest, if need be; return the bytes that are left."""
        files: list[tuple[int, int, str]] = []
        total = 0
        with os.scandir(self.folder) as entries:
            for entry in entries:
                # Nothing is touched that does not have one of our names.
                name = _OURS.fullmatch(entry.name)
                if name is None:
                    continue
                with suppress(FileNotFoundError):
                    facts = entry.stat(follow_symlinks=False)
                    if name[2] and self._removed_dead(entry, name[1]):
                        continue
                    total += facts.st_size
                    if not name[2]:
                        files.append((facts.st_mtime_ns, facts.st_size, entry.path))
        if total + size <= self.limit:
            return total
        goal = min(_LEFT_WHEN_FULL * self.limit, self.limit - size)
        for _, gone, path in sorted(files):
            if total <= goal:
                break
            with suppress(OSError):
                os.unlink(path)
                total -= gone
        return total

    def _removed_dead(self, entry: os.DirEntry[str], key: str) -> bool:
        # Without waiting: the holder of that lock may be waiting for the one that we hold.
        with locked(self.lock(bytes.fromhex(key)), waits=False) as is_free:
            if is_free:
                os.unlink(entry.path)
            return is_free


class _Total:
    """A number in a file; None where the file says nothing that can be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        data = path.read_bytes()
        self.bytes: int | None = _TOTAL.unpack(data)[0] if len(data) == _TOTAL.size else None

    def write(self) -> None:
        if self.bytes is not None:
            # In place: the lock is on this very file.
            with open(self._path, "r+b") as file:
                file.write(_TOTAL.pack(self.bytes))


def private_folder(wanted: Path) -> Path:
    """Make and mark a folder that only this user writes to; inside of one that others share."""
    wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = wanted
    if not _is_private(wanted):
        folder = wanted / f"blocks-{os.geteuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(folder):
            raise PermissionError(f"{folder} can be written to by others")
    (folder / "locks").mkdir(mode=0o700, exist_ok=True)
    mark_as_cache(folder, _WHAT)
    return folder


def _is_private(folder: Path) -> bool:
    # What others could write they could replace, and it would be served as the user's data.
    facts = folder.stat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return facts.st_uid == os.geteuid() and not facts.st_mode & others


def used_bytes(folder: Path) -> int:
    """Return the bytes of all blocks, as the processes that wrote them counted."""
    try:
        return max(0, _Total(folder / "total").bytes or 0)
    except OSError:
        return 0
