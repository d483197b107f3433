"""The folder of an index: one process at a time builds it, and it appears whole or not at all."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from penstock.errors import (
    CorruptIndexError,
    IndexExistsError,
    IndexTimeoutError,
    ObjectChangedError,
    ObjectExistsError,
    StorageError,
    WorkerError,
)
from penstock.index._fingerprint import digest
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
    TRAINED,
)
from penstock.index.tokens._journal import JOURNAL, Reach, journal_problem, take_back_dead
from penstock.storage import (
    NO_HARD_LINKS,
    NO_ROOM,
    HiddenFolder,
    StorageOptions,
    cache_directory,
    has_builder,
    hidden_beside,
    hidden_of,
    locate,
    mark_as_cache,
    only_one,
    publish_folder,
    remove_dead,
    remove_special,
    remove_tree,
    sync,
    upload_folder,
)

if TYPE_CHECKING:
    from penstock.index._listing import IndexPlace

_WHAT = "Made by Penstock from the data beside it, or named in meta.json; it can be made again."
_GAP_SECONDS = 3.0
"""For how long an index may be gone while it is replaced."""
_LOOKS = 3
"""Between two looks one builder may end and the next one begin."""
_PAUSE = 0.002
_NOT_ALWAYS = (FRAMES, BAD_LINES, PROFILE, PROFILE_STATE, TRAINED, *DOCUMENT_FILES)


class NewFolder(HiddenFolder):
    """A hidden folder that becomes the index, or vanishes with its `with` block.

    Unless `is_kept`, backups and repositories leave it out.
    """

    def __init__(self, place: IndexPlace, *, is_kept: bool = False) -> None:
        super().__init__(Path(place.folder))
        self._place, self._is_remote = place, place.is_remote
        self._is_marked = not is_kept and not self._is_remote

    def __enter__(self) -> Self:
        if self._is_remote:
            self.final = Path(tempfile.mkdtemp(prefix="penstock-index-"), "index")
        else:
            make_parent(self.final)
            clear_dead_folders(self.final)
        try:
            super().__enter__()
            if self._is_marked:
                mark_as_cache(self.path, _WHAT)
        except BaseException:
            self.__exit__()
            raise
        return self

    def publish(self, *, replace: bool, keep_columns: bool = False) -> None:
        """Make everything visible at once; without `replace` an index that is there stays.

        `keep_columns` takes along the columns that lie in the one that is replaced.
        """
        final, path, columns = self.final, self.path, self.final / COLUMNS
        try:
            if self._is_remote:
                store, name = locate(self._place.folder, self._place.options)
                files = [file.name for file in path.iterdir()]
                upload_folder(store, path, name, files, META, replace=replace, obsolete=_NOT_ALWAYS)
            elif keep_columns and not final.is_symlink():
                if _is_folder(columns):
                    _link_folder(columns, path / COLUMNS)
                rescue = partial(_move_rest, columns)
                publish_folder(path, final, replace=replace, rescue=rescue)
            else:
                publish_folder(path, final, replace=replace)
        except ObjectExistsError:
            raise IndexExistsError(
                f"{self._place.folder} appeared while it was being built; the one that is there "
                "stays."
            ) from None

    def __exit__(self, *_: object) -> None:
        is_held = self.is_held
        self.close()
        if self._is_remote and is_held:
            remove_tree(self.final.parent)


@contextmanager
def only_builder(folder: str, timeout: float = 3600.0) -> Iterator[None]:
    """Hold the right to build an index in a folder; another process may just have built it.

    The lock lies under the cache directory, so that data that may not be written to needs none.
    Between machines the first rename wins.
    """
    late = IndexTimeoutError(
        f"another process has been building the index in {folder} for {timeout:,.0f} s and has not "
        "finished. Wait for it, or build the index once beforehand: penstock index PATH",
        path=folder,
    )
    with only_one(_lock_file(f"{digest(folder)}.lock"), timeout, late):
        yield


def _lock_file(name: str) -> Path:
    file = cache_directory() / "locks" / name
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError:  # A cache that may not be written to; the index may lie elsewhere.
        file = Path(tempfile.gettempdir(), f"penstock-locks-{os.getuid()}", name)
        file.parent.mkdir(parents=True, exist_ok=True)
    return file


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


def work_place(place: IndexPlace) -> Path:
    """Return the folder beside which builders work: for a remote index one under the cache."""
    if place.is_remote:
        return cache_directory() / "indexes" / digest(place.folder)
    return Path(place.folder)


def bring_back(place: IndexPlace) -> None:
    """Undo what killed builders left beside an index; the caller is the only builder.

    An index that one of them put aside is there again, and tokens that one began to publish are
    gone.
    """
    final = work_place(place)
    bring_back_records(str(final))
    options, reach = place.options, Reach(place.folder, (place.base,), place.options)
    _remove_dead(final, lambda found: _has_journal(found) and take_back_dead(found, options, reach))


def bring_back_records(folder: str) -> None:
    """Give an index that a killed builder put aside its name again; the caller builds alone."""
    if not os.path.lexists(folder) and not has_builder(folder):
        for old in old_indexes(folder)[:1]:
            os.rename(old, folder)


def clear_dead_folders(final: Path) -> None:
    """Remove what killed builders left beside an index.

    A folder with a journal stays: `bring_back` undoes what the journal names.
    """
    for old in hidden_beside(str(final), "old") if final.exists() else ():
        remove_tree(old)
    _remove_dead(final, lambda found: not _has_journal(found))


def clear_replaced(place: IndexPlace) -> None:
    """Remove the index that a builder replaced before it was killed, while none is at work."""
    if not place.is_remote and hidden_beside(place.folder, "old"):
        with suppress(IndexTimeoutError, OSError), only_builder(place.folder, 0):
            clear_dead_folders(Path(place.folder))


def _remove_dead(final: Path, undo: Callable[[Path], bool]) -> None:
    for found in hidden_beside(str(final), "tmp"):
        with suppress(OSError):  # The folder of another user.
            remove_dead(found, undo)


def _has_journal(folder: str | Path) -> bool:
    return os.path.lexists(f"{folder}/{JOURNAL}")


def remove_leftover(path: str, options: StorageOptions, *, undecided: bool = False) -> bool:
    """Remove a draft or a hidden folder whose writer is gone; return whether that was so.

    With `undecided` also where that cannot be known. Tokens that a builder was killed in replacing
    come back first.
    """
    return remove_dead(path, lambda found: take_back_dead(found, options), undecided=undecided)


def leftover_problem(path: str, options: StorageOptions) -> str | None:
    """Return why `remove_leftover` cannot remove what a dead writer left; None where it can."""
    folder = Path(path)
    return journal_problem(folder, options) if hidden_of(folder.name, "tmp") else None


def put_aside(folder: str) -> list[str]:
    """Return where indexes lie that were put aside to be replaced by one in this folder."""
    journals = filter(_has_journal, hidden_beside(folder, "tmp"))
    of_tokens = [f"{found}/{PUT_ASIDE}" for found in journals]
    return [*old_indexes(folder), *filter(os.path.isdir, of_tokens)]


def old_indexes(folder: str) -> list[str]:
    """Return the hidden folders with an index that had this folder's name."""
    return [old for old in hidden_beside(folder, "old") if os.path.exists(f"{old}/{FILES}")]


