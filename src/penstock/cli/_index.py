"""`penstock index`: find every record once, so that any of them can be fetched by number."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from penstock.cli._paths import as_typed, look_at, refuse_tokens
from penstock.cli._terminal import Progress, Report
from penstock.cli._units import age_text, bytes_text, counted, parse_size
from penstock.cli._verb import FINDINGS, VerbCall, flag, option, verb, workers_option
from penstock.errors import IndexExistsError, OptionError, StaleIndexError
from penstock.index import BuildOptions, changes, exists, make_index, meta_of, place_of

if TYPE_CHECKING:
    from penstock.index import Detected, IndexPlace, Listing, Meta, Mode


@verb(
    "penstock index logs",
    "penstock index logs --update",
    "penstock index logs --validate --profile --max-line-bytes 10MB",
    "penstock index 'tables/*.csv' --overwrite --full-hash",
    "penstock index s3://bucket/logs -o region=eu-west-1",
    index=True,
)
@flag("--update", "Add files that are new, and lines appended to known files.")
@flag("--overwrite", "Replace an index that is there.")
@flag(
    "--full-hash",
    "Hash every byte, so that penstock check finds any change; reads everything twice.",
)
@flag("--validate", "Read every record; lines that are no JSON objects go to bad_lines.ndjson.")
@flag("--profile", "Note types, ranges and drift of every field, for penstock profile.")
@option(
    "--max-line-bytes SIZE",
    "With --validate: also set aside longer lines (10MB, 1GiB).",
    type=parse_size,
)
@workers_option("read for --validate and --profile")
def index(
    call: VerbCall,
    *,
    update: bool,
    overwrite: bool,
    workers: int | None,
    **checks: Any,  # noqa: ANN401 (those of `BuildOptions`)
) -> int | Report:
    """Find every record of PATH once, so that any of them can be fetched by its number.

    The index of a folder and of all below it is FOLDER/index, in object storage, too; that of a
    file, a pattern, or a read-only folder lies in the cache directory. It appears as a whole or not
    at all.

    Exit code 1 means that lines were set aside: the index is complete without them.
    """
    if update and overwrite:
        raise click.UsageError("give either --update or --overwrite, not both.")
    mode: Mode = "update" if update else "overwrite" if overwrite else "new"
    build = BuildOptions(num_workers=workers, **checks)
    build.check()
    path, found = call.path, look_at(call.path, call.options, call.folder).checked()
    refuse_tokens(path, found, "they have an index of their own")
    found.warn_of_left_out()
    title = found.format.title
    if found.format.folder is not None:
        raise OptionError(f"{path} is an {title} folder, which has an index of its own.")
    if found.format.scanner is None:
        if build.checks:
            raise OptionError(
                f"{path} is {title}, which needs no index: there is none to keep bad lines or a "
                f"profile in. penstock profile {shlex.quote(path)} shows what it holds."
            )
        files = len(found.listing.files)
        need = "needs" if files == 1 else "need"
        return Report(
            f"{path}: {counted(files, 'file')} of {title}, which {need} no index: records are "
            "found without one",
            path=path,
            format=found.format.name,
            files=files,
            index=None,
        )
    try:
        report = _built(path, found, mode, build)
    except IndexExistsError as failure:
        raise OptionError(str(failure)) from None
    except StaleIndexError as failure:
        return call.finding(failure)
    report.code = FINDINGS * bool(report.document["new_bad_lines"])
    return report


def _built(path: str, found: Detected, mode: Mode, build: BuildOptions) -> Report:
    """Build the index, and report what it holds."""
    listing = found.listing
    scanner = found.scanner(anew=mode == "overwrite")
    place = place_of(listing, scanner, found.options, found.index, beside_remote=True)
    where = as_typed(path, place.folder) if place.beside else place.folder
    known = _known(found, mode, place, where)
    start = time.monotonic()
    with Progress(_bytes_to_read(listing, known)) as progress:
        meta = make_index(
            listing,
            # An update reads the dialect that the index was made with.
            found.scanner(known.options) if known else scanner,
            mode,
            options=found.options,
            index=found.index,
            build=replace(build, progress=progress),
        )
    seconds = time.monotonic() - start
    records, bad_lines = meta.records, meta.bad_lines
    stored, record_bytes = meta.stored, meta.bytes
    new_records = records - (known.records if known else 0)
    new_bad = bad_lines - (known.bad_lines if known else 0)
    is_unchanged = known is not None and known.created == meta.created
    report = Report(
        path=path,
        format=found.format.name,
        index=place.folder,
        files=len(meta.files),
        empty_files=len(meta.empty),
        records=records,
        new_records=new_records,
        bytes=stored,
        record_bytes=record_bytes,
        fingerprint=meta.fingerprint,
        created=meta.created,
        validated=meta.validated,
        bad_lines=bad_lines,
        new_bad_lines=new_bad,
        profiled=meta.profiled,
        unchanged=is_unchanged,
        seconds=round(seconds, 3),
    )
    holds = f"{counted(records, 'record')} in {counted(len(meta.files), 'file')}"
    if meta.empty:
        holds += f" ({counted(len(meta.empty), 'file')} without any)"
    if is_unchanged:
        report.line(
            f"{path}: nothing new since the index in {where} was built "
            f"{age_text(time.time() - meta.created)} ago: {holds}"
        )
        return report
    more = f"{counted(new_records, 'record')} more, " if known else ""
    report.line(
        f"{path}: {more}{holds}, {bytes_text(stored)} stored, {bytes_text(record_bytes)} of "
        f"records; index in {where}, {seconds:.2f} s"
    )
    if new_bad:
        bad = f"{counted(new_bad, 'bad line')} set aside and not in the index"
        report.line(f"{bad}: {where}/bad_lines.ndjson")
    elif bad_lines:
        report.line(f"no new bad lines; {counted(bad_lines, 'line')} set aside before")
    elif meta.validated:
        report.line("no bad lines")
    if meta.profiled:
        report.line(f"profile in {where}/profile.json")
    return report


def _known(found: Detected, mode: Mode, place: IndexPlace, where: str) -> Meta | None:
    if mode == "overwrite" or not exists(place):
        return None
    if mode == "new":
        raise IndexExistsError(
            f"there is an index in {where} already. --update adds what is new, --overwrite builds "
            "it anew."
        )
    meta = meta_of(place)
    return meta if meta is not None and meta.kind == found.format.name else None


def _bytes_to_read(listing: Listing, known: Meta | None) -> int:
    if known is None:
        return listing.bytes
    since = changes(listing, known)
    sizes = {file.path: file.size for file in [*known.files, *known.empty]}
    total = sum(found.entry.size for found in [*since.new, *since.grown])
    return total - sum(sizes[listing.relative(found)] for found in since.grown)
