"""The profile of a PATH: the one that is there, or one that is made and kept."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from penstock.cli._by_number import source_of
from penstock.cli._indexed import index_of
from penstock.cli._terminal import Progress
from penstock.cli.info._index_facts import index_facts
from penstock.datasets import keep_profile, known_profile, open_found, profile_of
from penstock.index import BuildOptions, look_at, make_index, place_of, read_profile

if TYPE_CHECKING:
    from penstock.cli._indexed import Indexed
    from penstock.datasets import Source
    from penstock.index import Detected
    from penstock.storage import StorageOptions

_log = logging.getLogger("penstock.cli")


@dataclass(frozen=True, slots=True)
class FoundProfile:
    """A profile, and the records that it is of."""

    document: dict[str, Any]
    """What `profile.json` holds."""
    created: float
    source: Source | None
    """None where the records have no numbers, because the index is not right."""
    is_new: bool = False
    """Whether it was made just now."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose profile, and how it is made."""

    path: str
    found: Detected
    workers: int | None = None

    @property
    def options(self) -> StorageOptions:
        """Those of PATH."""
        return self.found.options


def find_profile(asked: Asked) -> FoundProfile:
    """Return the profile of PATH; make it where there is none of the records that are there.

    JSON Lines and CSV without an index get one with a profile, in one pass over the files; one
    that has no profile is built again where nothing else about it changes by that. For everything
    else records are gone through, and what was found is kept in the cache directory.
    """
    if asked.found.format.folder is not None:
        return _of_source(asked, open_found(asked.found))
    facts = index_facts(asked.path, asked.found)
    found = asked.found.checked()
    if facts.problem is not None or (facts.found is not None and facts.found.is_stale):
        remedy = "--overwrite" if facts.found is None else facts.found.remedy
        _log.warning(
            "the index is damaged or stale, and the profile is not kept; penstock index %s %s "
            "--profile repairs it",
            asked.path,
            remedy,
        )
        return _unkept(asked)
    if facts.found is not None:
        return _of_index(asked, facts.found)
    if found.format.scanner is None:
        return _of_source(asked, open_found(found))
    scanner = found.scanner()
    place = place_of(found.listing, scanner, found.options, found.index)
    with Progress(found.listing.bytes) as progress:
        make_index(
            found.listing,
            scanner,
            "new",
            options=asked.options,
            index=place.folder,
            build=BuildOptions(progress=progress, profile=True, num_workers=asked.workers),
        )
    return _of_new_index(asked)


def _of_index(asked: Asked, indexed: Indexed) -> FoundProfile:
    source = source_of(indexed, asked.options)
    known = known_profile(source)
    if known is not None:
        return FoundProfile(known.document, known.created, source)
    if not _is_built_the_same(indexed):
        return _of_source(asked, source)
    meta = indexed.meta
    assert meta is not None  # noqa: S101 (or it could not be built again)
    with Progress(indexed.listing.bytes) as progress:
        build = BuildOptions(
            progress=progress,
            full_hash=meta.is_hashed,
            validate=meta.validated,
            profile=True,
            max_line_bytes=meta.max_line_bytes,
            num_workers=asked.workers,
        )
        make_index(
            indexed.listing,
            indexed.format.scanner_for(made_with=meta.options),
            "overwrite",
            options=asked.options,
            index=indexed.place.folder,
            build=build,
        )
    return _of_new_index(asked)


def _of_new_index(asked: Asked) -> FoundProfile:
    indexed = index_of(asked.path, look_at(asked.path, asked.options, asked.found.index))
    assert indexed is not None  # noqa: S101 (it was just built)
    source = source_of(indexed, asked.options)
    known = known_profile(source)
    if known is None:  # Replaced by another process in this very moment.
        return _of_source(asked, source)
    return FoundProfile(known.document, known.created, source, is_new=True)


def _is_built_the_same(indexed: Indexed) -> bool:
    """Whether an index may be built again, and records would have the numbers that they have."""
    meta, folder = indexed.meta, Path(indexed.place.folder)
    if meta is None or indexed.place.is_remote or indexed.since.new:
        return False
    if not (os.access(folder, os.W_OK | os.X_OK) and os.access(folder.parent, os.W_OK | os.X_OK)):
        return False
    empty = {file.path for file in meta.empty}
    names = [indexed.listing.relative(found) for found in indexed.listing.files]
    in_order = [name for name in names if name not in empty]
    # An update puts what is new behind everything else, wherever it would be by its name.
    return [file.path for file in meta.files] == in_order and [
        run.file for run in meta.runs
    ] == list(range(len(in_order)))


def _of_source(asked: Asked, source: Source) -> FoundProfile:
    known = known_profile(source)
    if known is not None:
        return FoundProfile(known.document, known.created, source)
    with Progress(len(source), unit="records") as progress:
        document = profile_of(source, workers=asked.workers, progress=progress).document()
    keep_profile(source, document)
    return FoundProfile(document, time.time(), source, is_new=True)


def _unkept(asked: Asked) -> FoundProfile:
    """Profile files as they are now, in an index that goes away with its profile."""
    scanner, listing = asked.found.scanner(), asked.found.listing
    with TemporaryDirectory(prefix="penstock-profile-") as folder:
        place = f"{folder}/index"
        with Progress(listing.bytes) as progress:
            build = BuildOptions(progress=progress, profile=True, num_workers=asked.workers)
            make_index(listing, scanner, "new", options=asked.options, index=place, build=build)
        document = read_profile(place)
    assert document is not None  # noqa: S101 (it was just built)
    return FoundProfile(document, time.time(), None, is_new=True)
