"""Builds an index: every file is scanned once, and the index published whole."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from penstock.errors import (
    CorruptIndexError,
    ObjectNotFoundError,
    OptionError,
    StaleIndexError,
)
from penstock.index._builder import Builder, Scanned
from penstock.index._folder import NewFolder
from penstock.index._load import read_meta
from penstock.index._scan import LineScanner, ScannedFrames, scan_file
from penstock.index._stale import changes, hashed_files
from penstock.index.checked._checks import Checks
from penstock.jsonl import compression_of
from penstock.order import whole_number
from penstock.storage import LocalStore
from penstock.work import viewed

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.index._listing import IndexPlace, Listing
    from penstock.index._meta import Meta
    from penstock.index._sample_index import SampleIndex
    from penstock.index._scan import Scanner
    from penstock.work import View

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

    @property
    def checks(self) -> Checks:
        return Checks(self.validate, self.profile, self.max_line_bytes)

    def check(self) -> None:
        self.checks.check()
        if self.num_workers is not None:
            whole_number("num_workers", self.num_workers, 0)

    def on_top_of(self, old: Meta, folder: str) -> BuildOptions:
        """Return the options of an update: it has the checks of the first build."""
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
        return replace(self, **was)  # type: ignore[arg-type]


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
    builder = Builder(listing, scanner, old)
    replacing = replacing or old is not None
    with ExitStack() as stack:
        if options.checks or _take_long(builder, options):
            # A plain scan does not need these modules.
            from penstock.index._folder import UnitFolder  # noqa: PLC0415
            from penstock.index.checked._build import scan_checked, unit_key  # noqa: PLC0415

            units = stack.enter_context(UnitFolder(place, unit_key(builder, options)))
            folder = stack.enter_context(NewFolder(place))
            scan_checked(builder, options, units.path, folder.path)
        else:
            folder = stack.enter_context(NewFolder(place))
            _scan_all(builder, folder.path, options)
        base = None if place.beside else place.base
        meta = builder.write(folder.path, base, options.checks)
        folder.publish(replace=replacing, keep_columns=replacing and _are_of(place, meta))
    return meta


def _take_long(builder: Builder, options: BuildOptions) -> bool:
    """Whether processes, which take time to start, make the scan faster.

    They do for compressed, remote and quoted text. In plain local lines, threads find the ends as
    fast as memory is read.
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
    """Whether the records of the index in a place keep their numbers."""
    if place.is_remote:
        return False  # Columns are not beside a remote index.
    try:
        before = read_meta(place.folder)
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
