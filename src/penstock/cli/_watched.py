"""A scan of files that moves a progress."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from penstock.index import Found
from penstock.jsonl import compression_of
from penstock.storage import MeteredFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from penstock.cli._terminal import Progress
    from penstock.index import FileScan, Listing, Scanner
    from penstock.storage import Entry, OpenFile, Store


def watched(
    listing: Listing, scanner: Scanner, progress: Progress
) -> tuple[Listing, WatchedScanner]:
    """Return the same files and a scanner that shows how far it has come in them."""
    files = [
        found
        if compression_of(found.entry.name) is None
        else Found(cast("Store", _WatchedStore(found.store, progress)), found.entry)
        for found in listing.files
    ]
    return replace(listing, files=files), WatchedScanner(scanner, progress)


class WatchedScanner:
    """Finds what another scanner finds; see `penstock.index.Scanner`."""

    def __init__(self, scanner: Scanner, progress: Progress) -> None:
        self.kind = scanner.kind
        self._scanner = scanner
        self._progress = progress

    def options(self) -> dict[str, object]:
        """Return those of the other."""
        return self._scanner.options()

    def begin(
        self, path: str, facts: Mapping[str, object] | None = None, start: int = 0
    ) -> _WatchedScan:
        """Begin a file."""
        return _WatchedScan(self._scanner.begin(path, facts, start), self._progress, path)


class _WatchedScan:
    def __init__(self, scan: FileScan, progress: Progress, path: str) -> None:
        self._scan = scan
        self._progress = progress
        # Of a compressed file what was stored counts, which its store tells.
        self._counts = compression_of(path) is None

    def add(self, block: bytes | memoryview) -> NDArray[np.int64]:
        if self._counts:
            self._progress.read(len(block))
        self._progress.show()
        return self._scan.add(block)

    def finish(self) -> NDArray[np.int64]:
        return self._scan.finish()

    def facts(self) -> dict[str, object]:
        return self._scan.facts()


class _WatchedStore:
    """What a scan needs of a store."""

    def __init__(self, store: Store, progress: Progress) -> None:
        self._store = store
        self._progress = progress

    def path(self, name: str) -> str:
        return self._store.path(name)

    def open(self, name: str, known: Entry | None = None) -> OpenFile:
        return MeteredFile(self._store.open(name, known), self._progress.read)
