"""`penstock index`: find every record once, so that any of them can be fetched by number."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from penstock.cli._formats import list_of_one_kind, scanner_of
from penstock.cli._indexed import meta_of
from penstock.cli._paths import as_typed
from penstock.cli._terminal import Progress, echo, echo_json
from penstock.cli._units import age_text, bytes_text, counted
from penstock.cli._verb import (
    FINDINGS,
    FINE,
    Verb,
    examples,
    index_option,
    json_option,
    storage_option,
)
from penstock.cli._watched import watched
from penstock.errors import CorruptIndexError, IndexExistsError, OptionError, StaleIndexError
from penstock.index import BuildOptions, changes, exists, make_index, place_of

if TYPE_CHECKING:
    from penstock.cli._formats import Kind
    from penstock.index import Listing, Meta, Mode, Place
    from penstock.storage import StorageOptions


@dataclass(frozen=True, slots=True)
class _Task:
    """What shall be indexed, and how."""

    path: str
    kind: Kind
    listing: Listing
    mode: Mode
    full_hash: bool
    folder: str | None
    options: StorageOptions


@dataclass(frozen=True, slots=True)
class _Built:
    """What came of it."""

    place: Place
    before: Meta | None
    meta: Meta
    seconds: float

    @property
    def is_unchanged(self) -> bool:
        return self.before is not None and self.before.created == self.meta.created


@click.command(
    cls=Verb,
    epilog=examples(
        "penstock index logs",
        "penstock index logs --update",
        "penstock index 'tables/*.csv' --overwrite --full-hash",
        "penstock index s3://bucket/logs -o region=eu-west-1",
    ),
)
@click.argument("path")
@click.option("--update", is_flag=True, help="Add new files, and what was appended to old ones.")
@click.option("--overwrite", is_flag=True, help="Build it anew, although there is one.")
@click.option(
    "--full-hash", is_flag=True, help="Also hash every byte, not only both ends; reads twice."
)
@index_option
@storage_option
@json_option
def index(  # noqa: PLR0913 (one argument an option)
    *,
    path: str,
    update: bool,
    overwrite: bool,
    full_hash: bool,
    folder: str | None,
    storage_options: StorageOptions,
    as_json: bool,
) -> int:
    """Find every record of PATH once, so that any of them can be fetched by its number.

    The index of a folder and of all below it is FOLDER/index; of a file, a pattern, or a folder
    that may not be written to, it lies in the cache directory. Of a folder in object storage it
    lies beside the data, for everybody. It appears as a whole or not at all.
    """
    if update and overwrite:
        raise click.UsageError("give either --update or --overwrite, not both.")
    mode: Mode = "update" if update else "overwrite" if overwrite else "new"
    kind, listing = list_of_one_kind(path, storage_options)
    if kind == "parquet":
        _tell_of_parquet(path, listing, as_json=as_json)
        return FINE
    task = _Task(path, kind, listing, mode, full_hash, folder, storage_options)
    try:
        built = _build(task)
    except IndexExistsError as failure:
        raise OptionError(str(failure)) from None
    except StaleIndexError as failure:
        echo(f"penstock: {storage_options.redact(str(failure))}", err=True)
        return FINDINGS
    if as_json:
        echo_json(_document(task, built))
    else:
        echo(_summary(task, built))
    return FINE


def _build(task: _Task) -> _Built:
    place = place_of(
        task.listing, scanner_of(task.kind), task.options, task.folder, beside_remote=True
    )
    before = _meta_before(task, place)
    # An update speaks the dialect that the index was made with.
    made_with = before.options if before is not None and task.mode == "update" else None
    start = time.monotonic()
    with Progress(_bytes_to_read(task, before)) as progress:
        listing, scanner = watched(task.listing, scanner_of(task.kind, made_with), progress)
        build = BuildOptions(progress=False, full_hash=task.full_hash)
        place = make_index(
            listing, scanner, task.mode, options=task.options, index=task.folder, build=build
        )
    seconds = time.monotonic() - start
    meta = meta_of(place)
    if meta is None:  # Replaced by another tool in this very moment.
        raise CorruptIndexError(f"{place.folder} has no meta.json.", path=place.folder)
    return _Built(place, before, meta, seconds)


def _meta_before(task: _Task, place: Place) -> Meta | None:
    if not exists(place):
        return None
    if task.mode == "new":
        raise IndexExistsError(
            f"there is an index in {_shown(task.path, place)} already. --update adds what is new, "
            "--overwrite builds it anew."
        )
    try:
        meta = meta_of(place)
    except CorruptIndexError:
        if task.mode == "update":
            raise
        return None
    return meta if meta is not None and meta.kind == task.kind else None


def _bytes_to_read(task: _Task, before: Meta | None) -> int:
    total = task.listing.bytes
    if before is not None and task.mode == "update":
        since = changes(task.listing, before)
        sizes = {file.path: file.size for file in [*before.files, *before.empty]}
        total = sum(found.entry.size for found in [*since.new, *since.grown])
        total -= sum(sizes[task.listing.relative(found)] for found in since.grown)
    return total


def _shown(path: str, place: Place) -> str:
    """Return the folder of an index; one in the cache is far from where PATH is."""
    return as_typed(path, place.folder) if place.beside else place.folder


def _tell_of_parquet(path: str, listing: Listing, *, as_json: bool) -> None:
    files = counted(len(listing.files), "file")
    if as_json:
        echo_json({"path": path, "format": "parquet", "files": len(listing.files), "index": None})
    else:
        echo(f"{path}: {files} of Parquet, which need no index: each has its own at its end")


def _document(task: _Task, built: _Built) -> dict[str, object]:
    before = built.before if task.mode == "update" else None
    return {
        "path": task.path,
        "format": task.kind,
        "index": built.place.folder,
        "files": len(built.meta.files),
        "empty_files": len(built.meta.empty),
        "records": built.meta.records,
        "new_records": built.meta.records - (before.records if before else 0),
        "bytes": sum(file.size for file in [*built.meta.files, *built.meta.empty]),
        "record_bytes": built.meta.bytes,
        "fingerprint": built.meta.fingerprint,
        "created": built.meta.created,
        "unchanged": built.is_unchanged,
        "seconds": round(built.seconds, 3),
    }


def _summary(task: _Task, built: _Built) -> str:
    meta = built.meta
    where = _shown(task.path, built.place)
    stored = sum(file.size for file in [*meta.files, *meta.empty])
    holds = f"{counted(meta.records, 'record')} in {counted(len(meta.files), 'file')}"
    if meta.empty:
        holds += f" ({counted(len(meta.empty), 'file')} without any)"
    if built.is_unchanged:
        return (
            f"{task.path}: nothing new since the index in {where} was built "
            f"{age_text(time.time() - meta.created)} ago: {holds}"
        )
    if built.before is not None and task.mode == "update":
        holds = f"{counted(meta.records - built.before.records, 'record')} more, {holds}"
    return (
        f"{task.path}: {holds}, {bytes_text(stored)} stored, {bytes_text(meta.bytes)} of records; "
        f"index in {where}, {built.seconds:.2f} s"
    )
