"""The work folder of a build, which survives a killed builder."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ObjectChangedError, ObjectExistsError, StorageError, WorkerError
from penstock.index._folder import clear_dead_folders, held_folder, make_parent, mark, work_place
from penstock.index._names import hidden_name
from penstock.index.tokens._journal import JOURNAL
from penstock.storage import NO_ROOM, remove_special, remove_tree

if TYPE_CHECKING:
    from typing import Self

    from penstock.index._place import IndexPlace


def _may_go_on(kind: type[BaseException] | None, failure: BaseException | None) -> bool:
    """Whether the same work may succeed the next time, after this failure."""
    if kind is None or not issubclass(kind, Exception):
        return kind is not None
    if issubclass(kind, ObjectChangedError | ObjectExistsError):
        return False  # The data changed, or another process built it.
    if getattr(failure, "errno", None) in NO_ROOM:
        return False
    return issubclass(kind, StorageError | WorkerError)


class UnitFolder:
    """A hidden folder beside an index, named after the work, for the results of units.

    A builder that succeeds removes it. A builder that is killed or interrupted leaves it, and one
    whose storage or workers fail: the next builder of the same work uses the finished units, a
    builder of other work removes them. Other failures, a full disk among them, remove it. Without
    a key it cannot be found again.
    """

    def __init__(self, place: IndexPlace, key: str | None) -> None:
        self._final = work_place(place)
        self._key = key
        self._lock = -1
        self._is_remote = place.is_remote
        self._made: list[Path] = []
        """Folders around it that this builder makes, the inner ones first."""
        self.path = Path()

    def __enter__(self) -> Self:
        if not self._is_remote:  # The cache is shared.
            self._made = [one for one in self._final.parents if not one.exists()]
        make_parent(self._final)
        self.path = self._named(self._key)
        while (lock := held_folder(self.path)) < 0:
            # Locked by a builder with another cache directory, and so without a common build lock.
            self._key = None
            self.path = self._named(None)
        self._lock = lock
        try:
            remove_special(self.path)
            clear_dead_folders(self._final)
            mark(self.path)
        except BaseException:
            self.__exit__(BaseException)
            raise
        return self

    def _named(self, key: str | None) -> Path:
        return self._final.with_name(hidden_name(self._final.name, "tmp", key))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None = None,
        _trace: object = None,
    ) -> None:
        is_kept = self._key is not None and _may_go_on(kind, failure)
        is_kept = is_kept and any(self.path.glob("*.unit"))
        if is_kept and isinstance(failure, Exception):
            failure.add_note("Finished work is kept: the same call continues with the rest.")
        # A journal that is not undone yet exists only here.
        if not is_kept and not (self.path / JOURNAL).exists():
            remove_tree(self.path)
        if kind is not None:
            with suppress(OSError):  # One of them is not empty.
                for folder in self._made:
                    folder.rmdir()
        os.close(self._lock)
        self._lock = -1
