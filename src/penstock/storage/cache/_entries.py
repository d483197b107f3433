"""The entries of the cache directory: indexes, columns and facts of sources, up to a limit.

A process holds the entries that it uses, by shared locks. When something is written to the cache
and all entries together have more bytes than the limit, those that were not used for longest go,
without those that a process holds. Blocks of remote files have their own limit (`cache_limit`).
"""

from __future__ import annotations

import logging
import os
import shutil
import weakref
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.errors import OptionError
from penstock.storage._environment import cache_directory, cache_limit_text
from penstock.storage._folders import bytes_and_time, hidden_name
from penstock.storage._locks import Holder, Lock, holder_of, is_same_file, take
from penstock.storage._options import parsed_size
from penstock.storage._untrusted import remove_tree

_log = logging.getLogger("penstock.storage")
_FOLDERS = ("indexes", "fetched-indexes", "columns")
_FILES = ("views", "profiles", "files")
_USE = ".use"
"""In an entry that is a folder: locked by the processes that use it, with the time of last use."""
_SHARE = 5
"""Without a limit the cache may have one part in so many of its disk."""


class CacheEntry(NamedTuple):
    """An index with its columns, the columns of a source, or a file with facts of one."""

    path: Path
    bytes: int
    used: float
    """When a process last opened it, in seconds since the epoch."""


class Held:
    """An entry that no process removes while this object lives."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        weakref.finalize(self, lock.release)

    def holds(self, path: Path) -> bool:
        """Whether it holds the entry that has this path now; after a fork it holds none."""
        descriptor = self._lock.descriptor
        return descriptor >= 0 and is_same_file(descriptor, path / _USE)


_held: weakref.WeakValueDictionary[Path, Held] = weakref.WeakValueDictionary()


def hold_entry(path: str | os.PathLike[str]) -> Held | None:
    """Hold the entry that a path belongs to, and note that it is used now.

    None for a path outside of the cache, and where there are no locks or nothing may be written.
    """
    entry = _entry_of(path)
    if entry is None:
        return None
    known = _held.get(entry)
    with suppress(OSError):
        if known is None or not known.holds(entry):
            lock = take(entry / _USE, waits=True, create=True, shared=True)
            known = None if lock is None else Held(lock)
            if known is None or not known.holds(entry):  # Removed while this process waited.
                return None
            _held[entry] = known
        os.utime(entry / _USE)
        return known
    return None


def cache_entries() -> list[CacheEntry]:
    """Return all entries, those first that were not used for longest."""
    found = []
    for kind in (*_FOLDERS, *_FILES):
        with suppress(OSError):
            for path in (cache_directory() / kind).iterdir():
                if path.name.startswith(".") or path.is_dir() is not (kind in _FOLDERS):
                    continue
                size, used = bytes_and_time(path)
                with suppress(OSError):
                    used = (path / _USE).stat().st_mtime
                found.append(CacheEntry(path, size, used))
    return sorted(found, key=lambda entry: entry.used)


def user_of(path: Path) -> Holder:
    """Return whether a process uses an entry."""
    if not (path / _USE).exists():
        return "gone"
    with holder_of(path / _USE) as holder:
        return holder


def remove_entry(path: Path, *, undecided: bool = False) -> bool:
    """Remove an entry that no process uses; return whether it is gone.

    With `undecided` also where that cannot be known.
    """
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return True
    lock = None
    try:
        lock = take(path / _USE, create=True)
        if lock is None:
            return False
    except FileNotFoundError:
        return True
    except OSError:
        if not undecided:
            return False
    try:
        # By this name the next builder or `penstock clean` knows it, if this process is killed.
        remove_tree(path.rename(path.with_name(hidden_name(path.name, "tmp"))))
    except FileNotFoundError:  # Another process was quicker.
        return True
    except OSError:
        return False
    finally:
        if lock is not None:
            lock.release()
    return True


def cache_limit() -> int:
    """Return how many bytes entries may have: `PENSTOCK_CACHE_LIMIT`, or a fifth of the disk."""
    given = cache_limit_text()
    if not given:
        return shutil.disk_usage(cache_directory()).total // _SHARE
    size = parsed_size(given)
    if size is None:
        raise OptionError(
            f"PENSTOCK_CACHE_LIMIT={given!r} in the environment: expected bytes, or a text as "
            '"20GB".'
        )
    return size


def trim_cache(written: str | os.PathLike[str]) -> None:
    """Bring the cache within its limit after something was written to it, which stays.

    Does nothing for a path outside of the cache.
    """
    own = _entry_of(written)
    if own is None:
        return
    entries, limit = cache_entries(), cache_limit()
    total, removed = sum(entry.bytes for entry in entries), 0
    for entry in entries:
        if total <= limit:
            break
        if entry.path != own and remove_entry(entry.path):
            total -= entry.bytes
            removed += 1
    if removed:
        text = "what was not used for longest is gone from %s (%d of %d): its limit is %d bytes"
        _log.info(text, cache_directory(), removed, len(entries), limit)


def _entry_of(path: str | os.PathLike[str]) -> Path | None:
    with suppress(ValueError):
        inside = Path(os.path.abspath(path)).relative_to(cache_directory().absolute()).parts
        if len(inside) > 1 and inside[0] in (*_FOLDERS, *_FILES):
            return cache_directory().joinpath(*inside[:2])
    return None
