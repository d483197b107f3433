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
from penstock.storage._owned_file import OwnedFile
from penstock.storage._store import Entry

_DRAFT_NAME = re.compile(r"\..+\.[0-9a-f]{16}\.penstock-tmp", re.DOTALL)
_CLAIM_NAME = re.compile(r"\..+\.penstock-claim", re.DOTALL)
_LABEL_BYTES = 150
_NO_HARD_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


class LocalDraft:
    """A hidden, locked file; see `penstock.storage.Draft`."""

    def __init__(self, directory: str, label: str) -> None:
        self._file = OwnedFile(-1, directory)
        # A name may have 255 bytes, and the label's own file may use them all.
        label = os.fsencode(label)[:_LABEL_BYTES].decode(errors="ignore") or "draft"
        with translated(directory, "write in"):
            Path(directory).mkdir(parents=True, exist_ok=True)
            while self._file.descriptor < 0:
                path = f"{directory}/.{label}.{secrets.token_hex(8)}.penstock-tmp"
                self._file = OwnedFile(_create_locked(path), path)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._file.write(data)

    def publish(self, name: str, *, exclusive: bool) -> None:
        self._file.check()
        with translated(name, "publish"):
            os.fsync(self._file.descriptor)
            if exclusive:
                _publish_exclusively(self._file.path, self._file.descriptor, name)
            else:
                os.replace(self._file.path, name)
            _sync_directory(name)
        self._close()

    def discard(self) -> None:
        # A forked child holds a copy of this object; the file is its parent's.
        if self._file.descriptor >= 0 and self._file.is_ours:
            with suppress(FileNotFoundError):
                os.unlink(self._file.path)
        self._close()

    def _close(self) -> None:
        if self._file.descriptor >= 0:
            os.close(self._file.descriptor)
            self._file.descriptor = -1

    def __del__(self) -> None:
        self.discard()


def list_drafts(directory: str) -> list[tuple[Entry, bool | None]]:
    """Return the drafts and claims in a directory, each with whether its writer is gone.

    Where nobody can know that (a file system without locks, a file that may not be opened) it
    is None.
    """
    found: list[tuple[Entry, bool | None]] = []
    for path in _leftovers(directory):
        gone: bool | None = None
        with suppress(OSError):
            status = os.stat(path)
            with suppress(OSError):
                gone = (descriptor := _lock_if_dead(path)) is not None
                if descriptor is not None:
                    os.close(descriptor)
            found.append((Entry(path, status.st_size, status.st_mtime), gone))
    return found


def clear_dead_drafts(directory: str) -> list[Entry]:
    """Remove the drafts in a directory whose writers are gone; return what was removed."""
    removed = []
    for path in _leftovers(directory):
        with suppress(OSError):
            status = os.stat(path)
            if remove_draft(path):
                removed.append(Entry(path, status.st_size, status.st_mtime))
    return removed


def remove_draft(path: str, *, undecided: bool = False) -> bool:
    """Remove a draft whose writer is gone; return whether that was so.

    With `undecided` also where nobody can know; a draft that is locked is never removed.
    """
    try:
        descriptor = _lock_if_dead(path)
    except FileNotFoundError:
        return False
    except OSError:
        if undecided:
            os.unlink(path)
        return undecided
    if descriptor is None:
        return False
    try:
        # A claim may have been released and its name taken by another one before it was locked.
        if not _is_same_file(descriptor, path):
            return False
        os.unlink(path)
    finally:
        os.close(descriptor)
    return True


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
    if not _is_same_file(descriptor, path):
        os.close(descriptor)
        return -1
    return descriptor


def _lock_if_dead(path: str) -> int | None:
    """Return a locked descriptor of a draft whose writer is gone, None while it is alive.

    Raises `OSError` where nobody can know.
    """
    # For writing, because NFS grants an exclusive lock on nothing less.
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
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
    descriptor = -1
    while descriptor < 0:
        try:
            descriptor = _create_locked(claim)
        except FileExistsError:
            if not _wait_until_released(claim):
                raise _taken(name) from None
    try:
        if os.path.lexists(name):
            raise _taken(name)
        os.rename(draft, name)
    finally:
        os.unlink(claim)
        os.close(descriptor)


def _wait_until_released(claim: str) -> bool:
    """Wait for a claim's owner, and remove the claim if it died; False without locks."""
    with suppress(FileNotFoundError):
        descriptor = os.open(claim, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_same_file(descriptor, claim):
                os.unlink(claim)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        finally:
            os.close(descriptor)
    return True


def _taken(name: str) -> ObjectExistsError:
    message = f"{name} exists already. Choose another name, or allow it to be replaced."
    return ObjectExistsError(message, path=name, errno=errno.EEXIST)


def _is_same_file(descriptor: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False


def _sync_directory(name: str) -> None:
    try:
        descriptor = os.open(os.path.dirname(name) or ".", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return  # A directory may be open to writers and closed to readers.
    try:
        os.fsync(descriptor)
    except OSError as failure:
        if failure.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise  # Some file systems cannot sync a directory; a full disk is something else.
    finally:
        os.close(descriptor)
