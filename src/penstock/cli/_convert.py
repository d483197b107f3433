"""`penstock convert`: copy lines, or write other records as lines, into files or shards."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from penstock.cli._main import uninterrupted
from penstock.cli._paths import PathFiles, find, look_at
from penstock.cli._stream import read_fast, read_lines, texts_of
from penstock.cli._terminal import Progress, Report
from penstock.cli._units import bytes_text, counted, parse_size
from penstock.cli._verb import COUNT, VerbCall, flag, option, verb
from penstock.datasets import Source, open_found
from penstock.errors import MalformedLineError, ObjectNotFoundError, OptionError
from penstock.index import LINES
from penstock.jsonl import (
    SHARD_EXTENSIONS,
    ErrorPolicy,
    JsonlDir,
    JsonlDirWriterSync,
    JsonlFile,
    LineEncoder,
    MalformedLine,
    compression_of,
    names_file,
)
from penstock.storage import LocalStore, StorageOptions, locate, refuse_read_only

if TYPE_CHECKING:
    from penstock.jsonl import JsonlWriterSync, TextPiece

_log = logging.getLogger("penstock.cli")
_STEP = 1024
"""Records that are read and encoded at a time."""


@dataclass(frozen=True, slots=True)
class _WriteOptions:
    """How lines are written."""

    shard_extension: str | None
    max_records_per_shard: int | None
    max_bytes_per_shard: int
    compression_level: int
    frame_bytes: int
    overwrite: bool
    append: bool


@verb(
    "penstock convert logs.jsonl logs.jsonl.zst",
    "penstock convert 'raw/*.jsonl.gz' logs --shard-extension .jsonl.zst",
    "penstock convert logs s3://bucket/logs --max-bytes-per-shard 64MB",
    path=False,
    reads=True,
)
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@option(
    "--on-error raise|skip",
    "At a malformed line: raise names it and stops, skip leaves it out.",
    default="raise",
)
@option(
    "--shard-extension",
    "Compression of shards; by default .jsonl.zst if SRC is compressed.",
    type=click.Choice(SHARD_EXTENSIONS),
)
@option("--max-records-per-shard N", "Begin a new shard after N records.", type=COUNT)
@option(
    "--max-bytes-per-shard SIZE",
    "Begin a new shard after this much uncompressed text (64MB, 1GiB).",
    type=parse_size,
    default="256MiB",
)
@option(
    "--compression-level N", "Level of zstd, gzip or bz2: higher is smaller, and slower.", default=3
)
@option(
    "--frame-bytes SIZE",
    "Text in one zstd frame: smaller frames make single records cheaper to read, and files larger.",
    type=parse_size,
    default="256KiB",
)
@flag("--overwrite", "Replace DST, a file that exists.")
@flag("--append", "Add shards to DST, a directory that has some.")
def convert(call: VerbCall, *, source: str, target: str, on_error: str, **shape: object) -> Report:
    """Write the records of SRC to DST: another compression, other shards, another place.

    DST is a file if its name ends in .jsonl or .ndjson (.gz, .zst, .zstd or .bz2 behind it), else a
    directory of shards. Lines are copied byte for byte; blank ones are left out. Records of other
    formats, and those with fields in the names of folders, are written as lines. DST is complete,
    or, after a failure, empty: shards published by then are removed again. The storage options hold
    for SRC and DST.
    """
    chosen = _WriteOptions(**shape)  # type: ignore[arg-type]
    refuse_read_only(target)
    at_path = look_at(source, call.options)
    row, files = at_path.format, at_path.listing.files
    is_mixed = row.folder is not None and any(LINES.names(f.entry.name) for f in files)
    is_lines = row.is_lines and not at_path.listing.has_fields  # Which lines do not hold.
    has_lines = is_lines or row.is_tokens or is_mixed
    if has_lines:
        found = find(source, call.options, at_path.checked())
    elif on_error == "skip":
        held = row.title + " with fields in the names of folders" * row.is_lines
        raise OptionError(f"--on-error skip is for lines, and {source} holds {held}.")
    else:
        found = PathFiles.of(source, at_path.checked().listing, call.options)
    _check_apart(found, target)
    at_path.warn_of_left_out()
    writer = (_file_writer if names_file(target) else _dir_writer)(found, target, chosen)
    policy = ErrorPolicy("skip" if on_error == "skip" else _refuse)
    copy = _Copy(writer, policy, chosen, call.options)
    if has_lines:
        with Progress(found.bytes) as progress:
            copy.run(copy.lines(found.files, progress))
    else:
        records = open_found(at_path)
        with Progress(len(records), unit="records") as progress:
            copy.run(copy.encoded(records, progress))
    return _report(found, target, copy)


def _refuse(number: int, _: bytes, why: Exception) -> None:
    message = f"{why}. --on-error skip leaves such lines out."
    raise MalformedLineError(message, path=getattr(why, "path", ""), line_number=number)


def _file_writer(found: PathFiles, target: str, shape: _WriteOptions) -> JsonlWriterSync:
    ctx = click.get_current_context()
    for name in ("shard_extension", "max_records_per_shard", "max_bytes_per_shard", "append"):
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = f"--{name.replace('_', '-')}"
            raise OptionError(f"{option} is for a directory, and {target} names a file.")
    file = JsonlFile(target, found.options)
    store, name, _ = file.source()
    if isinstance(store, LocalStore) and Path(name).is_dir():
        raise OptionError(f"{target} is a directory, although its name is that of a file.")
    if not shape.overwrite and file.exists_sync():
        raise OptionError(f"{target} exists already; --overwrite replaces it.")
    return file.writer_sync(
        compression_level=shape.compression_level,
        overwrite=shape.overwrite,
        frame_bytes=shape.frame_bytes,
    )


def _dir_writer(found: PathFiles, target: str, shape: _WriteOptions) -> JsonlWriterSync:
    if shape.overwrite:
        raise OptionError(
            f"--overwrite is for a file, and {target} is a directory: empty it first."
        )
    directory = JsonlDir(target, found.options)
    present: list[JsonlFile] = []
    with suppress(ObjectNotFoundError):
        present = directory.shards_sync()
    if present and not shape.append:
        raise OptionError(
            f"{target} already holds {counted(len(present), 'JSON Lines file')}, first "
            f"{present[0].path}; --append adds shards after them."
        )
    compressed = any(compression_of(path) is not None for path in [*found.found][:1])
    return directory.writer_sync(
        shape.shard_extension or (".jsonl.zst" if compressed else ".jsonl"),
        shape.max_records_per_shard,
        shape.max_bytes_per_shard,
        compression_level=shape.compression_level,
        frame_bytes=shape.frame_bytes,
    )


def _check_apart(found: PathFiles, target: str) -> None:
    """Refuse a DST inside of SRC: the next reader would find everything twice."""
    place, source = _place(target), _place(found.path) if found.kind == "directory" else None
    sources = [_place(file.path) for file in found.files]
    if names_file(target):
        is_read = place in sources or (source is not None and _parent(place) == source)
    else:
        is_read = place in {source, *sources, *map(_parent, sources)}
    if is_read:
        raise OptionError(
            f"DST {target} is where SRC {found.path} is read from; write somewhere else."
        )


def _place(path: str) -> str:
    store, name = locate(path)
    return str(Path(name).resolve()) if isinstance(store, LocalStore) else store.path(name)


def _parent(place: str) -> str:
    return place.rpartition("/")[0]


def _report(found: PathFiles, target: str, copy: _Copy) -> Report:
    stored = sum(JsonlFile(path, copy.options).size_sync() for path in copy.published)
    skipped = copy.policy.skipped
    left_out = f", {counted(skipped, 'bad line')} left out" if skipped else ""
    return Report(
        f"{target}: {counted(copy.records, 'record')} from {counted(len(found.files), 'file')} "
        f"in {counted(len(copy.published), 'file')}{left_out}, {bytes_text(copy.text_bytes)} of "
        f"text stored in {bytes_text(stored)}",
        source=found.path,
        target=target,
        files_read=len(found.files),
        files_written=copy.published,
        records=copy.records,
        text_bytes=copy.text_bytes,
        bytes=stored,
        skipped=skipped,
    )


@dataclass(slots=True)
class _Copy:
    """One run from files to a writer."""

    writer: JsonlWriterSync
    policy: ErrorPolicy
    shape: _WriteOptions
    options: StorageOptions
    records: int = 0
    text_bytes: int = 0
    complete: bool = False

    @property
    def published(self) -> list[str]:
        """The files that are visible so far."""
        if isinstance(self.writer, JsonlDirWriterSync):
            return self.writer.published
        return [self.writer.path] if self.complete else []

    def run(self, texts: Iterator[bytes]) -> None:
        """Write all lines; after a failure or Ctrl-C remove what was published."""
        try:
            with self.writer as writer:
                for text in self._steps(texts):
                    # A signal between publishing a shard and noting it would leave it behind.
                    with uninterrupted():
                        writer.write_raw(text)
                with uninterrupted():
                    writer.close()
                    self.complete = True
        except BaseException as failure:
            self._take_back(failure)
            raise
        self.policy.finish()

    def encoded(self, source: Source, progress: Progress) -> Iterator[bytes]:
        """Yield all records as lines, in pieces."""
        encoder = LineEncoder()
        for start in range(0, len(source), _STEP):
            ids = range(start, min(start + _STEP, len(source)))
            lines = b"".join(map(encoder.encode, source.read(ids)))
            self.records += len(ids)
            self.text_bytes += len(lines)
            progress.add(len(ids))
            yield lines
        if encoder.not_finite:
            _log.warning("NaN and infinities written as null: %d", encoder.not_finite)

    def lines(self, files: Sequence[JsonlFile], progress: Progress) -> Iterator[bytes]:
        """Yield the good lines of all files, each with its newline, in large pieces."""
        for file in files:
            for text in texts_of(file, progress):
                lines, records = self._good_lines(text)
                self.records += records
                self.text_bytes += len(lines)
                yield lines

    def _good_lines(self, text: TextPiece) -> tuple[bytes, int]:
        values = read_fast(text)
        if values is not None:
            return text.text if text.text.endswith(b"\n") else text.text + b"\n", len(values)
        good = []
        for line in read_lines(text):
            if isinstance(line, MalformedLine):
                self.policy.handle(line)
            else:
                good.append(line.text + b"\n")
        return b"".join(good), len(good)

    def _steps(self, texts: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the same in steps of about a shard, so that Ctrl-C does not wait long."""
        most_bytes, most_lines = self.shape.max_bytes_per_shard, self.shape.max_records_per_shard
        for text in texts:
            # Lines are counted only where a limit could be below what the text holds.
            lines = text.split(b"\n")[:-1] if most_lines or len(text) > most_bytes else []
            step = min(most_lines or len(lines), most_bytes * len(lines) // max(1, len(text)))
            if len(lines) <= step:
                yield text
                continue
            for start in range(0, len(lines), max(1, step)):
                yield b"\n".join([*lines[start : start + max(1, step)], b""])

    def _take_back(self, failure: BaseException) -> None:
        """Remove the shards that were published, and note that on the error."""
        if self.complete:
            failure.add_note(f"{self.writer.path} was complete by then and stays.")
            return
        left, removed = [], 0
        with uninterrupted(tidying=True):
            for path in self.published:
                try:
                    JsonlFile(path, self.options).delete_sync()
                    removed += 1
                except OSError:
                    left.append(path)
        shards = f"{counted(removed, 'shard')} that this run had published: removed again."
        failure.add_note(shards if removed or left else "Nothing was written.")
        if left:
            failure.add_note(f"Could not be removed, though complete: {', '.join(left)}")
