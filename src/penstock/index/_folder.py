"""The folder of an index on its way: hidden while it is written, there as a whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import IndexExistsError, ObjectExistsError, ObjectNotFoundError, StorageError
from penstock.index._kept_columns import link_folder, move_rest, sync
from penstock.index._names import (
    BAD_LINES,
    COLUMNS,
    DOCUMENT_FILES,
    FILES,
    FRAMES,
    META,
    PROFILE,
    PROFILE_STATE,
    PUT_ASIDE,
    hidden_name,
    is_hidden,
)
from penstock.index._tokens._journal import take_back_dead
from penstock.storage import StorageOptions, locate, mark_as_cache

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from penstock.index._place import Place

_WHAT = "Made by Penstock from the data beside it, or named in meta.json; it can be made again."
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)
_TRIES = 1000
_NOT_ALWAYS = (FRAMES, BAD_LINES, PROFILE, PROFILE_STATE, *DOCUMENT_FILES)


class NewFolder:
    """A hidden folder that becomes the index, or vanishes with its `with` block.

    Unless `is_kept`, it is marked as what backups and repositories can do without.
    """

    def __init__(self, place: Place, *, is_kept: bool = False) -> None:
        self._place = place
        self._is_kept = is_kept
        self._lock = -1
        self.path = Path()

    def __enter__(self) -> Self:
        if self._place.is_remote:
            self.path = Path(tempfile.mkdtemp(prefix="penstock-index-"))
            return self
        final = Path(self._place.folder)
        make_parent(final)
        clear_dead_folders(final)
        try:
            while self._lock < 0:  # Somebody may take the new folder for a dead builder's.
                self.path = final.with_name(hidden_name(final.name, "tmp"))
                self._lock = held_folder(self.path)
            if not self._is_kept:
                mark(self.path)
        except BaseException:
            self.__exit__()
            raise
        return self

    def publish(self, *, replace: bool, keep_columns: bool = False) -> None:
        """Make everything visible at once; without `replace` an index that is there stays.

        `keep_columns` takes along the columns that lie in the one that is replaced.
        """
        if self._place.is_remote:
            self._upload(replace=replace)
            return
        final = Path(self._place.folder)
        if keep_columns:
            link_folder(final / COLUMNS, self.path / COLUMNS)
        for file in self.path.iterdir():
            sync(file)
        sync(self.path)
        old = None
        if replace and final.exists():
            # Whoever opens the index right now finds it gone for a moment, and waits.
            old = final.with_name(hidden_name(final.name, "old"))
            final.rename(old)
        try:
            self.path.rename(final)
        except BaseException as failure:
            if old is not None and not final.exists():
                old.rename(final)
            if not isinstance(failure, OSError) or failure.errno not in _TAKEN:
                raise
            raise IndexExistsError(
                f"{final} appeared while it was being built; the one that is there stays."
            ) from None
        sync(final.parent)
        if old is not None:
            if keep_columns:
                move_rest(old / COLUMNS, final / COLUMNS)
            shutil.rmtree(old, ignore_errors=True)

    def _upload(self, *, replace: bool) -> None:
        store, name = locate(self._place.folder, self._place.options)
        # An index counts only with its meta.json: that goes first, and comes last.
        if replace:
            for old in (META, *_NOT_ALWAYS):
                with suppress(ObjectNotFoundError):
                    store.delete(f"{name}/{old}")
        for file in sorted(self.path.iterdir(), key=lambda file: file.name == META):
            draft = store.draft(name, file.name)
            with file.open("rb") as data:
                while block := data.read(8 << 20):
                    draft.write(block)
            try:
                draft.publish(f"{name}/{file.name}", exclusive=file.name == META and not replace)
            except ObjectExistsError:
                raise IndexExistsError(
                    f"{self._place.folder} appeared while it was being built."
                ) from None
            finally:
                draft.discard()

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def held_folder(path: Path) -> int:
    """Make a folder, or find it, and hold it; return the lock, or -1 where another holds it.

    As long as the lock is open, nobody removes the folder.
    """
    for _ in range(_TRIES):
        path.mkdir(exist_ok=True)
        try:
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Before it was locked, somebody may have removed it as a dead builder's.
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                held, lock = lock, -1
                return held
        except BlockingIOError:
            return -1
        except FileNotFoundError:
            pass
        finally:
            if lock >= 0:
                os.close(lock)
    raise StorageError(f"cannot hold {path}: it is another one each time.", path=str(path))


def make_parent(final: Path) -> None:
    """Make the folder that an index will lie in."""
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        os.listdir(final.parent)
    except OSError as failure:
        raise StorageError(
            f"cannot make {final.parent} for an index: {failure.strerror}. Give it another "
            "place: index= (--index), or the variable PENSTOCK_CACHE for the cache.",
            path=str(final.parent),
        ) from None


def bring_back(final: Path) -> None:
    """Put an index back that a killed builder had put aside; the caller is the only builder."""
    if final.exists() or not final.parent.is_dir():
        return
    aside = [p for p in final.parent.iterdir() if is_hidden(p.name, final.name, "old")]
    for path in aside:
        if (path / FILES).exists():
            path.rename(final)
            return
    bring_back_tokens(final)


def bring_back_tokens(final: Path) -> None:
    """Put tokens and their index back that a killed builder had put aside; anybody may call it."""
    with suppress(OSError):
        for found in list(final.parent.iterdir()):
            if is_hidden(found.name, final.name, "tmp") and (found / PUT_ASIDE).exists():
                with _held_if_dead(found) as is_dead:
                    if is_dead:
                        take_back_dead(found, StorageOptions())


def clear_dead_folders(final: Path, options: StorageOptions | None = None) -> None:
    """Remove what killed builders left: folders on their way that nobody holds.

    Tokens that such a builder had begun to publish go with it.
    """
    beside = []
    with suppress(FileNotFoundError):  # Whoever made the folder failed, and took it away again.
        beside = list(final.parent.iterdir())
    for found in beside:
        if is_hidden(found.name, final.name, "old"):
            shutil.rmtree(found, ignore_errors=True)
        elif is_hidden(found.name, final.name, "tmp"):
            with _held_if_dead(found) as is_dead:
                if is_dead and take_back_dead(found, options or StorageOptions()):
                    shutil.rmtree(found, ignore_errors=True)


@contextmanager
def _held_if_dead(folder: Path) -> Iterator[bool]:
    """Say whether a folder's builder is gone; if so, nobody else has it meanwhile."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        is_dead = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # Held by a living builder, or nobody can tell.
            is_dead = False
        yield is_dead
    finally:
        os.close(descriptor)


def mark(folder: Path) -> None:
    """Keep a folder out of repositories and backups."""
    mark_as_cache(folder, _WHAT)
