"""Files that tell how much of them has been read, whoever reads them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.index import Found
from penstock.storage import LocalStore, MeteredFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.cli._terminal import Progress
    from penstock.index import Listing
    from penstock.storage import Entry, OpenFile, Store

_TICK = 0.2


@contextmanager
def watched(listing: Listing, progress: Progress) -> Iterator[Listing]:
    """Give the same files, whose reading moves the progress and shows it."""
    counting = threading.Lock()
    ended = threading.Event()

    def read(count: int) -> None:
        with counting:
            progress.read(count)

    def show() -> None:
        while not ended.wait(_TICK):
            progress.show()

    files = [Found(_watched(found.store, read), found.entry) for found in listing.files]
    shower = threading.Thread(target=show, name="penstock-progress", daemon=True)
    shower.start()
    try:
        yield replace(listing, files=files)
    finally:
        ended.set()
        shower.join()


def _watched(store: Store, on_read: Callable[[int], object]) -> Store:
    if isinstance(store, LocalStore):
        return _WatchedLocal(on_read=on_read)
    from penstock.storage import ObjectStore  # noqa: PLC0415 (obstore only when needed)

    @dataclass(frozen=True, slots=True)
    class WatchedObjects(ObjectStore):
        """A bucket that counts what is read of it."""

        def open(self, name: str, known: Entry | None = None) -> OpenFile:  # type: ignore[override]
            """Open an object for reading."""
            return MeteredFile(ObjectStore.open(self, name, known), on_read)

    assert isinstance(store, ObjectStore)  # noqa: S101 (there is no third)
    return WatchedObjects(store.url, store.options)


@dataclass(frozen=True, slots=True)
class _WatchedLocal(LocalStore):
    """The local file systems, counting what is read of them."""

    on_read: Callable[[int], object]

    def open(self, name: str, known: Entry | None = None) -> OpenFile:  # type: ignore[override]
        """Open a file for reading."""
        return MeteredFile(LocalStore.open(self, name, known), self.on_read)
