"""Locks between processes: a file or a folder is held until its holder releases it or ends.

All of them are `flock`s, and no other module takes one. The system drops a lock when its
process ends, also by kill -9: a lock that can be taken shows that its holder is gone. A lock
belongs to the process that took it: a forked child closes its copies at once, so it neither
releases a lock of its parent nor holds it when the parent is gone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Literal, Self

from penstock.errors import StorageError
from penstock.storage._local_errors import translated

if TYPE_CHECKING:
    from pathlib import Path

    PathLike = str | os.PathLike[str]

Holder = Literal["gone", "at work", "unknown"]
"""The process that holds a path. It is unknown where a file system has no locks, or where the path
cannot be opened."""
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_PAUSE = 0.05
_TRIES = 1000
_own: set[Lock] = set()
"""The locks of this process that a forked child closes."""


class Lock:
    """A lock on an open file or folder; a `with` block releases it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        """-1 after `release`, and in a forked child."""
        _own.add(self)

    def release(self) -> None:
        """Let others have the lock; does nothing in a forked child."""
        # First: once it is closed, the number may be that of another file, which a child may need.
        descriptor, self.descriptor = self.descriptor, -1
        _own.discard(self)
        if descriptor >= 0:
            with suppress(OSError):  # It was never locked.
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # A child forked just now has a copy.
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _after_fork_in_child() -> None:
    while _own:
        lock = _own.pop()
        if lock.descriptor >= 0:
            os.close(lock.descriptor)
            lock.descriptor = -1


os.register_at_fork(after_in_child=_after_fork_in_child)


def take(
    path: PathLike,
    *,
    waits: bool = False,
    create: bool = False,
    mode: int = 0o666,
    shared: bool = False,
) -> Lock | None:
    """Return a lock on a file or a folder, not through a link; None while another has it.

    Any number of processes may have a `shared` one, while none has another. Raises `OSError` where
    the path cannot be opened or the file system has no locks.
    """
    lock = Lock(_opened(path, create=create, mode=mode))
    try:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(lock.descriptor, kind | (0 if waits else fcntl.LOCK_NB))
    except BaseException as failure:
        lock.release()
        if isinstance(failure, BlockingIOError):
            return None
        raise
    return lock


def _opened(path: PathLike, *, create: bool, mode: int) -> int:
    if create:
        return os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, mode)
    try:
        return os.open(path, os.O_RDWR | _FLAGS)  # NFS locks nothing that is open for reading only.
    except FileNotFoundError:
        raise
    except OSError:  # A folder, or a file that this process may only read.
        return os.open(path, os.O_RDONLY | _FLAGS)


def create_locked(path: PathLike) -> int:
    """Return the descriptor of a new file, locked as far as the file system has locks.

    -1 where a cleaner took the file for a dead writer's before it was locked, and removed it. The
    lock ends with the last copy of the descriptor, those of forked children included.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if is_same_file(descriptor, path):
        return descriptor
    os.close(descriptor)
    return -1


def is_same_file(file: int | PathLike, path: PathLike) -> bool:
    """Whether a path, which is no link, leads to a file that is open or has another path."""
    try:
        return os.path.samestat(os.stat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def take_folder(path: Path) -> Lock | None:
    """Make a folder, or find it, and hold it; None where another has it, or a link is in its place.

    While it is held, no cleaner removes it.
    """
    for _ in range(_TRIES):
        try:
            path.mkdir(exist_ok=True)
            lock = take(path)
        except FileNotFoundError:  # Removed between the two calls, as a dead builder's.
            continue
        except OSError as failure:
            if failure.errno in (errno.EEXIST, errno.ELOOP):
                return None
            raise
        if lock is None or is_same_file(lock.descriptor, path):
            return lock
        lock.release()
    raise StorageError(f"cannot hold {path}: it is another one each time.", path=str(path))


@contextmanager
def only_one(
    path: PathLike,
    seconds: float,
    too_late: Exception,
    progress: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Hold a file, which is made where it is missing, for a block.

    While another process has it, wait for so many seconds, then raise `too_late`. They begin
    anew whenever `progress()`, which says what the other has done so far, changes.
    """
    done, deadline = None, time.monotonic() + seconds
    with translated(os.fspath(path), "lock"):
        while (lock := take(path, create=True)) is None:
            if (now := progress()) != done:
                done, deadline = now, time.monotonic() + seconds
            if time.monotonic() > deadline:
                raise too_late
            time.sleep(_PAUSE)
    with lock:
        yield


@contextmanager
def locked(path: PathLike, *, waits: bool = True) -> Iterator[bool]:
    """Hold a file of this user, made where it is missing; yields whether no other holds it."""
    lock = take(path, waits=waits, create=True, mode=0o600)
    with lock or nullcontext():
        yield lock is not None


@contextmanager
def holder_of(path: PathLike) -> Iterator[Holder]:
    """Yield what became of the process that held a file or folder.

    If it is gone, this process holds the path until the block ends.
    """
    lock: Lock | None = None
    holder: Holder = "unknown"
    with suppress(OSError):
        lock = take(path)
        is_ours = lock is not None and is_same_file(lock.descriptor, path)
        holder = "gone" if is_ours else "at work"
    with lock or nullcontext():
        yield holder
