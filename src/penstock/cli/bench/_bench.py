"""`penstock bench`: how fast a loader is over these records, where its time goes, what helps."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import click

from penstock._cpus import usable_cpus
from penstock.cli._by_number import open_numbered
from penstock.cli._terminal import echo, echo_json
from penstock.cli._verb import (
    FINDINGS,
    FINE,
    Verb,
    examples,
    index_option,
    json_option,
    storage_option,
)
from penstock.cli.bench._advice import Facts, advice, best_of
from penstock.cli.bench._columns import columns_for
from penstock.cli.bench._fields import all_types, cheap_types, field_types, parse_fields
from penstock.cli.bench._runs import Run, Setting, measure
from penstock.cli.bench._text import Report, document, text
from penstock.datasets import is_tokens
from penstock.errors import OptionError
from penstock.jsonl import compression_of
from penstock.loading import natural_shuffle
from penstock.storage import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cli.bench._columns import Gathered
    from penstock.cli.bench._runs import Shuffle, Workers
    from penstock.datasets import Source
    from penstock.storage import StorageOptions

_SHUFFLES: dict[str, Shuffle] = {"true": True, "full": "full", "block": "block", "none": False}
_LEAST = 0.05
"""Seconds that a run has at least."""


def _parse_workers(
    ctx: click.Context, param: click.Parameter, given: str | None
) -> list[Workers] | None:
    if given is None:
        return None
    parts = [part.strip() for part in given.split(",")]
    if not all(part == "auto" or part.isdecimal() for part in parts):
        message = f"{given!r}: expected numbers of workers, such as 0,auto,2,4."
        raise click.BadParameter(message, ctx, param)
    return list(dict.fromkeys("auto" if part == "auto" else int(part) for part in parts))


@click.command(
    cls=Verb,
    epilog=examples(
        "penstock bench logs",
        "penstock bench logs --fields 'price:float32,tags:list<int64>,user.age' --batch-size 512",
        "penstock bench logs --workers 0,auto,2,4 --seconds 30 --json",
        "penstock bench s3://bucket/logs --shuffle block -o region=eu-central-1",
    ),
)
@click.argument("path")
@click.option(
    "--fields",
    metavar="A,B.C:TYPE",
    help="What a batch has, with types as for DataLoader or without; all that it can have if not "
    "given.",
)
@click.option(
    "--batch-size", type=click.IntRange(min=1), metavar="B", default=1024, show_default=True
)
@click.option(
    "--shuffle",
    type=click.Choice(list(_SHUFFLES)),
    default="true",
    show_default=True,
    help="As for DataLoader; true chooses full or block by what is read.",
)
@click.option(
    "--workers",
    metavar="N,N,…",
    callback=_parse_workers,
    help="What to try: auto or numbers; 0, auto and a few by the cores there are if not given.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    default=10.0,
    show_default=True,
    help="For all runs together.",
)
@index_option
@storage_option
@json_option
def bench(  # noqa: PLR0913 (one argument an option)
    *,
    path: str,
    fields: str | None,
    batch_size: int,
    shuffle: str,
    workers: list[Workers] | None,
    seconds: float,
    folder: str | None,
    storage_options: StorageOptions,
    as_json: bool,
) -> int:
    """Run penstock.DataLoader over PATH for a while, show where the time goes, and suggest.

    Nothing is done with the batches, so that all of the time is the loader's. PATH needs an index
    (penstock index), or is CSV, Parquet or tokens. Without torch batches are Arrow record batches.
    Every run decodes; one more gathers from columns (penstock materialize), if they are there, or
    made in a few seconds, for this one look.
    """
    given = parse_fields(fields) if fields is not None else None
    with open_numbered(path, storage_options, folder) as opened:
        source = opened.source
        if not len(source):
            echo(f"penstock: {path} holds no records: there is nothing to run.", err=True)
            return FINDINGS
        facts = Facts(
            path,
            is_remote=any(map(is_remote, source.files)),
            compressions=frozenset(filter(None, map(compression_of, source.files))),
            names_fields=given is not None or is_tokens(source),
        )
        notes, output = _notes(facts, shuffle)
        base = Setting(
            workers="auto",
            types=_types(path, source, given),
            batch_size=min(batch_size, len(source)),
            shuffle=False if facts.is_gzip and shuffle == "true" else _SHUFFLES[shuffle],
            output=output,
        )
        if workers is None:
            workers = _worth_trying(is_token_source=is_tokens(source))
        elif is_tokens(source) and {0, "auto"} <= set(workers):
            workers.remove(0)  # For tokens that is what auto means.
        with columns_for(source, base.types, facts) as gathered:
            made = gathered
            cold, runs = _runs(source, base, workers, seconds, facts, gathered)
    counts = len(source), len(source.files)
    report = Report(path, *counts, cold, runs, advice(runs, facts, made), notes)
    if as_json:
        echo_json(document(report))
    else:
        echo(text(report))
    return FINE


def _types(path: str, source: Source, given: dict[str, str | None] | None) -> dict[str, str]:
    """Return the fields of a batch; tokens have none, and are a batch as they are."""
    if is_tokens(source):
        if given is not None:
            raise OptionError(f"--fields: {path} holds tokens, which have no fields. Leave it out.")
        return {}
    return all_types(source.schema) if given is None else field_types(given, source.schema)


def _notes(facts: Facts, shuffle: str) -> tuple[list[str], Literal["arrow"] | None]:
    """Return what has to be said beforehand, and what batches are."""
    notes = []
    output: Literal["arrow"] | None = None
    if find_spec("torch") is None:
        output = "arrow"
        notes.append("torch is not installed: batches are Arrow record batches, not tensors")
    if facts.is_gzip and shuffle == "true":
        notes.append("gzip can only be read in order: not shuffled")
    return notes, output


def _worth_trying(*, is_token_source: bool) -> list[Workers]:
    """Return numbers of workers that fit this machine; for tokens auto is 0."""
    cores = usable_cpus()
    few: list[Workers] = ["auto"] if is_token_source else [0, "auto"]
    return [*few, *sorted({n for n in (2, 4, 8, cores) if 1 < n <= cores})]


def _runs(  # noqa: PLR0913, PLR0917 (what is run, how, and for how long)
    source: Source,
    base: Setting,
    workers: list[Workers],
    seconds: float,
    facts: Facts,
    gathered: Gathered | None,
) -> tuple[Run, list[Run]]:
    """Run every setting, each for its share of the time; return the very first batch apart."""
    settings = [replace(base, workers=number) for number in workers]
    tried = list(_changes(source, base, facts))
    share = max(_LEAST, seconds / (len(settings) + len(tried) + (gathered is not None)))
    if base.output is None:
        import_module("torch")  # No part of anybody's first batch.
    cold = _run(source, replace(base, workers=0), 0.0)
    runs: list[Run] = []
    for setting in settings:
        runs.append(_run(source, replace(setting, seed=1 + len(runs)), share))
    fastest = best_of(runs).setting.workers
    for setting in tried:
        runs.append(_run(source, replace(setting, workers=fastest, seed=1 + len(runs)), share))
    if gathered is not None:
        last = replace(base, change="columns", seed=1 + len(runs))
        runs.append(_run(gathered.source, last, share))
    return cold, runs


def _run(source: Source, setting: Setting, seconds: float) -> Run:
    run = measure(source, setting, seconds)
    assert run is not None  # noqa: S101 (there are records)
    return run


def _changes(source: Source, base: Setting, facts: Facts) -> Iterator[Setting]:
    """Yield what else may help, to be tried with the number of workers that was best."""
    if base.shuffle == "full" and natural_shuffle(source)[0] == "block":
        yield replace(base, shuffle="block", change="block order")
    few = cheap_types(base.types)
    if not facts.names_fields and 0 < len(few) < len(base.types):
        yield replace(base, types=few, change="few fields")
