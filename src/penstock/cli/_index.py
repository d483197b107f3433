"""`penstock index`: find every record once, so that any of them can be fetched by number."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from penstock.cli._indexed import meta_of
from penstock.cli._opening import refuse_tokens
from penstock.cli._paths import as_typed
from penstock.cli._terminal import Progress, echo, echo_json
from penstock.cli._units import age_text, bytes_text, counted, parse_size
from penstock.cli._verb import (
    FINDINGS,
    FINE,
    Verb,
    examples,
    index_option,
    json_option,
    storage_option,
)
from penstock.errors import CorruptIndexError, IndexExistsError, OptionError, StaleIndexError
from penstock.index import BuildOptions, changes, detect, exists, make_index, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.index import Detected, Listing, Meta, Mode, Place
    from penstock.storage import StorageOptions


@dataclass(frozen=True, slots=True)
class _Task:
    """What shall be indexed, and how."""

    path: str
    found: Detected
    mode: Mode
    build: BuildOptions

    @property
    def listing(self) -> Listing:
        """The files to index."""
        return self.found.listing


@dataclass(frozen=True, slots=True)
class _Built:
    """What came of it."""

    place: Place
    before: Meta | None
    """What an update began with, or what was there and is replaced."""
    meta: Meta
    seconds: float
    new_records: int
    new_bad_lines: int

    @property
    def is_unchanged(self) -> bool:
        return self.before is not None and self.before.created == self.meta.created


@click.command(
    cls=Verb,
    epilog=examples(
        "penstock index logs",
        "penstock index logs --update",
        "penstock index logs --validate --profile --max-line-bytes 10MB",
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
@click.option(
    "--validate",
    is_flag=True,
    help="Read every record; set aside, in bad_lines.ndjson, what is not JSON or no object.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="Note in profile.json what every field holds, and what changes on the way.",
)
@click.option(
    "--max-line-bytes",
    type=parse_size,
    metavar="SIZE",
    help="With --validate: also set aside lines that are longer (10MB, 1GiB).",
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    metavar="N",
    help="Processes that read for --validate and --profile; by default one a processor.",
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
    validate: bool,
    profile: bool,
    max_line_bytes: int | None,
    workers: int | None,
    folder: str | None,
    storage_options: StorageOptions,
    as_json: bool,
) -> int:
    """Find every record of PATH once, so that any of them can be fetched by its number.

    The index of a folder and of all below it is FOLDER/index; of a file, a pattern, or a folder
    that may not be written to, it lies in the cache directory. Of a folder in object storage it
    lies beside the data, for everybody. It appears as a whole or not at all.

    Exit code 1 means that lines were set aside: the index is there, and they are not in it.
    """
    if update and overwrite:
        raise click.UsageError("give either --update or --overwrite, not both.")
    mode: Mode = "update" if update else "overwrite" if overwrite else "new"
    build = BuildOptions(None, full_hash, validate, profile, max_line_bytes, workers)
    build.check()
    found = detect(path, storage_options, folder)
    refuse_tokens(path, found, "they have an index of their own")
    title = found.format.title
    if found.format.folder is not None:
        raise OptionError(f"{path} is an {title} folder, which has an index of its own.")
    if found.format.scanner is None:
        if build.checks:
            raise OptionError(
                f"{path} is {title}, which needs no index: there is none to keep bad lines or a "
                f"profile in. penstock profile {shlex.quote(path)} shows what it holds."
            )
        _tell_of_unindexed(path, found, as_json=as_json)
        return FINE
    task = _Task(path, found, mode, build)
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
    return FINDINGS if built.new_bad_lines else FINE


def _build(task: _Task) -> _Built:
    found = task.found
    place = place_of(found.listing, found.scanner(), found.options, found.index, beside_remote=True)
    before = _meta_before(task, place)
    # An update speaks the dialect that the index was made with.
    made_with = before.options if before is not None and task.mode == "update" else None
    start = time.monotonic()
    with Progress(_bytes_to_read(task, before)) as progress:
        place = make_index(
            found.listing,
            found.scanner(made_with),
            task.mode,
            options=found.options,
            index=found.index,
            build=replace(task.build, progress=progress),
        )
    seconds = time.monotonic() - start
    meta = meta_of(place)
    if meta is None:  # Replaced by another tool in this very moment.
        raise CorruptIndexError(f"{place.folder} has no meta.json.", path=place.folder)
    known = before if task.mode == "update" else None
    records = meta.records - (known.records if known else 0)
    bad_lines = meta.bad_lines - (known.bad_lines if known else 0)
    return _Built(place, before, meta, seconds, records, bad_lines)


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
    return meta if meta is not None and meta.kind == task.found.format.name else None


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


def _tell_of_unindexed(path: str, found: Detected, *, as_json: bool) -> None:
    row, count = found.format, len(found.listing.files)
    if as_json:
        echo_json({"path": path, "format": row.name, "files": count, "index": None})
    else:
        files = counted(count, "file")
        echo(f"{path}: {files} of {row.title}, which need no index: records are found without one")


def _document(task: _Task, built: _Built) -> dict[str, object]:
    return {
        "path": task.path,
        "format": task.found.format.name,
        "index": built.place.folder,
        "files": len(built.meta.files),
        "empty_files": len(built.meta.empty),
        "records": built.meta.records,
        "new_records": built.new_records,
        "bytes": sum(file.size for file in [*built.meta.files, *built.meta.empty]),
        "record_bytes": built.meta.bytes,
        "fingerprint": built.meta.fingerprint,
        "created": built.meta.created,
        "validated": built.meta.validated,
        "bad_lines": built.meta.bad_lines,
        "new_bad_lines": built.new_bad_lines,
        "profiled": built.meta.profiled,
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
        holds = f"{counted(built.new_records, 'record')} more, {holds}"
    text = (
        f"{task.path}: {holds}, {bytes_text(stored)} stored, {bytes_text(meta.bytes)} of records; "
        f"index in {where}, {built.seconds:.2f} s"
    )
    return "\n".join([text, *_findings(built, where)])


def _findings(built: _Built, where: str) -> Iterator[str]:
    """Yield what validation found, and where it is told at length."""
    meta = built.meta
    if built.new_bad_lines:
        yield (
            f"{counted(built.new_bad_lines, 'bad line')} set aside and not in the index: "
            f"{where}/bad_lines.ndjson"
        )
    elif meta.bad_lines:
        yield f"no new bad lines; {counted(meta.bad_lines, 'line')} set aside before"
    elif meta.validated:
        yield "no bad lines"
    if meta.profiled:
        yield f"profile in {where}/profile.json"
