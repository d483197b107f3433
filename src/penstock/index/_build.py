"""Builds an index: every file is scanned once, and the index published whole."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO, Literal

import msgspec
import numpy as np

from penstock._words import counted
from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError, StaleIndexError
from penstock.index._fingerprint import file_fingerprint, whole_hash
from penstock.index._folder import NewFolder, UnitFolder
from penstock.index._heads import check_heads
from penstock.index._load import meta_of
from penstock.index._meta import FileMeta, Meta, RecordRun, write_meta
from penstock.index._names import COLUMNS, FRAMES, ROWS
from penstock.index._parts import FilePart, parts_of
from penstock.index._scan import LARGEST_FRAME, ScannedFrames, is_local_text, opened, scan_file
from penstock.index._stale import changes, hashed_files
from penstock.index._waiting import FileToScan, files_to_scan
from penstock.index.checked._checks import Checks
from penstock.order import whole_number
from penstock.storage import OpenFile, join, trim_cache
from penstock.work import viewed

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from penstock.index._listing import IndexPlace, Listing
    from penstock.index._sample_index import SampleIndex
    from penstock.index._scan import Scanner
    from penstock.work import View

_log = logging.getLogger("penstock.index")
_MUCH = 256 << 20
"""Bytes of compressed, remote or quoted text above which processes share the scan."""

Mode = Literal["new", "overwrite", "update"]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How an index is built."""

    progress: bool | View | None = None
    """Show a bar: by default in a terminal. Or an object whose `add` counts bytes."""
    full_hash: bool = False
    """Also hash every byte of every file."""
    validate: bool = False
    """Read every record, and set bad ones aside."""
    profile: bool = False
    """Profile the records."""
    max_line_bytes: int | None = None
    """Set longer lines aside."""
    num_workers: int | None = None
    """Processes; by default one a processor, and none for little data."""
    unit_bytes: int = 32 << 20
    """Bytes of a unit of work."""
    made_by: str | None = "index"
    """As in `meta.json`: `open` for an index that `penstock.open` made by itself."""

    @property
    def checks(self) -> Checks:
        return Checks(self.validate, self.profile, self.max_line_bytes)

    def check(self) -> None:
        self.checks.check()
        if self.num_workers is not None:
            whole_number("num_workers", self.num_workers, 0)

    def on_top_of(self, old: Meta, folder: str) -> BuildOptions:
        """Return the options of an update: it has the checks and the maker of the first build."""
        was = {
            "validate": old.validated,
            "profile": old.profiled,
            "full_hash": old.is_hashed,
            "max_line_bytes": old.max_line_bytes,
        }
        for option, value in was.items():
            if getattr(self, option) not in (None, False, value):
                raise OptionError(
                    f"the index in {folder} was built with {option}={value!r}, and an update reads "
                    f"only what is new. Build it anew: --overwrite --{option.replace('_', '-')} "
                    "(overwrite=True)."
                )
        return replace(self, made_by=old.made_by, **was)  # type: ignore[arg-type]


def build_index(  # noqa: PLR0913 (what, how, where, and the old one)
    listing: Listing,
    scanner: Scanner,
    place: IndexPlace,
    options: BuildOptions,
    old: SampleIndex | None = None,
    *,
    replacing: bool = False,
) -> Meta:
    """Scan files and publish their index; with `old`, append what is new since."""
    builder = Builder(listing, scanner, options, old)
    check_heads([one.found for one in builder.waiting if not one.start], scanner.kind)
    replacing = replacing or old is not None
    with ExitStack() as stack:
        if builder.options.checks or _take_long(builder):
            # A plain scan does not need this module.
            from penstock.index.checked._build import scan_checked, unit_key  # noqa: PLC0415

            units = stack.enter_context(UnitFolder(place, unit_key(builder)))
            folder = stack.enter_context(NewFolder(place))
            scan_checked(builder, units.path, folder.path)
        else:
            folder = stack.enter_context(NewFolder(place))
            _scan_all(builder, folder.path)
        meta = builder.write(folder.path, None if place.beside else place.base)
        folder.publish(replace=replacing, keep_columns=replacing and _keeps_columns(place, meta))
    trim_cache(place.folder)
    return meta


