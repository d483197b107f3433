"""An index while it is built: its files, where their records are, and their facts."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.index._fingerprint import file_fingerprint, whole_hash
from penstock.index._meta import FileMeta, Meta, RecordRun, write_meta
from penstock.index._names import FRAMES, ROWS, refuse_unnamable
from penstock.index._scan import LARGEST_FRAME

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from penstock.index._listing import Found, Listing
    from penstock.index._sample_index import SampleIndex
    from penstock.index._scan import Scanner
    from penstock.index.checked._checks import Checks

_log = logging.getLogger("penstock.index")


class FileToScan(NamedTuple):
    found: Found
    relative: str
    number: int | None
    """Its number, if the index has records of it."""
    was: FileMeta | None
    """The file as the index has it."""

    @property
    def start(self) -> int:
        return 0 if self.was is None else self.was.size


@dataclass(slots=True)
class Scanned:
    """The results of a file's scan, so far."""

    records: int = 0
    text_bytes: int = 0
    frames: list[NDArray[np.int64]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    bad_lines: int = 0
    newlines: int | None = None


class Builder:
    """Begins with the content of an old index, if there is one, and adds scanned files."""

    def __init__(self, listing: Listing, scanner: Scanner, old: SampleIndex | None = None) -> None:
        self.listing = listing
        self.scanner = scanner
        self.old = old
        self._files: list[FileMeta] = []
        self._empty: list[FileMeta] = []
        self._runs: list[RecordRun] = []
        self._frames: list[NDArray[np.uint64]] = []
        self._with_large_frames: list[str] = []
        if old is not None and old.meta is not None:
            self._files, self._runs = list(old.meta.files), list(old.meta.runs)
            self._frames = [old.frames]
            sizes = {listing.relative(found): found.entry.size for found in listing.files}
            self._empty = [file for file in old.meta.empty if sizes.get(file.path) == file.size]
        self.waiting = self._waiting()

    def _waiting(self) -> list[FileToScan]:
        """Return the files that are new, and those that grew."""
        known = {file.path: (number, file) for number, file in enumerate(self._files)}
        unchanged = {file.path for file in self._empty}
        waiting = []
        for found in self.listing.files:
            relative = self.listing.relative(found)
            refuse_unnamable(relative)
            number, was = known.get(relative, (None, None))
            if relative not in unchanged and (was is None or was.size != found.entry.size):
                waiting.append(FileToScan(found, relative, number, was))
        return waiting

    @property
    def bytes(self) -> int:
        """Stored bytes to scan."""
        return sum(one.found.entry.size - one.start for one in self.waiting)

    def begin_rows(self, folder: Path) -> BinaryIO:
        """Return the file of rows, with those of the old index."""
        rows = (folder / ROWS).open("wb")
        if self.old is not None:
            self.old.sample_locations.tofile(rows)
        return rows

    def write_rows(
        self,
        one: FileToScan,
        places: Iterable[NDArray[np.int64]],
        rows: BinaryIO,
        scanned: Scanned,
        start: int = 0,
    ) -> None:
        """Write where records are: offset (from `start` on) and bytes, int64[k, 2] each."""
        number = len(self._files) if one.number is None else one.number
        room = np.empty((0, 3), "<u8")  # Reused: fresh memory costs more than filling it.
        for some in places:
            if not len(some):
                continue
            if len(some) > len(room):
                room = np.empty((2 * len(some), 3), "<u8")
                room[:, 0] = number
            part = room[: len(some)]
            np.add(some[:, 0], start, out=part[:, 1], casting="unsafe")
            part[:, 2] = some[:, 1]
            rows.write(part.data)
            scanned.records += len(some)
            scanned.text_bytes += int(some[:, 1].sum())

    def add(self, one: FileToScan, scanned: Scanned, *, full_hash: bool) -> None:
        """Add a file whose rows are written."""
        number, was, entry = one.number, one.was, one.found.entry
        with one.found.open() as file:
            fingerprint = file_fingerprint(file, entry.size)
            hashed = whole_hash(file) if full_hash else None
        meta = FileMeta(
            one.relative,
            entry.size,
            entry.modified,
            fingerprint,
            scanned.records + (was.records if was else 0),
            scanned.text_bytes + (was.bytes if was else 0),
            entry.version,
            scanned.facts,
            hashed,
            scanned.bad_lines + (was.bad_lines if was else 0),
            scanned.newlines,
        )
        if number is not None:
            self._files[number] = meta
        elif scanned.records:
            number = len(self._files)
            self._files.append(meta)
        else:
            self._empty.append(meta)
        if scanned.records and number is not None:
            self._runs.append(RecordRun(number, scanned.records, fingerprint))
            frames = np.concatenate([np.empty((0, 4), np.int64), *scanned.frames])
            self._frames.append(np.insert(frames, 0, number, axis=1).astype("<u8"))
            if frames[:, 3].max(initial=0) > LARGEST_FRAME:
                self._with_large_frames.append(one.found.path)

    def write(self, folder: Path, base: str | None, checks: Checks) -> Meta:
        """Write the other files of the index."""
        if self._with_large_frames:
            _log.warning(
                "%d files hold zstd frames of more than %d MB of text, first %s: a record from the "
                "middle of one costs reading what lies before it. penstock convert writes small "
                "frames",
                len(self._with_large_frames),
                LARGEST_FRAME >> 20,
                self._with_large_frames[0],
            )
        if any(map(len, self._frames)):
            (folder / FRAMES).write_bytes(np.concatenate(self._frames).astype("<u8").tobytes())
        meta = Meta(
            self.scanner.kind,
            self._files,
            self._runs,
            self.scanner.options(),
            self._empty,
            base,
            created=time.time(),
            validated=checks.validate,
            max_line_bytes=checks.max_line_bytes,
            profiled=checks.profile,
        )
        write_meta(folder, meta)
        return meta
