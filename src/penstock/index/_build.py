"""Building an index: every file scanned once, everything published at once."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from penstock.errors import (
    CorruptIndexError,
    IndexExistsError,
    ObjectNotFoundError,
    OptionError,
    StaleIndexError,
)
from penstock.index._blocks import ScannedFrames, scan_file
from penstock.index._builder import Builder, Scanned
from penstock.index._folder import NewFolder
from penstock.index._load import read_meta
from penstock.index._scan import LineScanner
from penstock.index._stale import changes, hashed_files
from penstock.index.checked._checks import Checks
from penstock.jsonl import compression_of
from penstock.order import whole_number
from penstock.storage import LocalStore
from penstock.work import viewed

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.index._listing import Listing
    from penstock.index._meta import Meta
    from penstock.index._place import IndexPlace
    from penstock.index._sample_index import SampleIndex
    from penstock.index._scan import Scanner
    from penstock.work import View

_MUCH = 256 << 20
"""Bytes of compressed, remote or quoted text that are shared by processes."""

Mode = Literal["new", "overwrite", "update"]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How an index is built."""

    progress: bool | View | None = None
    """Show a bar: by default in a terminal. Or whoever is told of bytes instead."""
    full_hash: bool = False
    """Also hash every byte of every file."""
    validate: bool = False
    """Read every record, and set aside what cannot be read."""
    profile: bool = False
    """Note what the records hold."""
    max_line_bytes: int | None = None
    """Set aside what is longer, too."""
    num_workers: int | None = None
    """Processes that do this; by default one a processor, and none for little."""
    unit_bytes: int = 32 << 20
    """Bytes that one of them takes at a time."""

    @property
    def checks(self) -> Checks:
        """What is done with every record on the way."""
        return Checks(self.validate, self.profile, self.max_line_bytes)

    def check(self) -> None:
        """Raise `OptionError` for what cannot work."""
        self.checks.check()
        if self.num_workers is not None:
            whole_number("num_workers", self.num_workers, 0)

    def on_top_of(self, old: Meta, folder: str) -> BuildOptions:
        """Return how an index is updated: with the checks that it was built with."""
        checks = self.checks.on_top_of(old, folder)
        if self.full_hash and not old.is_hashed:
            raise OptionError(
                f"the index in {folder} was built without full_hash=True, and an update reads only "
                "what is new. Build it anew: --overwrite --full-hash (overwrite=True)."
            )
        return replace(
            self,
            full_hash=old.is_hashed,
            validate=checks.validate,
            profile=checks.profile,
            max_line_bytes=checks.max_line_bytes,
        )


def build_index(  # noqa: PLR0913 (what, how, where, and what becomes of the old one)
    listing: Listing,
    scanner: Scanner,
    place: IndexPlace,
    options: BuildOptions,
    old: SampleIndex | None = None,
    *,
    replacing: bool = False,
) -> None:
    """Scan files and publish their index; with `old` only what is new since, after what it has."""
    builder = Builder(listing, scanner, old)
    replacing = replacing or old is not None
    with ExitStack() as stack:
        if options.checks or _take_long(builder, options):
            # Only now: much is loaded for it that a plain scan does not need.
            from penstock.index.checked._build import scan_checked, unit_key  # noqa: PLC0415
            from penstock.index.checked._unit_folder import UnitFolder  # noqa: PLC0415

            units = stack.enter_context(UnitFolder(place, unit_key(builder, options)))
            folder = stack.enter_context(NewFolder(place))
            scan_checked(builder, options, units.path, folder.path)
        else:
            folder = stack.enter_context(NewFolder(place))
            _scan_all(builder, folder.path, options)
        base = None if place.beside else place.base
        meta = builder.write(folder.path, base, options.checks)
        folder.publish(replace=replacing, keep_columns=replacing and _are_of(place, meta))


def _take_long(builder: Builder, options: BuildOptions) -> bool:
    """Whether several processes, which have to start first, find records in less time.

    They do where text is decompressed, fetched or full of quotes. In plain lines on this machine
    threads find the ends as fast as memory goes.
    """
    if options.num_workers is not None:
        return options.num_workers > 0
    slow = [
        one.found.entry.size - one.start
        for one in builder.waiting
        if builder.scanner.kind != LineScanner.kind
        or compression_of(one.found.entry.name) is not None
        or not isinstance(one.found.store, LocalStore)
    ]
    return len(slow) > 1 and sum(slow) > _MUCH


def _scan_all(builder: Builder, folder: Path, options: BuildOptions) -> None:
    with (
        viewed(options.progress, builder.bytes, "indexing") as bar,
        builder.begin_rows(folder) as rows,
    ):
        for one in builder.waiting:
            facts = one.was.facts if one.was else None
            scan = builder.scanner.begin(one.found.path, facts, one.start)
            frames, scanned = ScannedFrames(), Scanned()
            places = scan_file(one.found, scan, one.start, bar.add, frames)
            builder.write_rows(one, places, rows, scanned, one.start)
            scanned.frames, scanned.facts = [frames.rows], scan.facts()
            builder.add(one, scanned, full_hash=options.full_hash)


def _are_of(place: IndexPlace, meta: Meta) -> bool:
    """Whether records that the index in a place speaks of still have their numbers."""
    if place.is_remote:
        return False  # What lies beside it there stays where it is.
    try:
        before = read_meta(place.folder)
    except (CorruptIndexError, ObjectNotFoundError):
        return False
    if before is None or meta.fingerprint_at(before.records) != before.fingerprint:
        return False
    now = {(file.path, file.size): file.hash for file in meta.files}
    # Where one of both was hashed, a file that is as long as then is the same, or something else.
    return all(file.hash == now.get((file.path, file.size), file.hash) for file in before.files)


def refuse_changed(listing: Listing, old: SampleIndex, folder: str) -> bool:
    """Return whether an update has anything to do; raise where records would be renumbered."""
    if old.meta is None:
        raise IndexExistsError(
            f"{folder} was made by another tool and cannot be updated, only built anew: --overwrite"
        )
    found = changes(listing, old.meta)
    # What was hashed of files that grew: nothing would tell of other bytes after the update.
    grown = {file.path for file in found.grown}
    hashed = [one for one in hashed_files(listing, old.meta) if one.path in grown]
    changed = found.changed or [(one.path, what) for one in hashed if (what := one.change())]
    if changed:
        path, what = changed[0]
        raise StaleIndexError(
            f"{path}: {what}, since the index in {folder} was built. An update would renumber "
            "records. Build it anew: penstock index PATH --overwrite",
            path=path,
        )
    return bool(found.grown or found.new)
