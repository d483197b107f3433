"""`penstock demo`: see it work in a few seconds."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli._demo_stages import STAGES, BrokenPromiseError, Row, Run
from penstock.cli._terminal import echo, echo_json, table
from penstock.cli._verb import FINDINGS, FINE, Verb, examples, json_option
from penstock.errors import OptionError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

_FEWEST = 100


@click.command(cls=Verb, epilog=examples("penstock demo", "penstock demo --keep demo-data"))
@click.option(
    "--records",
    type=click.IntRange(min=_FEWEST),
    default=50_000,
    show_default=True,
    metavar="N",
    help="How many records to write.",
)
@click.option(
    "--keep", metavar="DIR", help="Write to this directory, which must be empty, and leave it."
)
@json_option
def demo(*, records: int, keep: str | None, as_json: bool) -> int:
    """Write a dataset, kill a writer half-way, and read everything back.

    Every count is compared with what was written; exit code 1 means that a promise did not hold.
    """
    place = _place(keep)
    with place as directory:
        run = Run(str(Path(directory).resolve()), records)
        broken = ""
        try:
            for stage in STAGES:
                stage(run)
        except BrokenPromiseError as failure:
            broken = str(failure)
    if as_json:
        echo_json(_document(run, keep, broken))
    else:
        echo(_table(run.rows))
    if broken:
        echo(f"penstock: this does not hold: {broken}. Please report it.", err=True)
        return FINDINGS
    if not as_json:
        echo(_ending(records, keep))
    return FINE


def _place(keep: str | None) -> AbstractContextManager[str]:
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="penstock-demo-")
    directory = Path(keep)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        message = f"--keep {keep}: expected an empty or a new directory."
        raise OptionError(message)
    directory.mkdir(parents=True, exist_ok=True)
    return nullcontext(keep)


def _table(rows: list[Row]) -> str:
    cells = [
        [
            row.step,
            row.seen,
            "" if row.seconds is None else f"{row.seconds:.2f} s",
            f"{row.records / row.seconds:,.0f} records/s" if row.records and row.seconds else "",
        ]
        for row in rows
    ]
    return table(["step", "what was seen", "time", "rate"], cells, left=2)


def _ending(records: int, keep: str | None) -> str:
    kept = f" Look at it: penstock info {keep}" if keep else ""
    return f"\nAll {records:,} records are there once, although a writer was killed.{kept}"


def _document(run: Run, keep: str | None, broken: str) -> dict[str, object]:
    return {
        "records": run.records,
        "kept": keep,
        "holds": not broken,
        "broken": broken or None,
        "steps": [row._asdict() | {"step": row.step.strip()} for row in run.rows],
    }
