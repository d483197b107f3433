"""`penstock info`: files, records, bytes, index, columns, leftovers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.cli._paths import Indexed, PathFiles, as_typed, find, index_or_problem, look_at
from penstock.cli._stream import texts_of
from penstock.cli._terminal import Progress, Report
from penstock.cli._units import bytes_text, counted
from penstock.cli._verb import FAILED, VerbCall, flag, verb
from penstock.cli.info._sources import (
    WIDTH,
    InfoFile,
    PathIndex,
    add_files,
    add_known,
    add_left_out,
    add_records,
    source_report,
    sum_known,
    table_report,
)
from penstock.index import LINES, Detected, FileMeta, LineScanner
from penstock.jsonl import JsonlFile, compression_of, read_seek_table

if TYPE_CHECKING:
    from penstock.storage import Entry


@verb(
    "penstock info logs",
    "penstock info 'logs/*.jsonl.zst' --no-records",
    "penstock info table.parquet",
    "penstock info s3://bucket/logs -o region=eu-west-1 --json",
    index=True,
)
@flag("--no-records", "Do not count records where that reads whole files.")
def info(call: VerbCall, *, no_records: bool) -> Report:
    """Show what PATH holds: files, records, bytes, compression, index, columns, leftovers.

    For tables the columns are listed, too, for tokens how they were packed. Records are
    the lines that are not blank, or the rows; `penstock check` finds bad ones. With an index only
    files that are new or changed since are read to count them.
    """
    errors: dict[str, str] = {}
    path, at_path = call.path, look_at(call.path, call.options, call.folder)
    if at_path.format.folder is not None:
        report = source_report(path, at_path)
    else:
        index = PathIndex(path, *index_or_problem(path, at_path))
        row = index.found.format if index.found else at_path.format
        if row.is_lines:
            report = _of_lines(index, at_path, errors, count=not no_records)
        else:
            report = table_report(row, index, at_path, count=not no_records)
    report.data(errors=[{"path": name, "error": text} for name, text in errors.items()])
    report.complain(FAILED, *errors.values())
    return report


def _of_lines(
    index: PathIndex, at_path: Detected, errors: dict[str, str], *, count: bool
) -> Report:
    """Report JSON Lines; note files that cannot be read in `errors`."""
    path, options = index.path, at_path.options
    # With an index the files are those that `penstock.open` sees.
    listing = None if index.found is None else index.found.listing
    found = PathFiles.of(path, listing, options) if listing else find(path, options, at_path)
    known = _known(index.found, path)
    files: list[InfoFile] = []
    unread = (file for file in found.files if file.path not in known)
    with Progress(sum(found.found[file.path].entry.size for file in unread)) as progress:
        for file in found.files:
            entry, reads = found.found[file.path].entry, progress if count else None
            try:
                files.append(_file_facts(file, entry, known.get(file.path), reads))
            except OSError as failure:
                errors[file.path] = options.redact(str(failure))
    records = sum_known([file.records for file in files])
    stored, text = sum(file.bytes for file in files), sum_known([file.text_bytes for file in files])
    report = Report(path, width=WIDTH, path=path, format=LINES.name)
    unreadable = f", {len(errors)} unreadable" if errors else ""
    report.row("files", f"{len(found.files):,}{unreadable}", files=len(found.files))
    add_records(report, records, stored)
    ratio = f" ({text / stored:.1f} × what is stored)" if text and stored else ""
    text_size = "unknown" if text is None else bytes_text(text)
    report.row("text", f"{text_size}{ratio}", text_bytes=text)
    report.row("compression", _compressions(files))
    index.add_to(report)
    add_left_out(report, path, at_path)
    add_known(report, index, index.known_records(at_path), found.leftovers())
    add_files(report, path, files, ["file", "records", "stored", "text", "compression"])
    return report


def _known(indexed: Indexed | None, path: str) -> dict[str, FileMeta]:
    """Return what the index knows of unchanged files, by their paths."""
    if indexed is None or indexed.meta is None:
        return {}
    listing, since = indexed.listing, indexed.since
    by_name = {file.path: file for file in [*indexed.meta.files, *indexed.meta.empty]}
    changed = {name for name, _ in since.changed} | {grown.path for grown in since.grown}
    return {
        as_typed(path, found.path): by_name[listing.relative(found)]
        for found in listing.files
        if listing.relative(found) in by_name and found.path not in changed
    }


def _file_facts(
    file: JsonlFile, entry: Entry, known: FileMeta | None, progress: Progress | None
) -> InfoFile:
    """Return the facts of a file; with a progress, read it unless the index knows it."""
    compression, text_bytes = _compression(file, entry)
    records = None
    if known is not None:
        records = known.records
        text_bytes = known.bytes if text_bytes is None else text_bytes
    elif progress is not None:
        records, text_bytes = 0, 0
        scan = LineScanner().begin(file.path)
        for text in texts_of(file, progress):
            records += len(scan.add(text.text))
            text_bytes += len(text.text)
        records += len(scan.finish())
    return InfoFile(file.path, records, entry.size, entry.modified, text_bytes, compression)


def _compression(file: JsonlFile, entry: Entry) -> tuple[str, int | None]:
    """Return how a file is compressed, and the bytes of its text where the file says so."""
    compression = compression_of(file.path)
    if compression is None:
        return "none", entry.size
    if compression == "zstd" and entry.size:
        store, name, _ = file.source()
        with closing(store.open(name, entry)) as opened:
            frames = read_seek_table(opened)
        if frames is not None:
            return "zstd, seekable", int(frames[:, 1].sum(dtype="i8"))
    return compression, None


def _compressions(files: Sequence[InfoFile]) -> str:
    kinds = Counter(file.compression for file in files)
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{kind} ({counted(count, 'file')})" for kind, count in kinds.items()) or "–"
