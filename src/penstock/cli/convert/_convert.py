"""`penstock convert`: the same lines in other files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from penstock.cli._paths import entry_of, find
from penstock.cli._terminal import Progress, echo, echo_json
from penstock.cli._units import bytes_text, counted, parse_size
from penstock.cli._verb import FINE, Verb, examples, json_option, storage_option
from penstock.cli.convert._copying import Copy
from penstock.errors import ObjectNotFoundError, OptionError
from penstock.jsonl import (
    OTHER_FORMATS,
    SHARD_EXTENSIONS,
    JsonlDir,
    JsonlFile,
    compression_of,
    is_jsonl,
)
from penstock.storage import LocalStore, locate

if TYPE_CHECKING:
    from penstock.cli._paths import Found
    from penstock.jsonl import JsonlWriterSync
    from penstock.storage import StorageOptions


@dataclass(frozen=True, slots=True)
class _Shape:
    """How and where the lines are to be written."""

    shard_extension: str | None
    max_records_per_shard: int | None
    max_bytes_per_shard: int
    compression_level: int
    frame_bytes: int
    overwrite: bool
    append: bool


@click.command(
    cls=Verb,
    epilog=examples(
        "penstock convert logs.jsonl logs.jsonl.zst",
        "penstock convert 'raw/*.jsonl.gz' logs --shard-extension .jsonl.zst",
        "penstock convert logs s3://bucket/logs --max-bytes-per-shard 64MB",
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option(
    "--on-error",
    type=click.Choice(["raise", "skip"]),
    default="raise",
    show_default=True,
    help="What to do about a malformed line.",
)
@click.option(
    "--shard-extension",
    type=click.Choice(SHARD_EXTENSIONS),
    help="Of the shards; by default .jsonl.zst if SRC is compressed, else .jsonl.",
)
@click.option("--max-records-per-shard", type=click.IntRange(min=1), metavar="N")
@click.option(
    "--max-bytes-per-shard",
    type=parse_size,
    default="256MiB",
    show_default=True,
    metavar="SIZE",
    help="Of uncompressed text: 64MB, 1GiB …",
)
@click.option("--compression-level", type=int, default=3, show_default=True, metavar="N")
@click.option(
    "--frame-bytes",
    type=parse_size,
    default="256KiB",
    show_default=True,
    metavar="SIZE",
    help="Text in one independently readable zstd frame.",
)
@click.option("--overwrite", is_flag=True, help="Replace DST, a file that exists.")
@click.option("--append", is_flag=True, help="Add shards to DST, a directory that has some.")
@storage_option
@json_option
def convert(
    *,
    source: str,
    target: str,
    on_error: str,
    storage_options: StorageOptions,
    as_json: bool,
    **shape: object,
) -> int:
    """Write the lines of SRC to DST: another compression, other shards, another place.

    DST is a file if its name ends in .jsonl, .jsonl.zst, .jsonl.zstd or .jsonl.gz, else a
    directory of shards. Lines are copied byte for byte; blank ones are left out. Either all of
    it appears or, after a failure, nothing: shards published by then are removed again. The
    storage options hold for SRC and DST.
    """
    chosen = _Shape(**shape)  # type: ignore[arg-type]
    found = find(source, storage_options)
    _check_apart(found, target)
    writer = _writer(found, target, storage_options, chosen)
    copy = Copy(
        writer,
        on_error == "skip",
        chosen.max_bytes_per_shard,
        chosen.max_records_per_shard,
        storage_options,
    )
    with Progress(sum(entry_of(file).size for file in found.files)) as progress:
        copy.run(found.files, progress)
    _report(found, target, copy, as_json=as_json)
    return FINE


def _writer(found: Found, target: str, options: StorageOptions, shape: _Shape) -> JsonlWriterSync:
    if target.lower().endswith(OTHER_FORMATS):
        message = f"cannot write {target}: this release writes .jsonl[.zst|.gz] and directories."
        raise OptionError(message)
    if is_jsonl(target):
        return _file_writer(target, options, shape)
    return _dir_writer(found, target, options, shape)


def _file_writer(target: str, options: StorageOptions, shape: _Shape) -> JsonlWriterSync:
    ctx = click.get_current_context()
    for name in ("shard_extension", "max_records_per_shard", "max_bytes_per_shard", "append"):
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            message = f"--{name.replace('_', '-')} is for a directory, and {target} names a file."
            raise OptionError(message)
    file = JsonlFile(target, options)
    store, name, _ = file.source()
    if isinstance(store, LocalStore) and Path(name).is_dir():
        message = f"{target} is a directory, although its name is that of a file."
        raise OptionError(message)
    if not shape.overwrite and file.exists_sync():
        message = f"{target} exists already; --overwrite replaces it."
        raise OptionError(message)
    return file.writer_sync(
        compression_level=shape.compression_level,
        overwrite=shape.overwrite,
        frame_bytes=shape.frame_bytes,
    )


def _dir_writer(
    found: Found, target: str, options: StorageOptions, shape: _Shape
) -> JsonlWriterSync:
    if shape.overwrite:
        message = f"--overwrite is for a file, and {target} is a directory: empty it first."
        raise OptionError(message)
    directory = JsonlDir(target, options)
    if not shape.append and (present := _shards(directory)):
        message = (
            f"{target} already holds {counted(len(present), 'JSON Lines file')}, first "
            f"{present[0].path}; --append adds shards after them."
        )
        raise OptionError(message)
    compressed = bool(found.files) and compression_of(found.files[0].path) is not None
    return directory.writer_sync(
        shape.shard_extension or (".jsonl.zst" if compressed else ".jsonl"),
        shape.max_records_per_shard,
        shape.max_bytes_per_shard,
        compression_level=shape.compression_level,
        frame_bytes=shape.frame_bytes,
    )


def _shards(directory: JsonlDir) -> list[JsonlFile]:
    try:
        return directory.shards_sync()
    except ObjectNotFoundError:
        return []


def _check_apart(found: Found, target: str) -> None:
    """Refuse to write where is read: the next reader would find everything twice."""
    place = _place(target)
    sources = [_place(file.path) for file in found.files]
    parents = {_parent(source) for source in sources}
    if found.kind == "directory":
        parents.add(_place(found.path))
    if place in sources or (not is_jsonl(target) and place in parents):
        message = f"DST {target} is where SRC {found.path} is read from; write somewhere else."
        raise OptionError(message)
    inside = found.kind == "directory" and _parent(place) == _place(found.path)
    if inside and is_jsonl(target):
        message = f"DST {target} lies in SRC {found.path}; write it somewhere else."
        raise OptionError(message)


def _place(path: str) -> str:
    store, name = locate(path)
    return str(Path(name).resolve()) if isinstance(store, LocalStore) else store.path(name)


def _parent(place: str) -> str:
    return place.rpartition("/")[0]


def _report(found: Found, target: str, copy: Copy, *, as_json: bool) -> None:
    stored = sum(entry_of(JsonlFile(path, copy.options)).size for path in copy.published)
    skipped = copy.skipped.count
    if as_json:
        echo_json(
            {
                "source": found.path,
                "target": target,
                "files_read": len(found.files),
                "files_written": copy.published,
                "records": copy.records,
                "text_bytes": copy.text_bytes,
                "bytes": stored,
                "skipped": skipped,
            }
        )
        return
    left_out = f", {counted(skipped, 'bad line')} left out" if skipped else ""
    echo(
        f"{target}: {counted(copy.records, 'record')} from {counted(len(found.files), 'file')} "
        f"in {counted(len(copy.published), 'file')}{left_out}, {bytes_text(copy.text_bytes)} of "
        f"text stored in {bytes_text(stored)}"
    )
