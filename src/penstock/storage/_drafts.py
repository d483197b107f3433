"""Files on their way: hidden, locked by their writer, published by link or rename.

A draft is `.<label>.<16 hex digits>.penstock-tmp` beside the place where it will appear. Its
writer holds a lock on it until it ends, however it ends. A process that gets the lock knows that
the writer is gone, and may remove the file.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from penstock.errors import ObjectExistsError, StorageError, UnsafeForkError
from penstock.storage._local_errors import translated
from penstock.storage._locks import Holder, create_locked, holder_of, is_same_file, take
from penstock.storage._store import Entry

_HIDDEN = re.compile(r"\..+\.([0-9a-f]{16}\.penstock-tmp|penstock-claim)", re.DOTALL)
_LABEL_BYTES = 150
NO_HARD_LINKS = frozenset(
    {errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS}
)
"""What `errno` says where a file cannot have a second name."""


class OwnedFile:
    """A descriptor that takes bytes in the process that opened it, and nowhere else.

    After a failed write the contents are undefined, and further writes are refused.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor = descriptor
        self.path = path
        self._process = os.getpid()
        self._failure = ""

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it, rather than one that it was forked from."""
        return self._process == os.getpid()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        self.check()
        try:
            with translated(self.path, "write"):
                view = memoryview(data).cast("B")
                while view:  # More than once where the disk is nearly full.
                    view = view[os.write(self.descriptor, view) :]
        except BaseException as failure:
            self._failure = str(failure) or type(failure).__name__
            raise

    def check(self) -> None:
        """Raise in a forked child, and after a failed write."""
        if not self.is_ours:
            message = (
                f"{self.path} is being written by process {self._process}, from which this one "
                "was forked. Open a writer of its own in the forked process."
            )
            raise UnsafeForkError(message, path=self.path)
        if self._failure:
            message = f"cannot go on with {self.path}: an earlier write failed: {self._failure}"
            raise StorageError(message, path=self.path)


class LocalDraft(OwnedFile):
    """A hidden, locked file; see `penstock.storage.Draft`."""

    def __init__(self, directory: str, label: str) -> None:
        super().__init__(-1, directory)
        # A name may have 255 bytes, and the label's own file may use them all.
        label = os.fsencode(label)[:_LABEL_BYTES].decode(errors="ignore") or "draft"
        with translated(directory, "write in"):
            Path(directory).mkdir(parents=True, exist_ok=True)
            while self.descriptor < 0:
                self.path = f"{directory}/.{label}.{secrets.token_hex(8)}.penstock-tmp"
                self.descriptor = create_locked(self.path)

    def publish(self, name: str, *, exclusive: bool) -> None:
        self.check()
        with translated(name, "publish"):
            os.fsync(self.descriptor)
            if exclusive:
                publish_by_link(self.path, name)
                Path(self.path).unlink(missing_ok=True)
            else:
                os.replace(self.path, name)
            sync(os.path.dirname(name) or ".")
        self._close()

    def discard(self) -> None:
        # A forked child holds a copy of this object; the file is its parent's.
        if self.descriptor >= 0 and self.is_ours:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
        self._close()

    def _close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.discard()


class Leftover(NamedTuple):
    """A file or a folder on its way to its name, or what is left of one."""

    entry: Entry
    writer: Holder


def drafts_in(directory: str) -> list[Leftover]:
    """Return the drafts and claims in a local directory."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(directory))
    found = []
    for path in (f"{directory}/{name}" for name in names if _HIDDEN.fullmatch(name)):
        with suppress(OSError), holder_of(path) as holder:
            status = os.stat(path)
            # A folder can be locked, but no writer of ours makes one of this name.
            writer: Holder = "unknown" if stat.S_ISDIR(status.st_mode) else holder
            found.append(Leftover(Entry(path, status.st_size, status.st_mtime), writer))
    return found


def clear_dead_drafts(directory: str) -> list[Entry]:
    """Remove the drafts in a directory whose writers are gone; return what was removed."""
    removed = []
    for entry, writer in drafts_in(directory):
        with suppress(OSError):
            if writer == "gone" and remove_draft(entry.name):
                removed.append(entry)
    return removed


def remove_draft(path: str, *, undecided: bool = False) -> bool:
    """Remove a draft whose writer is gone; return whether that was so.

    With `undecided` also where that cannot be known; a draft that is locked is never removed.
    """
    with holder_of(path) as holder:
        is_going = holder == "gone" or (holder == "unknown" and undecided)
        if is_going:
            Path(path).unlink(missing_ok=True)
        return is_going


def publish_by_link(draft: str, name: str) -> None:
    """Give a file a second name, which must be free; move it there where links are missing."""
    try:
        os.link(draft, name)
    except FileExistsError:
        # Over NFS a link may have been made although the answer says that it was there before.
        if not is_same_file(draft, name):
            raise _taken(name) from None
    except OSError as failure:
        if failure.errno not in NO_HARD_LINKS:
            raise
        publish_by_claim(draft, name)


def publish_by_claim(draft: str, name: str) -> None:
    """Publish exclusively where hard links are missing.

    The one process that creates the hidden claim file looks whether the name is free, and renames.
    """
    directory, base = os.path.split(name)
    claim = f"{directory}/.{base}.penstock-claim"
    descriptor = -1
    while descriptor < 0:
        try:
            descriptor = create_locked(claim)
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
    try:
        with take(claim, waits=True) or nullcontext() as lock:
            if lock is not None and is_same_file(lock.descriptor, claim):
                os.unlink(claim)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def _taken(name: str) -> ObjectExistsError:
    message = f"{name} exists already. Choose another name, or allow it to be replaced."
    return ObjectExistsError(message, path=name, errno=errno.EEXIST)


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until a file is on disk, or the names in a directory are."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return  # A directory may be open to writers and closed to readers.
    try:
        os.fsync(descriptor)
    except OSError as failure:
        if failure.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise  # Some file systems cannot sync a directory; a full disk is something else.
    finally:
        os.close(descriptor)
