"""Where finished units wait for the others: kept when a builder is killed, for the next one."""

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

    from penstock.index._place import Place


def _may_go_on(kind: type[BaseException] | None, failure: BaseException | None) -> bool:
    """Whether the same work may end well another time, after what ended it now."""
    if kind is None or not issubclass(kind, Exception):
        return kind is not None
    if issubclass(kind, ObjectChangedError | ObjectExistsError):
        return False  # It is not the same any more, or another builder has done it.
    if getattr(failure, "errno", None) in NO_ROOM:
        return False
    return issubclass(kind, StorageError | WorkerError)


class UnitFolder:
    """A hidden folder beside an index that is named after what is built; gone when that is there.

    A builder that is killed or interrupted leaves it, and one whose storage or workers fail; the
    next one that builds the same finds what is done. One that builds anything else removes it, and
    so does one that fails in another way, or for want of room. Without a key it is not found again.
    """

    def __init__(self, place: Place, key: str | None) -> None:
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
            failure.add_note("What was finished is kept: the same call goes on with what is left.")
        # What was not taken back yet lies here alone.
        self._hidden.close(keep=is_kept or (self.path / JOURNAL).exists())
        if kind is not None:
            with suppress(OSError):  # Something lies in one of them.
                for folder in self._made:
                    folder.rmdir()
