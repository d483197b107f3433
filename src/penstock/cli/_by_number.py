"""Records by their numbers, where that is cheap: with an index, or in tables with their own."""

from __future__ import annotations

import copy
import logging
import shlex
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from penstock.cli._csv_head import head_of
from penstock.cli._formats import kind_of, list_of_one_kind, scanner_of
from penstock.cli._indexed import index_of
from penstock.cli._other_sources import other_source
from penstock.cli._paths import as_typed
from penstock.cli._selection import sampled_numbers
from penstock.cli._terminal import Progress
from penstock.cli._units import counted
from penstock.errors import (
    CorruptIndexError,
    MalformedLineError,
    ObjectNotFoundError,
    SchemaMismatchError,
    StaleIndexError,
)
from penstock.index import open_or_build, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.cli._formats import Kind
    from penstock.cli._indexed import Indexed
    from penstock.datasets import Chosen, Source
    from penstock.index import SampleIndex
    from penstock.storage import StorageOptions

_log = logging.getLogger("penstock.cli")
_STEP = 256


class Record(NamedTuple):
    """A record, its number, and where it lies."""

    number: int
    path: str
    place: str
    value: object


@dataclass(frozen=True, slots=True)
class ByNumber:
    """Records by number."""

    path: str
    """What the user named."""
    source: Source
    only_file: str | None = None
    """The file that the records lie in, where a copy of its beginning is read."""

    def place(self, number: int) -> tuple[str, str]:
        """Return the path of a record's file, and where it stands there."""
        file, offset, size = self.source.location(number)
        path = as_typed(self.path, self.only_file or file)
        return path, f"{path} at byte {offset}" if size else f"{path}, row {offset}"


@contextmanager
def open_by_number(
    path: str, options: StorageOptions, chosen: str | None = None, *, head: int | None = None
) -> Iterator[ByNumber | None]:
    """Give the records of PATH by number, or None where they are better streamed.

    With `head` only so many of the first records are needed. Nothing is ever written into the
    folder that PATH names.
    """
    tokens = other_source(path, options) if chosen is None else None
    if tokens is not None:
        yield ByNumber(path, tokens)
        return
    indexed = usable_index(path, options, chosen)
    if indexed is not None:
        yield ByNumber(path, source_of(indexed, options))
        return
    kind = kind_of(path, options)
    if kind == "jsonl":
        yield None
    elif kind == "parquet":
        from penstock.datasets import ParquetRows  # noqa: PLC0415 (pyarrow)

        yield ByNumber(path, ParquetRows(path, storage_options=options))
    else:
        with tempfile.TemporaryDirectory(prefix="penstock-index-") as folder:
            yield _csv(path, options, Path(folder), head)


@contextmanager
def open_numbered(
    path: str, options: StorageOptions, chosen: str | None = None
) -> Iterator[ByNumber]:
    """Give the records of PATH by number, or say what has to be done before."""
    with open_by_number(path, options, chosen) as opened:
        if opened is None:
            list_of_one_kind(path, options)  # Of what is not there, that is said.
            raise ObjectNotFoundError(
                f"{path} has no index that is up to date, so its records have no numbers. Build "
                f"it: penstock index {shlex.quote(path)}",
                path=path,
            )
        yield opened


def source_of(indexed: Indexed, options: StorageOptions) -> Source:
    """Return the records of files whose index is there and right."""
    made_with = indexed.meta.options if indexed.meta is not None else None
    scanner = scanner_of(indexed.kind, made_with)
    opened = open_or_build(indexed.listing, scanner, options=options, index=indexed.place.folder)
    return _dataset(indexed.kind, opened)


def _csv(path: str, options: StorageOptions, folder: Path, head: int | None) -> ByNumber:
    """Open CSV files without an index: of their head, or of all, but never in the data's folder."""
    kind, listing = list_of_one_kind(path, options)
    scanner = scanner_of(kind, names=[found.path for found in listing.files])
    apart = str(folder / "index")
    short = head_of(listing, scanner, head, folder) if head else None
    if short is not None:
        opened = open_or_build(short, scanner, index=apart, progress=False)
        return ByNumber(path, _dataset(kind, opened), listing.files[0].path)
    place = place_of(listing, scanner, options)
    with Progress(listing.bytes) as progress:
        opened = open_or_build(
            listing,
            scanner,
            options=options,
            index=apart if place.beside else place.folder,
            progress=progress,
        )
    return ByNumber(path, _dataset(kind, opened))


def usable_index(
    path: str, options: StorageOptions, chosen: str | None = None, *, is_needed: bool = False
) -> Indexed | None:
    """Return the index of a PATH if it has one that is right; warn of one that is not.

    Where it is needed, or was chosen, one that is not right is an error.
    """
    is_needed = is_needed or chosen is not None
    try:
        indexed = index_of(path, options, chosen)
    except CorruptIndexError as failure:
        if is_needed:
            raise
        _log.warning("%s Read without it", failure)
        return None
    if indexed is None:
        if chosen is not None:
            command = f"penstock index {shlex.quote(path)} --index {shlex.quote(chosen)}"
            message = f"there is no index in {chosen}. Build it: {command}"
            raise ObjectNotFoundError(message, path=chosen)
        return None
    if indexed.is_stale:
        since = indexed.since
        names = [name for name, _ in since.changed] + [found.path for found in since.grown]
        what = (
            f"the index in {indexed.place.folder} is stale: {counted(len(names), 'file')} changed "
            f"since, first {names[0]}; penstock index {shlex.quote(path)} {indexed.remedy} repairs "
            "it"
        )
        if is_needed:
            raise StaleIndexError(what, path=names[0])
        _log.warning("%s. Read without it", what)
        return None
    if indexed.since.new:
        count = counted(len(indexed.since.new), "file")
        command = f"penstock index {shlex.quote(path)} --update"
        _log.warning("%s not in the index because newer; %s adds what is new", count, command)
    return indexed


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
    source = _afresh(opened.source)
    for start in range(0, len(numbers), _STEP):
        ids = np.array(numbers[start : start + _STEP], np.int64)
        try:
            values = source.read(ids)
        except (MalformedLineError, SchemaMismatchError):
            yield from _one_by_one(opened, ids)
            continue
        for number, value in zip(ids.tolist(), values, strict=True):
            yield Record(number, *opened.place(number), value)


def _afresh(source: Source) -> Source:
    """Return the same records from their beginning: gzip refuses to jump back too often."""
    return copy.copy(source)


def _one_by_one(opened: ByNumber, ids: np.ndarray) -> Iterator[Record]:
    source = _afresh(opened.source)
    for number in ids.tolist():
        try:
            value = source[number]
        except (MalformedLineError, SchemaMismatchError) as failure:
            _log.warning("skipped %s", failure)
            continue
        yield Record(number, *opened.place(number), value)


def _dataset(kind: Kind, opened: SampleIndex) -> Source:
    if kind == "csv":
        from penstock.datasets import CsvRows  # noqa: PLC0415 (pyarrow)

        return CsvRows.from_index(opened)
    from penstock.datasets import JsonlDataset  # noqa: PLC0415

    return JsonlDataset(opened)
