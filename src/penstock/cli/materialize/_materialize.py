"""`penstock materialize`: fields decoded once, from which batches are gathered."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from penstock.cli._opening import (
    folders_without_index,
    open_existing,
    open_indexed,
    refuse_tokens,
)
from penstock.cli._terminal import Progress, echo, echo_json
from penstock.cli._units import bytes_text, counted
from penstock.cli._verb import (
    FINDINGS,
    FINE,
    Verb,
    examples,
    index_option,
    json_option,
    storage_option,
)
from penstock.cli.bench._fields import parse_fields
from penstock.cli.materialize._fields import schema_of
from penstock.cli.materialize._text import (
    column_document,
    column_table,
    estimate_document,
    estimate_text,
    shown_folder,
)
from penstock.datasets import (
    Source,
    drop_columns_in,
    drop_columns_of,
    estimate_columns,
    list_columns_in,
    list_columns_of,
    origins_of,
)
from penstock.errors import (
    BadRecordsError,
    MalformedLineError,
    SchemaMismatchError,
    StaleIndexError,
)
from penstock.index import look_at
from penstock.storage import is_remote

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from penstock.datasets import ColumnsEstimate, ListedColumn
    from penstock.storage import StorageOptions


@dataclass(frozen=True, slots=True)
class _Task:
    """What is asked for."""

    path: str
    target: str | None
    on_error: Literal["raise", "null"]
    workers: int | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class _Made:
    """What came of it."""

    records: int
    cost: ColumnsEstimate
    used: Sequence[ListedColumn]
    """Of all fields, in their order."""
    built: Sequence[ListedColumn]
    seconds: float


@click.command(
    cls=Verb,
    epilog=examples(
        "penstock materialize logs 'price:float32,tags:list<int64>,user.age'",
        "penstock materialize logs --list",
        "penstock materialize logs price --drop",
        "penstock materialize s3://bucket/logs price,user.age",
        "penstock materialize s3://bucket/logs price --path s3://bucket/logs/index/columns",
    ),
)
@click.argument("path")
@click.argument("fields", required=False)
@click.option("--list", "lists", is_flag=True, help="Only show the columns that are there.")
@click.option("--drop", is_flag=True, help="Remove the columns of FIELDS, or all of them.")
@click.option(
    "--path",
    "target",
    metavar="FOLDER",
    help="Where columns lie, if not where they lie by themselves; a remote folder is published to, "
    "for everybody who reads the data beside it.",
)
@click.option(
    "--on-error",
    type=click.Choice(["raise", "null"]),
    default="raise",
    show_default=True,
    help="Of a value that does not fit its type: stop and name it, or have null in its place.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    metavar="N",
    help="Processes that decode; by default one a processor.",
)
@index_option
@storage_option
@json_option
def materialize(  # noqa: PLR0913 (one argument an option)
    *,
    path: str,
    fields: str | None,
    lists: bool,
    drop: bool,
    target: str | None,
    on_error: Literal["raise", "null"],
    workers: int | None,
    folder: str | None,
    storage_options: StorageOptions,
    as_json: bool,
) -> int:
    """Decode FIELDS of every record of PATH once, into columns that batches are gathered from.

    FIELDS are names or paths with types as for DataLoader, or without: then the profile says the
    type (penstock profile), or the schema. DataLoader uses columns that are there by itself.

    What is there already is not built again, and of data that was appended to only what is new is
    decoded. Killed or interrupted, the same command goes on with what was finished. Columns lie in
    index/columns beside the data; of single files, read-only and remote data in the cache
    directory.
    """
    if lists and drop:
        raise click.UsageError("give either --list or --drop, not both.")
    found = look_at(path, storage_options, folder)
    refuse_tokens(path, found, "batches of them are gathered as they are")
    if fields is None and not (lists or drop):
        raise click.UsageError("name the FIELDS to decode, such as price:float32,user.age.")
    given = None if fields is None else parse_fields(fields, "FIELDS")
    task = _Task(path, target, on_error, workers, as_json)
    try:
        if lists or drop:
            there = open_existing(path, found)
            where = folders_without_index(found, target)
            if drop:
                _drop(task, where if there is None else there, given)
            else:
                _list(task, where if there is None else there, given)
            return FINE
        source = open_indexed(path, found)
        _build(task, source, schema_of(given or {}, source))
    except (BadRecordsError, MalformedLineError, SchemaMismatchError, StaleIndexError) as failure:
        echo(f"penstock: {storage_options.redact(_as_option(failure))}", err=True)
        return FINDINGS
    return FINE


def _as_option(failure: Exception) -> str:
    """Return what an error says, in the words of the command line."""
    return str(failure).replace("on_error='null'", "--on-error null")


def _build(task: _Task, source: Source, schema: pa.Schema) -> None:
    cost = estimate_columns(source, schema, task.target)
    if cost.records and not task.as_json:
        echo(estimate_text(task.path, cost))
    began, start = time.time(), time.monotonic()
    with Progress(cost.records, unit="records") as progress:
        columns = source.materialize(
            schema, task.target, progress, on_error=task.on_error, workers=task.workers
        )
    seconds = time.monotonic() - start
    used = _used(task, columns)
    built = [column for column in used if column.meta.created >= began]
    made = _Made(len(source), cost, used, built, seconds)
    if task.as_json:
        echo_json(_document(task, made))
        return
    if used:
        echo(column_table(used, len(source)))
    echo(_summary(task, made))


def _used(task: _Task, columns: Source) -> list[ListedColumn]:
    """Return what is told of the columns that a source has, in the order of its fields."""
    there = {
        (one.folder, one.meta.path, one.meta.arrow_type, one.meta.nulled > 0): one
        for one in list_columns_of(columns, task.target)
    }
    specs = [spec for origin in origins_of(columns) for spec in getattr(origin, "specs", ())]
    return [there[spec] for spec in specs if spec in there]


def _document(task: _Task, made: _Made) -> dict[str, object]:
    return {
        "path": task.path,
        "records": made.records,
        "estimate": estimate_document(made.cost),
        "columns": [
            {**column_document(column, made.records), "built": column in made.built}
            for column in made.used
        ],
        "bytes": sum(column.meta.bytes for column in made.built),
        "published": task.target if _publishes(task) else None,
        "seconds": round(made.seconds, 3),
    }


def _publishes(task: _Task) -> bool:
    return task.target is not None and is_remote(task.target)


def _summary(task: _Task, made: _Made) -> str:
    if not made.records:
        return f"{task.path} holds no records: there is nothing to decode"
    size = bytes_text(sum(column.meta.bytes for column in made.built))
    count = len(made.used) - len(made.built)
    before = f"{counted(count, 'column')} {'was' if count == 1 else 'were'} there already"
    told = f"{counted(len(made.built), 'column')} of {size} built in {made.seconds:.1f} s"
    if not made.built:
        told = f"nothing to build: {before}"
    elif count:
        told += f", {before}"
    where = shown_folder(task.path, made.used[0].folder)
    if _publishes(task):
        return f"{task.path}: {told}; published in {task.target}, and in {where}"
    return f"{task.path}: {told}; in {where}"


def _list(task: _Task, where: Source | Sequence[Path], given: dict[str, str | None] | None) -> None:
    records = 0
    if isinstance(where, Source):
        columns, records = list_columns_of(where, task.target), len(where)
    else:
        columns = list_columns_in(where)
    columns = [column for column in columns if given is None or column.meta.path in given]
    size = sum(column.meta.bytes for column in columns)
    if task.as_json:
        told = [column_document(column, records) for column in columns]
        echo_json({"path": task.path, "records": records, "columns": told, "bytes": size})
        return
    if columns:
        echo(column_table(columns, records))
    folders = dict.fromkeys(shown_folder(task.path, column.folder) for column in columns)
    told_more = f", {bytes_text(size)}, in {' and '.join(folders)}" if columns else ""
    echo(f"{task.path}: {counted(len(columns), 'column')}{told_more}")


def _drop(task: _Task, where: Source | Sequence[Path], given: dict[str, str | None] | None) -> None:
    names = None if given is None else list(given)
    if isinstance(where, Source):
        dropped = drop_columns_of(where, names, task.target)
    else:
        dropped = drop_columns_in(where, names)
    size = sum(meta.bytes for meta in dropped)
    stays = (
        f"what is published in {task.target} stays; remove it with the tools of your storage"
        if _publishes(task)
        else None
    )
    if task.as_json:
        told = [{"path": m.path, "type": m.type, "bytes": m.bytes} for m in dropped]
        echo_json({"path": task.path, "dropped": told, "bytes": size, "note": stays})
        return
    for meta in dropped:
        nulled = f"{meta.nulled:,} values null instead, " if meta.nulled else ""
        echo(f"dropped {meta.path} ({meta.type}, {nulled}{bytes_text(meta.bytes)})")
    for name in [] if names is None else names:
        if name not in {meta.path for meta in dropped}:
            echo(f"no column of {name} was there")
    if stays:
        echo(stays)
    echo(f"{task.path}: dropped {counted(len(dropped), 'column')}, {bytes_text(size)}")
