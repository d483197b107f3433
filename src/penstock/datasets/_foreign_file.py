"""Files of datasets that other tools wrote: read as they were when the source was opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from penstock.datasets._network import is_network
from penstock.datasets.text._texts import MappedText, RangedText
from penstock.errors import ObjectNotFoundError, StaleIndexError
from penstock.storage import LocalStore

if TYPE_CHECKING:
    from penstock.datasets.text._texts import Text
    from penstock.index import Found


class MappedFile(MappedText):
    """A plain file on this machine, whose index another tool wrote."""

    __slots__ = ()

    def _fail(self, end: int) -> NoReturn:
        size = self._map.size() if self._map is not None else 0
        raise stale(self._path, f"a record ends at byte {end:,}, and the file has {size:,}")


def open_plain(found: Found) -> Text:
    """Open an uncompressed file: mapped, or by ranges where it is remote."""
    check_unchanged(found)
    if isinstance(found.store, LocalStore) and not is_network(found.entry.name):
        return MappedFile(found.entry.name, found.path)
    return RangedText(found.store.open(found.entry.name, found.entry))


def check_unchanged(found: Found) -> None:
    """Raise when a local file was written to; remote reads ask for the version that was found."""
    if isinstance(found.store, LocalStore):
        try:
            now = found.store.entry(found.entry.name)
        except ObjectNotFoundError:
            raise stale(found.path, "it is gone") from None
        if (now.size, now.modified) != (found.entry.size, found.entry.modified):
            sizes = f"{found.entry.size:,} bytes then, {now.size:,} now"
            raise stale(found.path, f"it was written to ({sizes})")


def stale(path: str, why: str) -> StaleIndexError:
    """Return the error about a file that changed under a source."""
    return StaleIndexError(
        f"{path} is not what it was when this source was opened: {why}. Open the source again.",
        path=path,
    )
