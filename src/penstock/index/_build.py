"""Building an index: every file scanned once, everything published at once."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from penstock.errors import IndexExistsError, OptionError, StaleIndexError
from penstock.index._blocks import LARGEST_FRAME, Frames, scan_file
from penstock.index._fingerprint import file_fingerprint, whole_hash
from penstock.index._folder import NewFolder
from penstock.index._meta import FORMAT, VERSION, FileMeta, Meta, Run, encode_meta
from penstock.index._names import FILES, FRAMES, META, ROWS
from penstock.index._stale import changes
from penstock.work import viewed

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from penstock.index._listing import Found, Listing
    from penstock.index._place import Place
    from penstock.index._sample_index import SampleIndex
    from penstock.index._scan import Scanner
    from penstock.work import View

_log = logging.getLogger("penstock.index")

Mode = Literal["new", "overwrite", "update"]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How an index is built."""

    progress: bool | View | None = None
    """Show a bar: by default in a terminal. Or whoever is told of bytes instead."""
    full_hash: bool = False
    """Also hash every byte of every file."""


def build_index(  # noqa: PLR0913 (what, how, where, and what becomes of the old one)
    listing: Listing,
    scanner: Scanner,
    place: Place,
    options: BuildOptions,
    old: SampleIndex | None = None,
    *,
    replace: bool = False,
) -> None:
    """Scan files and publish their index; with `old` only what is new since, after what it has."""
    with NewFolder(place) as folder:
        builder = _Builder(listing, scanner, folder.path, options)
        if old is not None:
            builder.take_over(old)
        builder.scan_all()
        builder.write(base=None if place.beside else place.base)
        folder.publish(replace=replace or old is not None)


@dataclass
class _Builder:
    listing: Listing
    scanner: Scanner
    folder: Path
    options: BuildOptions
    files: list[FileMeta] = field(default_factory=list)
    empty: list[FileMeta] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    frames: list[tuple[int, ...]] = field(default_factory=list)
    with_large_frames: list[str] = field(default_factory=list)

    def take_over(self, old: SampleIndex) -> None:
        """Begin with what an index has already."""
        meta = old.meta
        if meta is None:
            raise IndexExistsError(
                "an index of another tool cannot be updated, only built anew: --overwrite."
            )
        self.files, self.runs = list(meta.files), list(meta.runs)
        self.frames = [tuple(row) for row in old.frames.tolist()]
        with (self.folder / ROWS).open("wb") as rows:
            old.sample_locations.tofile(rows)

    def scan_all(self) -> None:
        """Scan the files that are new or grew."""
        known = {file.path: number for number, file in enumerate(self.files)}
        waiting = [
            (found, known.get(self.listing.relative(found)))
            for found in self.listing.files
            if self._is_new(found, known)
        ]
        total = sum(f.entry.size - (0 if n is None else self.files[n].size) for f, n in waiting)
        with (
            viewed(self.options.progress, total, "indexing") as bar,
            (self.folder / ROWS).open("ab") as rows,
        ):
            for found, number in waiting:
                self._scan(found, number, rows, bar)
        if self.with_large_frames:
            _log.warning(
                "%d files hold zstd frames of more than %d MB of text, first %s: a record from the "
                "middle of one costs reading what lies before it. penstock convert writes small "
                "frames",
                len(self.with_large_frames),
                LARGEST_FRAME >> 20,
                self.with_large_frames[0],
            )

    def _is_new(self, found: Found, known: dict[str, int]) -> bool:
        number = known.get(self.listing.relative(found))
        return number is None or self.files[number].size != found.entry.size

    def _scan(self, found: Found, number: int | None, rows: BinaryIO, bar: View) -> None:
        relative = self.listing.relative(found)
        if "\n" in relative:
            raise OptionError(f"{relative!r}: an index cannot name a file with a newline in it.")
        was = self.files[number] if number is not None else None
        start = 0 if was is None else was.size
        scan = self.scanner.begin(found.path, was.facts if was else None, start)
        frames = Frames()
        file_number = len(self.files) if number is None else number
        records = text_bytes = 0
        room = np.empty((0, 3), "<u8")  # Used again: fresh memory costs more than filling it.
        for places in scan_file(found, scan, start, bar.add, frames):
            if not len(places):
                continue
            if len(places) > len(room):
                room = np.empty((2 * len(places), 3), "<u8")
                room[:, 0] = file_number
            some = room[: len(places)]
            np.add(places[:, 0], start, out=some[:, 1], casting="unsafe")
            some[:, 2] = places[:, 1]
            rows.write(some.data)
            records += len(some)
            text_bytes += int(places[:, 1].sum())
        self._add(found, number, records, text_bytes, scan.facts())
        if records:
            self.frames += [(file_number, *row) for row in frames.rows]
            if max((text for *_, text in frames.rows), default=0) > LARGEST_FRAME:
                self.with_large_frames.append(found.path)

    def _add(
        self,
        found: Found,
        number: int | None,
        records: int,
        text_bytes: int,
        facts: dict[str, object],
    ) -> None:
        entry = found.entry
        file = found.store.open(entry.name, entry)
        try:
            fingerprint = file_fingerprint(file, entry.size)
            hashed = whole_hash(file) if self.options.full_hash else None
        finally:
            file.close()
        was = self.files[number] if number is not None else None
        meta = FileMeta(
            self.listing.relative(found),
            entry.size,
            entry.modified,
            fingerprint,
            records + (was.records if was else 0),
            text_bytes + (was.bytes if was else 0),
            entry.version,
            facts,
            hashed,
        )
        if number is not None:
            self.files[number] = meta
        elif records:
            number = len(self.files)
            self.files.append(meta)
        else:
            self.empty.append(meta)
        if records and number is not None:
            self.runs.append(Run(number, records, fingerprint))

    def write(self, base: str | None) -> None:
        """Write what stands beside the rows."""
        names = "".join(f"{file.path}\n" for file in self.files)
        (self.folder / FILES).write_text(names, encoding="utf-8", errors="surrogateescape")
        if self.frames:
            (self.folder / FRAMES).write_bytes(np.array(self.frames, "<u8").tobytes())
        meta = Meta(
            self.scanner.kind,
            self.files,
            self.runs,
            self.scanner.options(),
            self.empty,
            base,
            FORMAT,
            VERSION,
            time.time(),
        )
        (self.folder / META).write_bytes(encode_meta(meta))


def refuse_changed(listing: Listing, old: SampleIndex, folder: str) -> bool:
    """Return whether an update has anything to do; raise where records would be renumbered."""
    if old.meta is None:
        raise IndexExistsError(
            f"{folder} was made by another tool and cannot be updated, only built anew: --overwrite"
        )
    found = changes(listing, old.meta)
    if found.changed:
        path, what = found.changed[0]
        raise StaleIndexError(
            f"{path} {what} since the index in {folder} was built: an update would renumber "
            "records. Build it anew: penstock index PATH --overwrite",
            path=path,
        )
    return bool(found.grown or found.new)
