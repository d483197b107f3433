"""`penstock materialize`: decode fields once, into columns that batches are gathered from."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from penstock._redact import without_secrets
from penstock.cli._by_number import open_indexed, records_or_folders
from penstock.cli._paths import as_typed, look_at, refuse_tokens
from penstock.cli._terminal import Progress, Report, echo
from penstock.cli._typed_fields import field_types, parse_fields
from penstock.cli._units import age_text, bytes_text, counted
from penstock.cli._verb import VerbCall, flag, option, verb, workers_option
from penstock.datasets import (
    Source,
    drop_columns_of,
    estimate_columns,
    known_profile,
    list_columns_of,
    origins_of,
    profile_types,
    typed_schema,
)
from penstock.errors import (
    BadRecordsError,
    MalformedLineError,
    OptionError,
    SchemaMismatchError,
    StaleIndexError,
)
from penstock.storage import free_bytes, is_remote, locate

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.datasets import ListedColumn


@dataclass(frozen=True, slots=True)
class _ColumnsTask:
    """The options of the verb, by their names."""

    path: str
    target: str | None
    on_error: Literal["raise", "null"]
    workers: int | None

    @property
    def published(self) -> str | None:
        """The remote folder that columns are published in."""
        return self.target if self.target is not None and is_remote(self.target) else None

    def shown(self, folder: str) -> str:
        """Return a folder relative to PATH, if it lies there."""
        if is_remote(folder) or is_remote(self.path):
            return folder
        is_below = Path(folder).is_relative_to(locate(self.path)[1])
        return as_typed(self.path, folder) if is_below else folder


@verb(
    "penstock materialize logs 'price:float32,tags:list<int64>,user.age'",
    "penstock materialize logs --list",
    "penstock materialize logs price --drop",
    "penstock materialize s3://bucket/logs price,user.age",
    "penstock materialize s3://bucket/logs price --path s3://bucket/logs/index/columns",
    index=True,
)
@click.argument("fields", required=False)
@flag("--list", "Only show the columns that are there.", dest="lists")
@flag("--drop", "Remove the columns of FIELDS, or all columns.")
@option(
    "--path FOLDER",
    "Folder of the columns, if the usual place has no room or is not shared; columns in a "
    "remote folder beside the data serve every reader of that data.",
    dest="target",
)
@option(
    "--on-error raise|null",
    "At a value that does not fit its type: raise names it and stops, null counts it.",
    default="raise",
)
@workers_option("decode")
def materialize(
    call: VerbCall,
    *,
    fields: str | None,
    lists: bool,
    drop: bool,
    **given: Any,  # noqa: ANN401 (those of `_ColumnsTask`)
) -> int | Report:
    """Decode FIELDS of every record of PATH once, into columns that batches are gathered from.

    FIELDS are names or paths with types as for DataLoader, or without: then the type comes from the
    profile (penstock profile), or the schema. DataLoader finds and uses columns by itself.

    Columns that are there are not built again, and of data that was appended to only the new
    records are decoded. Killed or interrupted, the same command goes on with what was finished.
    Columns lie in index/columns beside the data; of single files, read-only and remote data in the
    cache directory.
    """
    if lists and drop:
        raise click.UsageError("give either --list or --drop, not both.")
    task = _ColumnsTask(call.path, **given)
    found = look_at(call.path, call.options, call.folder)
    refuse_tokens(task.path, found, "batches of them are gathered as they are")
    if fields is None and not (lists or drop):
        raise click.UsageError("name the FIELDS to decode, such as price:float32,user.age.")
    types = None if fields is None else parse_fields(fields, "FIELDS")
    try:
        if lists or drop:
            where = records_or_folders(task.path, found, task.target)
            return (_drop if drop else _list)(task, where, types)
        source = open_indexed(task.path, found)
        return _build(task, source, _schema(types or {}, source), tells=not call.as_json)
    except (BadRecordsError, MalformedLineError, SchemaMismatchError, StaleIndexError) as failure:
        if failure.remedy and not isinstance(failure, StaleIndexError):
            failure.advise(failure.remedy.replace("on_error='null'", "--on-error null"))
        return call.finding(failure)


def _schema(given: dict[str, str | None], source: Source) -> pa.Schema:
    """Return all fields with their Arrow types: the one given, or that of profile or schema."""
    known = {name: type_ for name, type_ in given.items() if type_ is not None}
    unknown = [name for name in given if name not in known]
    profile = None
    if unknown and not source.schema_is_complete:
        profile = known_profile(source)
    if profile is not None:
        found = profile_types(profile.document)
        for odd in filter(found.left_out.__contains__, unknown):
            raise OptionError(
                f"{odd} has no type of its own: {found.left_out[odd]}. Give it one: {odd}:json."
            )
        known = found.types | known
    types = {name: known.get(name) for name in given}
    if None in types.values():
        types |= field_types(types, source.schema)
    for name, type_ in types.items():
        try:
            typed_schema({name: type_})
        except OptionError as why:
            raise OptionError(f"field {name!r}: {why}") from None
    schema = typed_schema(types)
    assert schema is not None  # noqa: S101 (each has its type)
    return schema


def _build(task: _ColumnsTask, source: Source, schema: pa.Schema, *, tells: bool) -> Report:
    cost = estimate_columns(source, schema, task.target)
    free = free_bytes(cost.folder)
    if cost.records and tells:
        took = "less than a second" if cost.seconds < 1 else f"about {age_text(cost.seconds)}"
        echo(
            f"{without_secrets(task.path)}: {counted(cost.records, 'record')} to decode: {took}, "
            f"about {bytes_text(cost.bytes)}; {bytes_text(free)} free in {task.shown(cost.folder)}"
        )
    began, start = time.time(), time.monotonic()
    with Progress(cost.records, unit="records") as progress:
        columns = source.materialize(
            schema, task.target, progress, on_error=task.on_error, workers=task.workers
        )
    seconds = time.monotonic() - start
    used = _used(task, columns)
    built = [column for column in used if column.meta.created >= began]
    size = sum(column.meta.bytes for column in built)
    report = Report(
        path=task.path,
        records=len(source),
        estimate={
            "seconds": round(cost.seconds, 3),
            "bytes": cost.bytes,
            "records": cost.records,
            "free_bytes": free,
        },
        bytes=size,
        published=task.published,
        seconds=round(seconds, 3),
    )
    _add_columns(report, used, len(source), built)
    if not len(source):
        report.line(f"{task.path} holds no records: there is nothing to decode")
        return report
    count = len(used) - len(built)
    before = f"{counted(count, 'column')} {'was' if count == 1 else 'were'} there already"
    text = f"{counted(len(built), 'column')} of {bytes_text(size)} built in {seconds:.1f} s"
    text += f", {before}" if count else ""
    text = text if built else f"nothing to build: {before}"
    where = f"in {task.shown(used[0].folder)}"
    where = f"published in {task.published}, and {where}" if task.published else where
    report.line(f"{task.path}: {text}; {where}")
    return report


def _used(task: _ColumnsTask, columns: Source) -> list[ListedColumn]:
    """Return the columns of a source, in the order of its fields."""
    present = {
        (one.folder, one.meta.path, one.meta.arrow_type, one.meta.nulled > 0): one
        for one in list_columns_of(columns, task.target)
    }
    specs = [spec for origin in origins_of(columns) for spec in getattr(origin, "specs", ())]
    return [present[spec] for spec in specs if spec in present]


def _add_columns(
    report: Report,
    columns: Sequence[ListedColumn],
    records: int,
    built: Collection[ListedColumn] | None = None,
) -> None:
    """Report columns one by one; `records` is the number of records of their source."""
    documents, rows = [], []
    for column in columns:
        meta, state = column.meta, "not known without an index"
        missing = max(0, records - meta.length)
        if column.stale is not None:
            state = f"{counted(missing, 'record')} behind" if missing else "fresh"
            state = "stale: of other records" if column.stale else state
        numbers = f"{meta.length:,}", bytes_text(meta.bytes), f"{meta.nulled:,}", f"{meta.bad:,}"
        rows.append([meta.path, meta.type, *numbers, age_text(time.time() - meta.created), state])
        document = {
            "path": meta.path,
            "type": meta.type,
            "records": meta.length,
            "bytes": meta.bytes,
            "created": meta.created,
            "stale": column.stale,
            "missing_records": None if column.stale is None else missing,
            "nulled": meta.nulled,
            "bad": meta.bad,
            "folder": column.folder,
        }
        documents.append(document if built is None else document | {"built": column in built})
    report.data(columns=documents)
    if rows:
        header = ["column", "type", "records", "bytes", "nulled", "bad", "age", "state"]
        report.table(header, rows, left=2)


def _list(
    task: _ColumnsTask, where: Source | Sequence[Path], given: dict[str, str | None] | None
) -> Report:
    records = len(where) if isinstance(where, Source) else 0
    columns = list_columns_of(where, task.target)
    columns = [column for column in columns if given is None or column.meta.path in given]
    size = sum(column.meta.bytes for column in columns)
    report = Report(path=task.path, records=records, bytes=size)
    _add_columns(report, columns, records)
    folders = dict.fromkeys(task.shown(column.folder) for column in columns)
    more = f", {bytes_text(size)}, in {' and '.join(folders)}" if columns else ""
    report.line(f"{task.path}: {counted(len(columns), 'column')}{more}")
    return report


def _drop(
    task: _ColumnsTask, where: Source | Sequence[Path], given: dict[str, str | None] | None
) -> Report:
    names = None if given is None else list(given)
    dropped = drop_columns_of(where, names, task.target)
    size, stays = sum(meta.bytes for meta in dropped), None
    report = Report(path=task.path, bytes=size)
    report.data(dropped=[{"path": m.path, "type": m.type, "bytes": m.bytes} for m in dropped])
    for meta in dropped:
        nulled = f"{counted(meta.nulled, 'value')} null instead, " if meta.nulled else ""
        report.line(f"dropped {meta.path} ({meta.type}, {nulled}{bytes_text(meta.bytes)})")
    missing = set(names or ()) - {meta.path for meta in dropped}
    report.line(*(f"no column of {name} was there" for name in names or () if name in missing))
    if task.published:
        stays = f"what is published in {task.published} stays; remove it with the tools of your "
        stays += "storage"
        report.line(stays)
    report.line(f"{task.path}: dropped {counted(len(dropped), 'column')}, {bytes_text(size)}")
    report.data(note=stays)
    return report
