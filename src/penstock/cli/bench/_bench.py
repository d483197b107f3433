"""`penstock bench`: how fast a loader is over these records, and what helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import click

from penstock._cpus import usable_cpus
from penstock.cli._by_number import open_indexed
from penstock.cli._paths import look_at
from penstock.cli._terminal import Report
from penstock.cli._typed_fields import all_types, cheap_types, field_types, parse_fields
from penstock.cli._units import bytes_text, counted, few
from penstock.cli._verb import COUNT, SHUFFLES, VerbCall, option, shuffle_option, verb
from penstock.cli.bench._runs import (
    STAGES,
    BenchFacts,
    LoaderRun,
    Setting,
    advice,
    best_of,
    columns_for,
    measure,
)
from penstock.datasets import Source, is_tokens
from penstock.errors import OptionError
from penstock.jsonl import SEQUENTIAL, compression_of
from penstock.loading import chosen_order
from penstock.storage import is_remote

if TYPE_CHECKING:
    from penstock.cli.bench._runs import ColumnsTrial, Workers

_LEAST = 0.05
"""Seconds of the shortest run."""


def _parse_workers(given: str) -> list[Workers]:
    parts = [part.strip() for part in given.split(",")]
    if not all(part == "auto" or part.isdecimal() for part in parts):
        raise click.BadParameter(f"{given!r}: expected numbers of workers, such as 0,auto,2,4.")
    return list(dict.fromkeys("auto" if part == "auto" else int(part) for part in parts))


@verb(
    "penstock bench logs",
    "penstock bench logs --fields 'price:float32,tags:list<int64>,user.age' --batch-size 512",
    "penstock bench logs --workers 0,auto,2,4 --seconds 30 --json",
    "penstock bench s3://bucket/logs --shuffle block -o region=eu-central-1",
    index=True,
)
@option(
    "--fields A,B.C:TYPE",
    "Fields of a batch, with types as for DataLoader or without; give those of your model. By "
    "default all that a batch can hold.",
)
@option("--batch-size B", "Records of a batch; give that of your run.", type=COUNT, default=1024)
@shuffle_option
@option(
    "--workers N,N,…",
    "Numbers of workers to try, or auto; by default those that fit the cores.",
    type=_parse_workers,
)
@option(
    "--seconds S",
    "Time for all runs together; longer runs measure better.",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
)
def bench(  # noqa: PLR0913 (one argument an option)
    call: VerbCall,
    *,
    fields: str | None,
    batch_size: int,
    shuffle: str,
    workers: list[Workers] | None,
    seconds: float,
) -> int | Report:
    """Run penstock.DataLoader over PATH for a while, show where the time goes, and suggest.

    Nothing is done with the batches, so that all of the time is the loader's. An index that PATH
    needs and has not is built first. Without torch batches are Arrow record batches. Every run
    decodes; one more gathers from columns (penstock materialize), if they are there, or can be
    made in a few seconds for this run.
    """
    given = parse_fields(fields) if fields is not None else None
    path = call.path
    source = open_indexed(path, look_at(path, call.options, call.folder))
    if not len(source):
        return call.finding(f"{path} holds no records: there is nothing to run.")
    facts = BenchFacts(
        path,
        is_remote=any(map(is_remote, source.files)),
        compressions=frozenset(filter(None, map(compression_of, source.files))),
        names_fields=given is not None or is_tokens(source),
        sequential=next(filter(SEQUENTIAL.__contains__, source.stream_files.values()), ""),
    )
    in_order = facts.sequential if shuffle == "true" else ""
    output: Literal["arrow"] | None = "arrow" if find_spec("torch") is None else None
    notes = ["torch is not installed: batches are Arrow record batches, not tensors"]
    notes = notes * bool(output)
    notes += [f"{in_order} can only be read in order: not shuffled"] * bool(in_order)
    base = Setting(
        workers="auto",
        types=_types(path, source, given),
        batch_size=min(batch_size, len(source)),
        shuffle=False if in_order else SHUFFLES[shuffle],
        output=output,
    )
    if workers is None:
        cores = usable_cpus()
        workers = [0, "auto", *sorted({n for n in (2, 4, 8, cores) if 1 < n <= cores})]
    if is_tokens(source) and {0, "auto"} <= set(workers):
        workers.remove(0)  # For tokens auto is 0.
    with columns_for(source, base.types, is_remote=facts.is_remote) as made:
        cold, runs = _runs(source, base, workers, seconds, facts, made)
    report = _report(path, source, cold, runs, notes)
    advised = advice(runs, facts, made)
    for number, one in enumerate(advised, 1):
        report.line("", f"{number}. {one.do}", f"   {one.why}.")
    report.data(advice=[one._asdict() for one in advised])
    return report


def _types(path: str, source: Source, given: dict[str, str | None] | None) -> dict[str, str]:
    """Return the fields of a batch; tokens have none."""
    if is_tokens(source):
        if given is not None:
            raise OptionError(f"--fields: {path} holds tokens, which have no fields. Leave it out.")
        return {}
    if given is not None:
        return field_types(given, source.schema)
    types = all_types(source.schema)
    if source.schema_is_complete:
        return types
    # Strings of JSON may stand for numbers and strings, in records that were looked at or not.
    return {name: type_.replace("string", "text") for name, type_ in types.items()}


def _runs(  # noqa: PLR0913, PLR0917 (what is run, how, and for how long)
    source: Source,
    base: Setting,
    workers: list[Workers],
    seconds: float,
    facts: BenchFacts,
    made: ColumnsTrial | None,
) -> tuple[LoaderRun, list[LoaderRun]]:
    """Run every setting for its share of the time; return the very first batch apart."""
    settings = [replace(base, workers=number) for number in workers]
    tried = list(_changes(source, base, facts))
    share = max(_LEAST, seconds / (len(settings) + len(tried) + (made is not None)))
    if base.output is None:
        import_module("torch")  # Not part of a first batch.
    cold = measure(source, replace(base, workers=0), 0.0)
    runs: list[LoaderRun] = []

    def run(setting: Setting, over: Source = source) -> None:
        runs.append(measure(over, replace(setting, seed=1 + len(runs)), share))

    for setting in settings:
        run(setting)
    fastest = best_of(runs).setting.workers
    for setting in tried:
        run(replace(setting, workers=fastest))
    if made is not None:
        run(replace(base, change="columns"), made.source)
    return cold, runs


def _changes(source: Source, base: Setting, facts: BenchFacts) -> Iterator[Setting]:
    """Yield other settings that may help, to be tried with the best number of workers."""
    if (
        base.shuffle == "full"
        and chosen_order(source, shuffle=True, through_columns=True)[0] == "block"
    ):
        yield replace(base, shuffle="block", change="block order")
    cheap = cheap_types(base.types)
    if not facts.names_fields and 0 < len(cheap) < len(base.types):
        yield replace(base, types=cheap, change="few fields")


def _report(
    path: str, source: Source, cold: LoaderRun, runs: Sequence[LoaderRun], notes: Sequence[str]
) -> Report:
    first, setting = runs[0], runs[0].setting
    is_far = any(run.stats["storage_requests"] for run in (cold, *runs))
    types = [f"{name}:{type_}" for name, type_ in setting.types.items()]
    kind = "Arrow record batches" if setting.output else "tensors"
    took, storage = f"{cold.first * 1000:,.0f} ms", cold.storage()
    if is_far:
        took += f", {counted(storage['requests'], 'request')}, {bytes_text(storage['bytes'])}"
    report = Report(path, path=path, records=len(source), files=len(source.files))
    report.row("records", f"{len(source):,} in {counted(len(source.files), 'file')}")
    report.row("order", first.order, order=first.order)
    report.row(
        "batches",
        f"of {setting.batch_size:,} as {kind}" + (f": {few(types, 12)}" if types else ""),
        batch_size=setting.batch_size,
        output=setting.output or "tensors",
        fields=dict(setting.types),
    )
    report.row(
        "first",
        f"of all batches took {took}",
        very_first_batch={"seconds": cold.first, "storage": storage},
    )
    report.line(*(f"  {note}" for note in notes), "", notes=notes)
    header = ["workers", "records/s", "first batch", *STAGES]
    header += ["requests", "bytes", "cache hits"] if is_far else []
    report.table(
        [*header, "made by"],
        [_cells(run, is_far=is_far) for run in runs],
        runs=[_run_document(run) for run in runs],
    )
    report.line("", "read, decode, encode: µs a record, added up over all threads and processes")
    return report


def _run_document(run: LoaderRun) -> dict[str, object]:
    return {
        "workers": run.setting.workers,
        "made_by": run.made_by,
        "change": run.setting.change or None,
        "columns": run.columns,
        "order": run.order,
        "fields": list(run.setting.types),
        "records_per_second": run.rate,
        "first_batch_seconds": run.first,
        "batches": int(run.stats["batches"]),
        "records": int(run.stats["records"]),
        "microseconds_per_record": {stage: run.micros(stage) for stage in (*STAGES, "wait")},
        "storage": run.storage(),
        "cache_hits": int(run.stats["cache_hits"]),
    }


def _cells(run: LoaderRun, *, is_far: bool) -> list[str]:
    name = ", ".join(filter(None, (str(run.setting.workers), run.setting.change)))
    cells = [name, f"{run.rate:,.0f}", f"{run.first * 1000:,.0f} ms"]
    cells += [f"{run.micros(stage):.2f}" for stage in STAGES]
    if is_far:
        storage, hits = run.storage(), run.stats["cache_hits"]
        cells += [f"{storage['requests']:,}", bytes_text(storage["bytes"]), f"{hits:,.0f}"]
    return [*cells, run.made_by.partition(":")[0]]
