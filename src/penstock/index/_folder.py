"""The folder of an index on its way: hidden while it is written, there as a whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import IndexExistsError, ObjectExistsError, ObjectNotFoundError, StorageError
from penstock.index._aside import held_if_dead
from penstock.index._fingerprint import digest
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
    hidden_beside,
    hidden_name,
)
from penstock.index.tokens._journal import JOURNAL, Reach, take_back_dead
from penstock.storage import cache_directory, locate, mark_as_cache, remove_tree

if TYPE_CHECKING:
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
        keep_columns = keep_columns and not final.is_symlink()
        if keep_columns:
            link_folder(final / COLUMNS, self.path / COLUMNS)
        for file in self.path.iterdir():
            sync(file)
        sync(self.path)
        old = None
        if replace and os.path.lexists(final):
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
            remove_tree(old)

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
        remove_tree(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def held_folder(path: Path) -> int:
    """Make a folder, or find it, and hold it; return the lock, or -1 where another holds it.

    As long as the lock is open, nobody removes the folder.
    """
    for _ in range(_TRIES):
        try:
            path.mkdir(exist_ok=True)
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        except (FileExistsError, NotADirectoryError):  # A link, which is not followed.
            return -1
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
            f"cannot make {final.parent} for an index: {failure.strerror}.",
            remedy="Give it another place: index= (--index), or the variable PENSTOCK_CACHE for "
            "the cache.",
            path=str(final.parent),
        ) from None


def bring_back(place: Place) -> None:
    """Undo what killed builders left beside an index; the caller is the only builder.

    An index that one of them had put aside is there again, and tokens that it had begun to publish
    are gone.
    """
    final = work_place(place)
    if not os.path.lexists(final):
        for old in hidden_beside(str(final), "old"):
            if os.path.exists(f"{old}/{FILES}"):
                os.rename(old, final)
                break
    options, reach = place.options, Reach(place.folder, (place.base,), place.options)
    for found in map(Path, hidden_beside(str(final), "tmp")):
        with held_if_dead(found) as is_dead:
            if not is_dead or not os.path.lexists(found / JOURNAL):
                continue
            if take_back_dead(found, options, reach):
                remove_tree(found)


def work_place(place: Place) -> Path:
    """Return the folder beside which builders work: for a remote index one under the cache."""
    if place.is_remote:
        return cache_directory() / "indexes" / digest(place.folder)
    return Path(place.folder)


def clear_dead_folders(final: Path) -> None:
    """Remove what killed builders left: folders on their way that no process holds.

    One with a journal stays: `bring_back` undoes what it tells of.
    """
    for old in hidden_beside(str(final), "old") if final.exists() else ():
        remove_tree(old)
    for found in map(Path, hidden_beside(str(final), "tmp")):
        with held_if_dead(found) as is_dead:
            if is_dead and not os.path.lexists(found / JOURNAL):
                remove_tree(found)


def mark(folder: Path) -> None:
    """Keep a folder out of repositories and backups."""
    mark_as_cache(folder, _WHAT)
