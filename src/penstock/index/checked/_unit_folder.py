"""The work folder of a build, which survives a killed builder."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import ObjectChangedError, ObjectExistsError, StorageError, WorkerError
from penstock.index._folder import clear_dead_folders, make_parent, mark, work_place
from penstock.index.tokens._journal import JOURNAL
from penstock.storage import NO_ROOM, HiddenFolder, remove_special

if TYPE_CHECKING:
    from pathlib import Path
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
        self._hidden = HiddenFolder(work_place(place), key=key)
        self._is_remote = place.is_remote
        self._made: list[Path] = []
        """Folders around it that were not there, the inner ones first."""

    @property
    def path(self) -> Path:
        """Where the units lie."""
        return self._hidden.path

    def __enter__(self) -> Self:
        if not self._is_remote:  # The cache is shared.
            self._made = [one for one in self._hidden.final.parents if not one.exists()]
        make_parent(self._hidden.final)
        self._hidden.__enter__()
        try:
            remove_special(self.path)
            clear_dead_folders(self._hidden.final)
            mark(self.path)
        except BaseException:
            self.__exit__(BaseException)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None = None,
        _trace: object = None,
    ) -> None:
        if not self._hidden.is_held:
            return  # A process that was forked from the builder.
        is_kept = self._hidden.key is not None and _may_go_on(kind, failure)
        is_kept = is_kept and any(self.path.glob("*.unit"))
        if is_kept and isinstance(failure, Exception):
            failure.add_note("Finished work is kept: the same call continues with the rest.")
        # A journal that is not undone yet exists only here.
        self._hidden.close(keep=is_kept or (self.path / JOURNAL).exists())
        if kind is not None:
            with suppress(OSError):  # One of them is not empty.
                for folder in self._made:
                    folder.rmdir()