def put_aside_in(directory: str) -> list[tuple[Path, Path]]:
    """Return indexes in a directory that killed builders put aside, each with its place.

    Not those in the folder of a builder of tokens: its journal brings them back.
    """
    with suppress(OSError):
        names = {hidden_of(path.name, "old") for path in Path(directory).iterdir()}
        finals = sorted(Path(directory) / name for name in names if name is not None)
        return [
            (Path(aside[0]), final)
            for final in finals
            if not os.path.lexists(final) and not has_builder(str(final))
            if (aside := old_indexes(str(final)))
        ]
    return []


def appears(folder: str, is_there: Callable[[], bool]) -> bool:
    """Whether there is an index; waits for a living builder that put one aside just now."""
    deadline, looks = time.monotonic() + _GAP_SECONDS, 0
    while not is_there():
        if not put_aside(folder) or looks == _LOOKS or time.monotonic() > deadline:
            return is_there()
        looks = 0 if has_builder(folder) else looks + 1
        time.sleep(_PAUSE)
    return True


def refuse_put_aside(folder: str) -> None:
    """Raise where a killed builder has put an index aside; the error names the way back."""
    aside = [] if os.path.lexists(folder) else put_aside(folder)
    if not aside or has_builder(folder):
        return
    around = os.path.dirname(aside[0])
    remedy = f"Bring it back: penstock clean {shlex.quote(os.path.dirname(folder))}"
    if os.path.basename(aside[0]) == PUT_ASIDE:
        remedy = journal_problem(Path(around), StorageOptions()) or remedy
    raise CorruptIndexError(
        f"there is no index in {folder}: a builder that was killed has put it aside, as "
        f"{aside[0]}. {remedy}",
        path=folder,
    )


