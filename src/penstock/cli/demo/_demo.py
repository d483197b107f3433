"""`penstock demo`: see it work in a few seconds."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from penstock.cli._terminal import echo, echo_json, table
from penstock.cli._verb import FINDINGS, FINE, Verb, examples, json_option
from penstock.cli.demo._stages import STAGES, BrokenPromiseError, Row, Run
from penstock.cli.demo._training import TRAINING_STAGES, torch_is_there
from penstock.errors import OptionError

_FEWEST = 100
_LEFT_OUT = "Training was left out, as torch is not installed: pip install 'penstock[torch]'"


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

    Then train a small model on it in shuffled order, kill the training in the middle of an epoch,
    resume it with another number of workers, and compare every loss with those of an uncut run.
    That needs torch, and is left out without it.

    Every count is compared with what was written; exit code 1 means that a promise did not hold.
    """
    broken = ""
    trains = torch_is_there()
    with ExitStack() as places:
        directory = _kept(keep) if keep else places.enter_context(_temporary())
        scratch = places.enter_context(_temporary())
        run = Run(str(Path(directory).resolve()), records, scratch)
        try:
            for stage in STAGES + TRAINING_STAGES * trains:
                _show_now(stage.__doc__)
                stage(run)
        except BrokenPromiseError as failure:
            broken = str(failure)
        finally:
            _show_now(None)
    if as_json:
        echo_json(_document(run, keep, broken, trains=trains))
    else:
        echo(_table(run.rows))
    if broken:
        echo(f"penstock: this does not hold: {broken}. Please report it.", err=True)
        return FINDINGS
    if not as_json:
        echo(_ending(records, keep, trains=trains))
    return FINE


def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="penstock-demo-")


def _kept(keep: str) -> str:
    directory = Path(keep)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        message = f"--keep {keep}: expected an empty or a new directory."
        raise OptionError(message)
    directory.mkdir(parents=True, exist_ok=True)
    return keep


def _show_now(stage: str | None) -> None:
    """Tell a person at a terminal what is going on; the table comes when all is done."""
    if sys.stderr.isatty():
        text = stage.partition("\n")[0] if stage else ""
        # A line that wraps could not be taken back.
        width = shutil.get_terminal_size().columns - 1
        click.echo(f"\r\x1b[K{text[:width]}", err=True, nl=False)


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


def _ending(records: int, keep: str | None, *, trains: bool) -> str:
    lines = ["", f"All {records:,} records are there once, although a writer was killed."]
    if trains:
        lines.append(
            "The killed training went on with more workers; every loss is the same to the last "
            "digit."
        )
    else:
        lines.append(_LEFT_OUT)
    if keep:
        lines.append(f"Look at it: penstock info {keep}")
    return "\n".join(lines)


def _document(run: Run, keep: str | None, broken: str, *, trains: bool) -> dict[str, object]:
    return {
        "records": run.records,
        "kept": keep,
        "holds": not broken,
        "broken": broken or None,
        "left_out": None if trains else _LEFT_OUT,
        "steps": [row._asdict() | {"step": row.step.strip()} for row in run.rows],
    }