def _take_long(builder: Builder) -> bool:
    """Whether processes, which take time to start, make the scan faster.

    They do for compressed, remote and quoted text. In plain local lines, threads find the ends as
    fast as memory is read.
    """
    if builder.options.num_workers is not None:
        return builder.options.num_workers > 0
    if builder.bytes <= _MUCH:
        return False
    is_quick = builder.scanner.is_quick
    slow = [one for one in builder.waiting if not (is_quick and is_local_text(one.found.path))]
    parts = [part for one in slow for part in builder.parts_of(one)]
    return len(parts) > 1 and sum(part.size for part in parts) > _MUCH


def _scan_all(builder: Builder, folder: Path) -> None:
    with builder.progress() as bar, builder.begin_rows(folder) as rows:
        for one in builder.waiting:
            facts = one.was.facts if one.was else None
            scan = builder.scanner.begin(one.found.path, facts, one.start)
            frames = ScannedFrames()
            with opened(one.found) as file:
                places = scan_file(file, scan, one.start, bar.add, frames)
                builder.write_rows(one, places, rows, one.start)
                one.frames, one.facts = [frames.rows], scan.facts()
                builder.add(one, file)


def _keeps_columns(place: IndexPlace, meta: Meta) -> bool:
    """Whether the index in a place has columns, and its records keep their numbers."""
    if place.is_remote or not os.path.isdir(join(place.folder, COLUMNS)):
        return False
    try:
        before = meta_of(place)
    except (CorruptIndexError, ObjectNotFoundError):
        return False
    if before is None or meta.fingerprint_at(before.records) != before.fingerprint:
        return False
    now = {(file.path, file.size): file.hash for file in meta.files}
    # If either was hashed, a file of equal size must have an equal hash.
    return all(file.hash == now.get((file.path, file.size), file.hash) for file in before.files)


def has_additions(listing: Listing, old: Meta, folder: str) -> bool:
    """Return whether an update has anything to do; raise if it would renumber records."""
    found = changes(listing, old)
    # Files that grew: their hash of the first bytes is lost after the update.
    grown = {file.path for file in found.grown}
    hashed = [one for one in hashed_files(listing, old) if one.path in grown]
    changed = found.changed or [(one.path, what) for one in hashed if (what := one.change())]
    if changed:
        path, what = changed[0]
        raise StaleIndexError(
            f"{path}: {what}, since the index in {folder} was built. An update would renumber "
            "records. Build it anew: penstock index PATH --overwrite",
            path=path,
        )
    return bool(found.grown or found.new)


