"""`penstock info`: what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from penstock.cli._formats import kind_of
from penstock.cli._other_sources import other_source
from penstock.cli._paths import Found, as_typed, find
from penstock.cli._reading import texts_of
from penstock.cli._terminal import Progress, echo, echo_json, table
from penstock.cli._units import bytes_text, counted
from penstock.cli._verb import (
    FAILED,
    FINE,
    Verb,
    examples,
    index_option,
    json_option,
    storage_option,
)
from penstock.cli.info._counting import count_records
from penstock.cli.info._index_facts import index_facts
from penstock.cli.info._known_facts import (
    KnownFacts,
    facts_of_index,
    leftover_document,
    leftover_text,
)
from penstock.jsonl import JsonlFile, compression_of, read_seek_table
from penstock.storage import is_pattern

if TYPE_CHECKING:
    from penstock.cli._indexed import Indexed
    from penstock.cli.info._index_facts import IndexFacts
    from penstock.index import FileMeta
    from penstock.storage import Entry, Leftover, StorageOptions

_FEW_FILES = 20


@dataclass(frozen=True, slots=True)
class _File:
    """What is known of one file."""

    label: str
    path: str
    bytes: int
    text_bytes: int | None
    records: int | None
    compression: str
    modified: float


@click.command(
    cls=Verb,
    epilog=examples(
        "penstock info logs",
        "penstock info 'logs/*.jsonl.zst' --no-records",
        "penstock info table.parquet",
        "penstock info s3://bucket/logs -o region=eu-west-1 --json",
    ),
)
@click.argument("path")
@click.option(
    "--no-records",
    is_flag=True,
    help="Do not count records where that means reading and decompressing all.",
)
@index_option
@storage_option
@json_option
def info(
    *,
    path: str,
    no_records: bool,
    folder: str | None,
    storage_options: StorageOptions,
    as_json: bool,
) -> int:
    """Show what PATH holds: files, records, bytes, compression, index, columns, leftovers.

    Of CSV and Parquet also the columns, of tokens how they were packed. Records are the lines that
    are not blank, or the rows; whether each is good, `penstock check` tells. With an index only
    files that are new or changed since are read to count them.
    """
    if folder is None and (other := other_source(path, storage_options)) is not None:
        from penstock.cli.info._tokens import tell_of_source  # noqa: PLC0415 (only for those)

        tell_of_source(path, other, storage_options, as_json=as_json)
        return FINE
    facts = index_facts(path, storage_options, folder)
    kind = facts.found.kind if facts.found else kind_of(path, storage_options)
    if kind != "jsonl":
        from penstock.cli.info._table import tell_of_table  # noqa: PLC0415 (pyarrow)

        tell_of_table(
            kind, facts, storage_options, count=not no_records, chosen=folder, as_json=as_json
        )
        return FINE
    found = _found_by(facts.found, path, storage_options) or find(path, storage_options)
    known = _known(facts.found, path)
    files: list[_File] = []
    errors: list[tuple[str, str]] = []
    listed = _listed(found, errors)
    unknown = sum(entry.size for file, entry in listed if file.path not in known)
    with Progress(unknown) as progress:
        for file, entry in listed:
            reads = None if no_records else progress
            try:
                files.append(_looked_at(found, file, entry, known.get(file.path), reads))
            except OSError as failure:
                errors.append((file.path, storage_options.redact(str(failure))))
    told = _Told(found, files, facts, facts_of_index(path, facts.found, storage_options), errors)
    if as_json:
        echo_json(_document(told))
    else:
        echo(_summary(told))
    for _, text in errors:
        echo(f"penstock: {text}", err=True)
    return FAILED if errors else FINE


def _found_by(indexed: Indexed | None, path: str, options: StorageOptions) -> Found | None:
    """Return the files as `penstock.open` sees them, if there is an index."""
    if indexed is None:
        return None
    entries = {as_typed(path, one.path): one.entry for one in indexed.listing.files}
    files = [JsonlFile(name, options) for name in entries]
    if indexed.listing.folder is not None:
        return Found(path, "directory", files, entries)
    return Found(path, "pattern" if is_pattern(path) else "file", files, entries)


def _known(indexed: Indexed | None, path: str) -> dict[str, FileMeta]:
    """Return what an index says of the files that are still the same, by their paths."""
    if indexed is None or indexed.meta is None:
        return {}
    listing, since = indexed.listing, indexed.since
    told = {file.path: file for file in [*indexed.meta.files, *indexed.meta.empty]}
    changed = {name for name, _ in since.changed} | {grown.path for grown in since.grown}
    return {
        as_typed(path, found.path): told[listing.relative(found)]
        for found in listing.files
        if listing.relative(found) in told and found.path not in changed
    }


def _listed(found: Found, errors: list[tuple[str, str]]) -> list[tuple[JsonlFile, Entry]]:
    """Return the files with what a listing says of them."""
    listed = []
    for file in found.files:
        try:
            listed.append((file, found.entry(file)))
        except OSError as failure:
            errors.append((file.path, file.storage_options.redact(str(failure))))
    return listed


def _looked_at(
    found: Found,
    file: JsonlFile,
    entry: Entry,
    known: FileMeta | None,
    progress: Progress | None,
) -> _File:
    """Return what is known of a file; with a progress it is read, if it must be."""
    compression, text_bytes = _compression(file, entry)
    records = None
    if known is not None:
        records = known.records
        text_bytes = known.bytes if text_bytes is None else text_bytes
    elif progress is not None:
        records, text_bytes = 0, 0
        for text in texts_of(file, progress):
            records += count_records(text.text)
            text_bytes += len(text.text)
    return _File(
        found.label(file), file.path, entry.size, text_bytes, records, compression, entry.modified
    )


def _compression(file: JsonlFile, entry: Entry) -> tuple[str, int | None]:
    """Return how a file is compressed, and the bytes of its text where that is written down."""
    compression = compression_of(file.path)
    if compression is None:
        return "none", entry.size
    if compression == "zstd" and entry.size:
        store, name, _ = file.source()
        open_file = store.open(name, entry)
        try:
            frames = read_seek_table(open_file)
        finally:
            open_file.close()
        if frames is not None:
            return "zstd, seekable", int(frames[:, 1].sum(dtype="i8"))
    return compression, None


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


@dataclass(frozen=True, slots=True)
class _Told:
    """Everything that is told."""

    found: Found
    files: list[_File]
    index: IndexFacts
    known: KnownFacts
    errors: list[tuple[str, str]]

    @property
    def leftovers(self) -> list[Leftover]:
        """Of writers and builders."""
        return [*self.found.leftovers(), *self.known.leftovers]


def _document(told: _Told) -> dict[str, object]:
    files = told.files
    return {
        "path": told.found.path,
        "format": "jsonl",
        "files": len(told.found.files),
        "records": _sum([file.records for file in files]),
        "bytes": sum(file.bytes for file in files),
        "text_bytes": _sum([file.text_bytes for file in files]),
        "per_file": [
            {
                "path": file.path,
                "records": file.records,
                "bytes": file.bytes,
                "text_bytes": file.text_bytes,
                "compression": file.compression.partition(",")[0],
                "seekable": file.compression.endswith("seekable") or file.compression == "none",
                "modified": file.modified,
            }
            for file in files
        ],
        "leftovers": [leftover_document(leftover) for leftover in told.leftovers],
        "index": told.index.document(),
        **told.known.document(),
        "errors": [{"path": path, "error": text} for path, text in told.errors],
    }


def _summary(all_: _Told) -> str:
    found, files, leftovers = all_.found, all_.files, all_.leftovers
    stored = sum(file.bytes for file in files)
    text = _sum([file.text_bytes for file in files])
    records = _sum([file.records for file in files])
    unreadable = len(found.files) - len(files)
    told = [
        ("files", f"{len(found.files):,}" + (f", {unreadable} unreadable" * bool(unreadable))),
        ("records", "not counted" if records is None else f"{records:,}"),
        ("stored", bytes_text(stored)),
        ("text", "unknown" if text is None else bytes_text(text)),
        ("compression", _compressions(files)),
        *all_.index.lines(),
        *all_.known.lines(),
        *(("leftover", leftover_text(leftover)) for leftover in leftovers),
    ]
    if text and stored:
        told[3] = ("text", f"{told[3][1]} ({text / stored:.1f} × what is stored)")
    lines = [found.path, *(f"  {name:12} {value}" for name, value in told)]
    if any(leftover.writer == "gone" for leftover in leftovers):
        lines.append("  (penstock clean removes what dead writers left)")
    if 1 < len(files) <= _FEW_FILES:
        lines += ["", _per_file(files)]
    return "\n".join(lines)


def _compressions(files: list[_File]) -> str:
    kinds = {file.compression: 0 for file in files}
    for file in files:
        kinds[file.compression] += 1
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{kind} ({counted(count, 'file')})" for kind, count in kinds.items()) or "–"


def _per_file(files: list[_File]) -> str:
    return table(
        ["file", "records", "stored", "text", "compression"],
        [
            [
                file.label,
                "–" if file.records is None else f"{file.records:,}",
                bytes_text(file.bytes),
                "–" if file.text_bytes is None else bytes_text(file.text_bytes),
                file.compression,
            ]
            for file in files
        ],
    )
