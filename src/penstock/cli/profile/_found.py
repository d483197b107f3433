"""The profile of a PATH: found beside its index or in the cache, or made and kept there."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from penstock.cli._indexed import index_facts, index_of
from penstock.cli._terminal import Progress
from penstock.datasets import keep_profile, known_profile, open_found, profile_of
from penstock.index import BuildOptions, look_at, make_index, place_of, read_profile

if TYPE_CHECKING:
    from penstock.cli._indexed import Indexed
    from penstock.datasets import Source
    from penstock.index import Detected, Listing, Meta, Mode, Scanner

_log = logging.getLogger("penstock.cli")


@dataclass(frozen=True, slots=True)
class FoundProfile:
    """A profile, and the records that it describes."""

    document: dict[str, Any]
    """The contents of `profile.json`."""
    created: float
    source: Source | None
    """None where the index cannot be used."""
    is_new: bool = False
    """Whether it was made just now."""


@dataclass(frozen=True, slots=True)
class ProfileSearch:
    """Finds the profile of a PATH, or makes it if there is none of the present records."""

    path: str
    at_path: Detected
    workers: int | None = None

    def find(self) -> FoundProfile:
        """Return the profile.

        JSON Lines and CSV without an index get one with a profile, in one pass over the files. An
        index without a profile is built again where records keep their numbers. For everything
        else records are read, and their profile is kept in the cache directory.
        """
        if self.at_path.format.folder is not None:
            return self._of_source(open_found(self.at_path))
        facts = index_facts(self.path, self.at_path)
        found = self.at_path.checked()
        if facts.problem is not None or (facts.found is not None and facts.found.is_stale):
            _log.warning(
                "the index is damaged or stale, and the profile is not kept; penstock index %s %s "
                "--profile repairs it",
                self.path,
                "--overwrite" if facts.found is None else facts.found.remedy,
            )
            return self._unkept(found.listing, found.scanner())
        if facts.found is not None:
            return self._of_index(facts.found)
        if found.format.scanner is None:
            return self._of_source(open_found(found))
        place = place_of(found.listing, found.scanner(), found.options, found.index)
        self._build(found.listing, found.scanner(), "new", place.folder)
        return self._of_new_index()

    def _build(
        self,
        listing: Listing,
        scanner: Scanner,
        mode: Mode,
        folder: str,
        **options: Any,  # noqa: ANN401 (of `BuildOptions`)
    ) -> None:
        """Build an index with a profile."""
        with Progress(listing.bytes) as progress:
            build = BuildOptions(
                progress=progress, profile=True, num_workers=self.workers, **options
            )
            make_index(
                listing, scanner, mode, options=self.at_path.options, index=folder, build=build
            )

    def _of_index(self, indexed: Indexed) -> FoundProfile:
        source, meta = indexed.source(self.at_path.options), indexed.meta
        if meta is None or known_profile(source) is not None or not _keeps_numbers(indexed, meta):
            return self._of_source(source)
        self._build(
            indexed.listing,
            indexed.format.scanner_for(made_with=meta.options),
            "overwrite",
            indexed.place.folder,
            full_hash=meta.is_hashed,
            validate=meta.validated,
            max_line_bytes=meta.max_line_bytes,
        )
        return self._of_new_index()

    def _of_new_index(self) -> FoundProfile:
        options = self.at_path.options
        indexed = index_of(self.path, look_at(self.path, options, self.at_path.index))
        assert indexed is not None  # noqa: S101 (it was just built)
        return replace(self._of_source(indexed.source(options)), is_new=True)

    def _of_source(self, source: Source) -> FoundProfile:
        known = known_profile(source)
        if known is not None:
            return FoundProfile(known.document, known.created, source)
        with Progress(len(source), unit="records") as progress:
            document = profile_of(source, workers=self.workers, progress=progress).document()
        keep_profile(source, document)
        return FoundProfile(document, time.time(), source, is_new=True)

    def _unkept(self, listing: Listing, scanner: Scanner) -> FoundProfile:
        """Profile files as they are now, in a temporary index."""
        with TemporaryDirectory(prefix="penstock-profile-") as folder:
            self._build(listing, scanner, "new", f"{folder}/index")
            document = read_profile(f"{folder}/index")
        assert document is not None  # noqa: S101 (it was just built)
        return FoundProfile(document, time.time(), None, is_new=True)


def _keeps_numbers(indexed: Indexed, meta: Meta) -> bool:
    """Whether an index can be built again, and records would keep their numbers."""
    folder = Path(indexed.place.folder)
    if indexed.place.is_remote or indexed.since.new:
        return False
    if not (os.access(folder, os.W_OK | os.X_OK) and os.access(folder.parent, os.W_OK | os.X_OK)):
        return False
    empty = {file.path for file in meta.empty}
    names = [indexed.listing.relative(found) for found in indexed.listing.files]
    in_order = [name for name in names if name not in empty]
    # An update puts new files behind all others, regardless of their names.
    runs = [run.file for run in meta.runs]
    return [file.path for file in meta.files] == in_order and runs == list(range(len(in_order)))