class Builder:
    """Begins with the content of an old index, if there is one, and adds scanned files."""

    def __init__(
        self, listing: Listing, scanner: Scanner, options: BuildOptions, old: SampleIndex | None
    ) -> None:
        self.listing, self.scanner, self.options, self.old = listing, scanner, options, old
        self.waiting = files_to_scan(listing, scanner, old)
        self._files: list[FileMeta] = []
        self._empty: list[FileMeta] = []
        self._runs: list[RecordRun] = []
        self._finished: dict[int, str] = {}
        """The runs whose last records went on, and the fingerprints of their files now."""
        self._frames: list[NDArray[np.uint64]] = []
        self._with_large_frames: list[str] = []
        if old is not None and old.meta is not None:
            self._files, self._runs = list(old.meta.files), list(old.meta.runs)
            again = [one.number for one in self.waiting if one.again and one.number is not None]
            self._frames = [old.frames[~np.isin(old.frames[:, 0], again)]]
            sizes = {listing.relative(found): found.entry.size for found in listing.files}
            self._empty = [file for file in old.meta.empty if sizes.get(file.path) == file.size]
        if options.profile and any(one.again for one in self.waiting):
            self.options = replace(options, profile=False)
            _log.warning(
                "the index has no profile from now on: it counts a record that was not complete "
                "yet. Make it again: penstock profile %s",
                listing.folder or listing.named[0],
            )

    @cached_property
    def bytes(self) -> int:
        """Stored bytes to scan."""
        return sum(one.found.entry.size - one.start for one in self.waiting)

    def parts_of(self, one: FileToScan) -> list[FilePart]:
        """Return the parts in which processes scan a file."""
        facts = one.was.facts if one.was else None
        return parts_of(one.found, one.start, self.scanner, self.options.unit_bytes, facts)

    def progress(self) -> AbstractContextManager[View]:
        return viewed(self.options.progress, self.bytes, "indexing")

    def begin_rows(self, folder: Path) -> BinaryIO:
        """Return the file of rows, with those of the old index."""
        rows = (folder / ROWS).open("wb")
        if self.old is not None:
            self.old.sample_locations.tofile(rows)
        return rows

    def write_rows(
        self, one: FileToScan, places: Iterable[NDArray[np.int64]], rows: BinaryIO, start: int = 0
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
            one.records += len(some)
            one.text_bytes += int(some[:, 1].sum())
            if one.again:
                part = self._write_again(one, part, rows)
            rows.write(part.data)

    def _write_again(
        self, one: FileToScan, part: NDArray[np.uint64], rows: BinaryIO
    ) -> NDArray[np.uint64]:
        """Write rows in place of those that the index has; return the rest of them."""
        assert self.old is not None  # noqa: S101 (it has them)
        before = 0
        for numbers in one.again:
            free = numbers[max(0, one.repeated - before) :]
            before += len(numbers)
            some, part = part[: len(free)], part[len(free) :]
            if len(some):
                there = self.old.sample_locations[free.start : free.start + len(some)]
                one.has_changed |= bool((there != some).any())
                one.repeated += len(some)
                rows.seek(free.start * some.strides[0])
                rows.write(some.data)
        rows.seek(0, os.SEEK_END)
        return part

    def add(self, one: FileToScan, file: OpenFile) -> None:
        """Add a file whose rows are written."""
        number, was, entry = one.number, one.was, one.found.entry
        if one.repeated < sum(map(len, one.again)):
            raise StaleIndexError(
                f"{one.found.path}: its last record went on since the index was built, and is none "
                "any more. An update would renumber records. Build the index anew: penstock index "
                "PATH --overwrite",
                path=one.found.path,
            )
        fingerprint = file_fingerprint(file, entry.size)
        hashed = whole_hash(file, entry.size) if self.options.full_hash else None
        meta = FileMeta(
            one.relative,
            entry.size,
            entry.modified,
            fingerprint,
            one.records + (was.records if was else 0),
            one.text_bytes + (was.bytes if was else 0),
            entry.version,
            one.facts,
            hashed,
            one.bad_lines + (was.bad_lines if was else 0),
            one.newlines,
        )
        if number is not None:
            self._files[number] = meta
        elif one.records:
            number = len(self._files)
            self._files.append(meta)
        else:
            self._empty.append(meta)
        if number is None:
            return
        if one.has_changed:
            self._finished[one.last_run] = fingerprint
        if one.records > one.repeated:
            self._runs.append(RecordRun(number, one.records - one.repeated, fingerprint))
        if one.records:
            frames = np.concatenate([np.empty((0, 4), np.int64), *one.frames])
            self._frames.append(np.insert(frames, 0, number, axis=1).astype("<u8"))
            if frames[:, 3].max(initial=0) > LARGEST_FRAME:
                self._with_large_frames.append(one.found.path)

    def write(self, folder: Path, base: str | None) -> Meta:
        """Write the other files of the index."""
        before = 0 if self.old is None else len(self.old)
        has_more = sum(run.records for run in self._runs) > before
        for number, fingerprint in self._finished.items():
            self._runs[number] = msgspec.structs.replace(
                self._runs[number], finished=fingerprint, finished_after=before * has_more
            )
        if self._with_large_frames:
            _log.warning(
                "%s zstd frames of more than %d MB of text, first %s: a record from the middle of "
                "one costs reading what lies before it. penstock convert writes small frames",
                counted(len(self._with_large_frames), "file", ("holds", "hold")),
                LARGEST_FRAME >> 20,
                self._with_large_frames[0],
            )
        if any(map(len, self._frames)):
            frames = np.concatenate(self._frames).astype("<u8")
            frames = frames[np.argsort(frames[:, 0], kind="stable")]
            (folder / FRAMES).write_bytes(frames.tobytes())
        meta = Meta(
            self.scanner.kind,
            self._files,
            self._runs,
            self.scanner.options(),
            self._empty,
            base,
            created=time.time(),
            validated=self.options.validate,
            max_line_bytes=self.options.max_line_bytes,
            profiled=self.options.profile,
            made_by=self.options.made_by,
        )
        write_meta(folder, meta)
        return meta
