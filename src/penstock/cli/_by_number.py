"""Records by their numbers: with an index that is there, or with one built on the way."""

from __future__ import annotations

import copy
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from penstock.cli._paths import as_typed, indexed_source, places_of
from penstock.cli._stream import Record, sampled_numbers
from penstock.cli._terminal import Progress
from penstock.datasets import Chosen, Source, column_folders, open_found
from penstock.decode import OF_A_RECORD, read_around_bad
from penstock.errors import CorruptIndexError, ObjectNotFoundError, StaleIndexError
from penstock.index import Detected, Listing, Scanner, list_files, place_of
from penstock.jsonl import compression_of
from penstock.storage import StorageOptions, is_remote, locate, read_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray


_log = logging.getLogger("penstock.cli")
_STEP = 256
_SMALL = 16 << 20
"""A file that is read whole in a blink."""
_LONGEST = 64 << 20
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ByNumber:
    """Records by number."""

    path: str
    """What the user named."""
    source: Source
    only_file: str | None = None
    """The file that the records lie in, where a copy of its beginning is read."""

    def place(self, number: int) -> str:
        """Return where a record stands: its file, and the place there."""
        file, offset, size = self.source.location(number)
        return place_text(as_typed(self.path, self.only_file or file), int(offset), int(size))


def place_text(file: str, offset: int, size: int) -> str:
    """Return where a record stands; rows of Parquet have no bytes of their own."""
    return f"{file} at byte {offset}" if size else f"{file}, row {offset}"


@contextmanager
def by_number(path: str, found: Detected, *, head: int | None = None) -> Iterator[ByNumber | None]:
    """Give the records of PATH by number, or None where they are better streamed.

    With `head` only so many of the first records are needed. Nothing is ever written into the
    folder that PATH names.
    """
    if found.format.folder is not None:
        yield ByNumber(path, open_found(found))
        return
    source = indexed_source(path, found)
    if source is not None:
        yield ByNumber(path, source)
    elif found.format.is_lines and not found.listing.has_fields:
        yield None
    elif found.format.scanner is None:
        yield ByNumber(path, open_found(found.checked()))
    else:
        with tempfile.TemporaryDirectory(prefix="penstock-index-") as folder:
            yield _indexed_apart(path, found.checked(), Path(folder), head)


def open_indexed(path: str, found: Detected) -> Source:
    """Return the records of PATH as `penstock.open` does: an index is built, or refreshed.

    One that was built on purpose and is stale, or is damaged, is an error with its remedy.
    """
    if found.format.scanner is None:
        return open_found(found.checked())
    if found.index is None:
        source = indexed_source(path, found, is_needed=True, refresh="auto")
        if source is not None:
            return source
    with Progress(found.checked().listing.bytes) as progress:
        return open_found(found, progress=progress)


def records_or_folders(path: str, found: Detected, target: str | None) -> Source | list[Path]:
    """Return the records of PATH where no index has to be built, else where columns may lie.

    A stale or damaged index is as good as none, after a warning.
    """
    if found.format.scanner is None:
        return open_found(found.checked())
    try:
        source = indexed_source(path, found, is_needed=True)
    except (CorruptIndexError, ObjectNotFoundError, StaleIndexError) as failure:
        _log.warning("%s", failure)
    else:
        if source is not None:
            return source
        found.checked()
    if target is not None and not is_remote(target):
        return [Path(locate(target)[1])]
    return [
        *dict.fromkeys(folder for place in places_of(found) for folder in column_folders(place))
    ]


def _indexed_apart(path: str, found: Detected, folder: Path, head: int | None) -> ByNumber:
    """Open files without an index: of their head, or of all, but never in the data's folder."""
    scanner, apart = found.scanner(), str(folder / "index")
    short = _head_of(found.listing, scanner, head, folder) if head else None
    if short is not None:
        first = found.listing.files[0].path
        found = replace(found, listing=short, options=StorageOptions(), index=apart)
        source = open_found(found, made_with=scanner.options(), progress=False)
        return ByNumber(path, source, first)
    place = place_of(found.listing, scanner, found.options)
    found = replace(found, index=apart if place.beside else place.folder)
    with Progress(found.listing.bytes) as progress:
        return ByNumber(path, open_found(found, progress=progress))


def _head_of(listing: Listing, scanner: Scanner, count: int, folder: Path) -> Listing | None:
    """Copy the first `count` rows of the first file to a folder, each where it stands.

    None where that would save nothing: a short file, a compressed one, fewer rows.
    """
    first = listing.files[0]
    if first.entry.size <= _SMALL or compression_of(first.entry.name) is not None:
        return None
    with closing(first.store.open(first.entry.name, first.entry)) as file:
        scan, text, rows = scanner.begin(first.path), bytearray(), 0
        for block in read_blocks(file, _BLOCK_BYTES):
            places = scan.add(block)
            text += block
            rows += len(places)
            if rows >= count:
                copied = folder / listing.relative(first)  # Its folders may hold fields.
                copied.parent.mkdir(parents=True, exist_ok=True)
                copied.write_bytes(text[: int(places[-1].sum())])
                return list_files(folder)
            if len(text) > _LONGEST:
                break
    return None


def chosen_numbers(
    source: Source, which: slice | None, sample: tuple[int, int] | None, where: str | None
) -> Sequence[int]:
    """Return the numbers that are asked for: a range, a sample (size, seed), or the first five."""
    everything = range(len(source))
    if where is None:
        if sample is not None:
            return sampled_numbers(len(source), *sample)
        return everything[which or slice(5)]
    if which is not None:
        among = np.array(everything[which], np.int64)
        ids = among[cast("Chosen", source.take(among).where(where)).ids]
    else:
        ids = cast("Chosen", source.where(where)).ids
    if sample is not None:
        ids = ids[sampled_numbers(len(ids), *sample)]
    chosen: list[int] = (ids if sample or which else ids[:5]).tolist()
    return chosen


def records_of(opened: ByNumber, numbers: Sequence[int]) -> Iterator[Record]:
    """Yield records in the order asked; one that cannot be read is passed over with a warning."""
    source = copy.copy(opened.source)

    def read(ids: NDArray[np.int64], start: int, stop: int) -> object:
        nonlocal source
        try:
            return source.read(ids[start:stop])
        except OF_A_RECORD:
            source = copy.copy(opened.source)  # Afresh: gzip refuses to jump back too often.
            raise

    for first in range(0, len(numbers), _STEP):
        ids = np.array(numbers[first : first + _STEP], np.int64)
        for rows in read_around_bad(len(ids), partial(read, ids), OF_A_RECORD):
            if rows.why is not None:
                _log.warning("skipped %s", rows.why)
                continue
            for number, value in zip(ids[rows.start : rows.stop].tolist(), rows.value, strict=True):
                yield Record(number, opened.place(number), value)
