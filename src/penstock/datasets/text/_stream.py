"""Text that can only be decompressed from its beginning."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import OptionError, StaleIndexError
from penstock.jsonl import decompressed

if TYPE_CHECKING:
    from penstock.datasets.text._texts import Places
    from penstock.storage import OpenFile

_BLOCK = 1 << 20
_KEPT = 1 << 20
"""Text behind a head that can be asked for again, as is done to find a bad record in a batch."""
_HEADS = 2
"""Training and validation take turns without losing their places."""
_FREE_BEGINNINGS = 8
_CALLS_A_PASS = 8
"""A pass that begins where no other did goes forward in this many calls, on average. Records in
random order go back about every other time."""


class StreamText:
    """A file that can only be decompressed from its beginning; goes on where it stands.

    To go back is to decompress from the beginning again, as another epoch does, a resume, or an
    earlier state. `once` names a compression for which records in random order are refused, since
    that would be done for each of them.
    """

    def __init__(self, file: OpenFile, once: str = "", longest: int | None = None) -> None:
        self._file = file
        self._once = once
        self._longest = longest
        """Bytes of all records of the file, where that is known: one has no more."""
        self._lock = threading.Lock()
        self._heads: list[_Head] = []
        """The one used last stands last."""
        self._calls = 0
        self._beginnings = {0}
        """First places of all passes; that of another epoch is among them."""

    def read(self, offset: int, size: int) -> bytes:
        return self.read_many([offset], [size])[0]

    def read_many(self, offsets: Places, sizes: Places) -> list[bytes]:
        texts: dict[tuple[int, int], bytes] = {}
        places = list(zip(np.asarray(offsets).tolist(), np.asarray(sizes).tolist(), strict=True))
        with self._lock:
            self._calls += 1
            for offset, size in sorted(set(places)):
                texts[offset, size] = self._read(offset, size)
        return [texts[place] for place in places]

    def _read(self, offset: int, size: int) -> bytes:
        if self._longest is not None and size > self._longest:
            raise StaleIndexError(
                f"the index speaks of a record of {size:,} bytes in {self._file.path}, and of "
                f"{self._longest:,} in all its records. Build the index again: penstock index "
                "PATH --overwrite",
                path=self._file.path,
            )
        head = self._head(offset)
        text = head.read(offset, size)
        # A head that failed is not put back: it stands nowhere.
        self._heads.append(head)
        return text

    def _head(self, offset: int) -> _Head:
        """Take the head that comes to a place with the least work, or a new one."""
        behind = [head for head in self._heads if head.start <= offset]
        if behind:
            nearest = max(behind, key=lambda head: head.end)
            self._heads.remove(nearest)
            return nearest
        if self._once and offset not in self._beginnings:
            self._count_beginning(offset)
        del self._heads[: len(self._heads) + 1 - _HEADS]
        return _Head(self._file)

    def _count_beginning(self, offset: int) -> None:
        known = len(self._beginnings)
        if known >= _FREE_BEGINNINGS + self._calls // _CALLS_A_PASS:
            raise OptionError(
                f"{self._file.path} is compressed with {self._once}, which can only be read from "
                f"its beginning, and was begun for {known:,} places in {self._calls:,} reads. Ask "
                "for records in rising order; for any order write it with small zstd frames: "
                f"penstock convert {self._file.path} DST"
            )
        self._beginnings.add(offset)


class _Head:
    """A place that goes forward through the text of a file; what lies far behind is let go of."""

    def __init__(self, file: OpenFile) -> None:
        self._path = file.path
        self._blocks = decompressed(file, _BLOCK)
        self._held = b""
        self.start = self.end = 0
        """Of what is held."""

    def read(self, offset: int, size: int) -> bytes:
        """Return text from `start` on."""
        while self.end < offset + size:
            block = next(self._blocks, None)
            if block is None:
                raise StaleIndexError(
                    f"{self._path} ends at byte {self.end:,} of its text, before a record "
                    "that its index names. Build the index again: penstock index PATH --overwrite",
                    path=self._path,
                )
            let_go = min(max(0, offset - _KEPT - self.start), len(self._held))
            self._held = self._held[let_go:] + block
            self.start += let_go
            self.end += len(block)
        at = offset - self.start
        return self._held[at : at + size]