def _link_folder(old: Path, new: Path) -> None:
    """Give the files of a folder a second name in another: linked, or copied where that fails.

    Hidden folders are on their way, and stay where they are. Links are neither followed nor copied.
    """
    new.mkdir()
    with os.scandir(old) as found:
        for entry in found:
            path, name = Path(entry), new / entry.name
            try:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    _link_folder(path, name)
                elif entry.is_file(follow_symlinks=False):
                    _link(path, name)
            except FileNotFoundError:  # Another process dropped the column in this moment.
                shutil.rmtree(name, ignore_errors=True)
    sync(new)


def _link(path: Path, new: Path) -> None:
    try:
        new.hardlink_to(path)
    except OSError as failure:
        if failure.errno not in NO_HARD_LINKS:
            raise
        shutil.copyfile(path, new)
        sync(new)


def _move_rest(new: Path, old: Path) -> None:
    """Move the columns that appeared in an old index since the others were linked."""
    if not _is_folder(old / COLUMNS):
        return
    new.mkdir(exist_ok=True)
    for path in (old / COLUMNS).iterdir():
        if not (path.is_symlink() or (new / path.name).exists()):
            with suppress(OSError):
                path.rename(new / path.name)


def _is_folder(path: Path) -> bool:
    """Whether a folder itself has this name, not a link to one."""
    return path.is_dir() and not path.is_symlink()


def _may_go_on(failure: object) -> bool:
    """Whether the same work may succeed the next time, after this failure."""
    if not isinstance(failure, Exception):
        return failure is not None
    # The data changed, or another process built it.
    is_final = isinstance(failure, ObjectChangedError | ObjectExistsError)
    has_room = getattr(failure, "errno", None) not in NO_ROOM
    return isinstance(failure, StorageError | WorkerError) and has_room and not is_final


class UnitFolder(HiddenFolder):
    """A hidden folder beside an index, named after the work, for the results of units.

    A builder that succeeds removes it. A builder that is killed or interrupted leaves it, and one
    whose storage or workers fail: the next builder of the same work uses the finished units, a
    builder of other work removes them. Other failures, a full disk among them, remove it. Without
    a key it cannot be found again.
    """

    def __init__(self, place: IndexPlace, key: str | None) -> None:
        super().__init__(work_place(place), key=key)
        self._is_remote = place.is_remote
        self._made: list[Path] = []
        """Folders around it that were not there, the inner ones first."""

    def __enter__(self) -> Self:
        if not self._is_remote:  # The cache is shared.
            self._made = [one for one in self.final.parents if not one.exists()]
        make_parent(self.final)
        super().__enter__()
        try:
            remove_special(self.path)
            clear_dead_folders(self.final)
            mark_as_cache(self.path, _WHAT)
        except BaseException:
            self.__exit__(None, BaseException())  # Keeps the units that were there before.
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        if not self.is_held:
            return  # A process that was forked from the builder.
        failure = raised[1]
        is_kept = self.key is not None and _may_go_on(failure)
        is_kept = is_kept and any(self.path.glob("*.unit"))
        if is_kept and isinstance(failure, Exception):
            failure.add_note("Finished work is kept: the same call continues with the rest.")
        # A journal that is not undone yet exists only here.
        self.close(keep=is_kept or (self.path / JOURNAL).exists())
        if failure is not None:
            with suppress(OSError):  # One of them is not empty.
                for folder in self._made:
                    folder.rmdir()
