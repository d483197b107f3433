"""Files on their way: hidden, locked by their writer, published by link or rename.

A draft is `.<label>.<16 hex digits>.penstock-tmp` beside the place where it will appear. Its
writer holds an exclusive lock on it until it ends, however it ends; so whoever gets that lock
knows that the writer is gone and may remove the file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from penstock.errors import ObjectExistsError
from penstock.storage._local_errors import translated
from penstock.storage._store import Entry

_DRAFT_NAME = re.compile(r"\..+\.[0-9a-f]{16}\.penstock-tmp")
_CLAIM_NAME = re.compile(r"\..+\.penstock-claim")
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


class LocalDraft:
    """A hidden, locked file; see `penstock.storage.Draft`."""

    def __init__(self, directory: str, label: str) -> None:
        self._descriptor = -1
        self._process = os.getpid()
        with translated(directory, "write in"):
            Path(directory).mkdir(parents=True, exist_ok=True)
            while self._descriptor < 0:
                self._path = f"{directory}/.{label}.{secrets.token_hex(8)}.penstock-tmp"
                self._descriptor = _create_locked(self._path)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with translated(self._path, "write"), memoryview(data) as view:
            done = 0
            while done < len(view):
                done += os.write(self._descriptor, view[done:])

    def publish(self, name: str, *, exclusive: bool) -> None:
        with translated(name, "publish"):
            os.fsync(self._descriptor)
            if exclusive:
                _publish_exclusively(self._path, self._descriptor, name)
            else:
                os.replace(self._path, name)
            _sync_directory(name)
        self._close()

    def discard(self) -> None:
        # A forked child holds a copy of this object; the file is its parent's.
        if self._descriptor >= 0 and self._process == os.getpid():
            with suppress(FileNotFoundError):
                os.unlink(self._path)
        self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.discard()


def list_drafts(directory: str) -> list[tuple[Entry, bool]]:
    """Return the drafts and claims in a directory, each with whether its writer is gone.

    Where the file system has no locks nobody can know; such drafts count as alive.
    """
    found = []
    for path in _leftovers(directory):
        with suppress(OSError):
            status = os.stat(path)
            dead = (descriptor := _lock_if_dead(path)) is not None
            if descriptor is not None:
                os.close(descriptor)
            found.append((Entry(path, status.st_size, status.st_mtime), dead))
    return found


def clear_dead_drafts(directory: str) -> list[Entry]:
    """Remove the drafts in a directory whose writers are gone; return what was removed."""
    removed = []
    for path in _leftovers(directory):
        with suppress(OSError):
            if (descriptor := _lock_if_dead(path)) is None:
                continue
            try:
                status = os.fstat(descriptor)
                os.unlink(path)
                removed.append(Entry(path, status.st_size, status.st_mtime))
            finally:
                os.close(descriptor)
    return removed


def _leftovers(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return [
        f"{directory}/{name}"
        for name in names
        if _DRAFT_NAME.fullmatch(name) or _CLAIM_NAME.fullmatch(name)
    ]


def _create_locked(path: str) -> int:
    """Return a locked descriptor of a new file, or -1 when it was cleared away meanwhile."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with suppress(OSError):  # No locks on this file system: then nobody clears drafts either.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    # Between creation and lock somebody may have taken it for a dead writer's and removed it.
    if os.fstat(descriptor).st_nlink == 0:
        os.close(descriptor)
        return -1
    return descriptor


def _lock_if_dead(path: str) -> int | None:
    """Return a locked descriptor of a draft whose writer is gone, else None."""
    # For writing, because NFS grants an exclusive lock on nothing less.
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _publish_exclusively(draft: str, descriptor: int, name: str) -> None:
    try:
        os.link(draft, name)
    except FileExistsError:
        # Over NFS a link may have been made although the answer says that it was there before.
        if not _is_same_file(descriptor, name):
            raise _taken(name) from None
    except OSError as failure:
        if failure.errno not in _NO_HARD_LINKS:
            raise
        publish_by_claim(draft, name)
        return
    os.unlink(draft)


def publish_by_claim(draft: str, name: str) -> None:
    """Publish exclusively where hard links are missing.

    Whoever creates the hidden claim file alone may look whether the name is free and rename.
    """
    directory, base = os.path.split(name)
    claim = f"{directory}/.{base}.penstock-claim"
    try:
        descriptor = _create_locked(claim)
    except FileExistsError:
        raise _taken(name) from None
    if descriptor < 0:
        raise _taken(name)
    try:
        if os.path.lexists(name):
            raise _taken(name)
        os.rename(draft, name)
    finally:
        os.unlink(claim)
        os.close(descriptor)


def _taken(name: str) -> ObjectExistsError:
    message = f"{name} exists already. Choose another name, or allow it to be replaced."
    return ObjectExistsError(message, path=name, errno=errno.EEXIST)


def _is_same_file(descriptor: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False


def _sync_directory(name: str) -> None:
    descriptor = os.open(os.path.dirname(name) or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as failure:
        if failure.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise  # Some file systems cannot sync a directory; a full disk is something else.
    finally:
        os.close(descriptor)
