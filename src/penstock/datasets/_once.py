"""Values that are found once: by each process, or by all of them through a file in the cache."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from penstock.errors import StorageError
from penstock.storage import (
    LocalStore,
    cache_directory,
    mark_as_cache,
    only_one,
    open_regular,
    trim_cache,
)

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.storage import Draft

_log = logging.getLogger("penstock.datasets")

_WHAT = "Facts that Penstock found about sources; it finds them again when they are gone."

_PATIENCE = 3600.0
"""Seconds after which a process finds by itself what another one is at."""

T = TypeVar("T")


class Once(Generic[T]):
    """A value that each process finds on first use, in one of its threads.

    It pickles without the value: a copy finds its own. `get` takes the function that finds it,
    which is not kept: a method of the object that has this one would keep that object alive.

    >>> value = Once()
    >>> find = lambda: print("found") or 42
    >>> value.get(find), value.get(find)
    found
    (42, 42)
    """

    def __init__(self) -> None:
        self._found: tuple[T] | None = None
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def get(self, find: Callable[[], T]) -> T:
        if self._found is None:
            if self._owner != os.getpid():
                # A fork copies the lock, perhaps while a thread of the parent holds it.
                self._lock, self._owner = threading.Lock(), os.getpid()
            with self._lock:
                if self._found is None:
                    self._found = (find(),)
        return self._found[0]

    def known(self) -> T | None:
        """Return the value if this process has found it."""
        return None if self._found is None else self._found[0]

    def __reduce__(self) -> tuple[type[Once[T]], tuple[()]]:
        return Once, ()


def kept_arrays(
    names: Sequence[str],
    find: Callable[[], list[np.ndarray]],
    mapped: Callable[[Path], np.ndarray],
) -> list[np.ndarray]:
    """Return arrays mapped from files: `mapped` maps one of them, and raises where it is damaged.

    Of all processes of a host one finds them and writes `views/<name>.npy` in the cache directory;
    the others wait. Without a writable cache the arrays stay in memory.
    """
    paths = [cache_directory() / "views" / f"{name}.npy" for name in names]

    def kept() -> list[np.ndarray] | None:
        arrays = [array for path in paths if (array := from_cache(path, mapped)) is not None]
        return arrays if len(arrays) == len(paths) else None

    were_there = all(path.exists() for path in paths)
    if (known := kept()) is not None:
        return known
    with _only_finder(names[0]):
        is_new = not were_there and all(path.exists() for path in paths)
        if is_new and (known := kept()) is not None:  # Another process found them meanwhile.
            return known
        found = find()
        try:
            for path, array in zip(paths, found, strict=True):
                keep_file(path, partial(np.lib.format.write_array, array=array))
        except StorageError as error:
            count = sum(map(len, found))
            _log.warning("%d numbers stay in the memory of every process: %s", count, error)
            return found
    return kept() or found


@contextmanager
def _only_finder(name: str) -> Iterator[None]:
    """Be the only process that finds what a name stands for; do not wait for another for ever."""
    with ExitStack() as stack:
        with suppress(OSError):  # No locks, or no end of another's work.
            locks = cache_directory() / "locks"
            locks.mkdir(parents=True, exist_ok=True)
            late = TimeoutError()
            stack.enter_context(only_one(locks / f"{name}.lock", _PATIENCE, late))
        yield


def from_cache(path: Path, read: Callable[[Path], T]) -> T | None:
    """Return what `read` finds in a file; None where the file is missing or cannot be used."""
    try:
        open_regular(path).close()
        with suppress(OSError):
            os.utime(path)  # Files that were not used for longest leave the cache first.
        return read(path)
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 (a damaged file fails in many ways)
        _log.warning("%s cannot be used and is made again: %s", path, error)
        return None


def keep_file(path: Path, write: Callable[[Draft], object]) -> None:
    """Publish a file in a folder that is marked as a cache."""
    draft = LocalStore().draft(str(path.parent), path.name)
    try:
        write(draft)
        draft.publish(str(path), exclusive=False)
    finally:
        draft.discard()
    # The mark keeps backup programs and git out; a cache without it works as well.
    with suppress(OSError):
        mark_as_cache(path.parent, _WHAT)
    trim_cache(path)
