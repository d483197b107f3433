"""`penstock demo`: see it work in a few seconds."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from penstock.cli._terminal import Report
from penstock.cli._verb import FINDINGS, Verb, examples, json_option, option
from penstock.cli.demo._stages import STAGES, BrokenPromiseError, DemoRun
from penstock.cli.demo._training import TRAINING_STAGES, torch_is_there
from penstock.errors import OptionError

_FEWEST = 100
_LEFT_OUT = "Training was left out, as torch is not installed: pip install 'penstock[torch]'"


@click.command(cls=Verb, epilog=examples("penstock demo", "penstock demo --keep demo-data"))
@option(
    "--records N", "How many records to write.", type=click.IntRange(min=_FEWEST), default=50_000
)
@option("--keep DIR", "Write to this empty or new directory, and keep the dataset.")
@json_option
def demo(*, records: int, keep: str | None, as_json: bool) -> Report:  # noqa: ARG001 (of `Verb`)
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
        run = DemoRun(str(Path(directory).resolve()), records, scratch)
        try:
            for stage in STAGES + TRAINING_STAGES * trains:
                _show_now(stage.__doc__)
                stage(run)
        except BrokenPromiseError as failure:
            broken = str(failure)
        finally:
            _show_now(None)
    return _report(run, keep, broken, trains=trains)


def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="penstock-demo-")


def _kept(keep: str) -> str:
    directory = Path(keep).expanduser()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise OptionError(f"--keep {keep}: expected an empty or a new directory.")
    directory.mkdir(parents=True, exist_ok=True)
    return str(directory)


def _show_now(stage: str | None) -> None:
    """Show the current stage in a terminal; the table follows at the end."""
    if sys.stderr.isatty():
        text = stage.partition("\n")[0] if stage else ""
        # A line that wraps could not be erased.
        width = shutil.get_terminal_size().columns - 1
        click.echo(f"\r\x1b[K{text[:width]}", err=True, nl=False)


def _report(run: DemoRun, keep: str | None, broken: str, *, trains: bool) -> Report:
    report = Report(
        records=run.records,
        kept=keep,
        holds=not broken,
        broken=broken or None,
        left_out=None if trains else _LEFT_OUT,
    )
    cells = [
        [
            row.step,
            row.seen,
            "" if row.seconds is None else f"{row.seconds:.2f} s",
            f"{row.records / row.seconds:,.0f} records/s" if row.records and row.seconds else "",
        ]
        for row in run.rows
    ]
    steps = [row._asdict() | {"step": row.step.strip()} for row in run.rows]
    report.table(["step", "what was seen", "time", "rate"], cells, left=2, steps=steps)
    if broken:
        report.complain(FINDINGS, f"this does not hold: {broken}. Please report it.")
        return report
    report.line("", f"All {run.records:,} records are there once, although a writer was killed.")
    report.line(
        "The killed training went on with more workers; every loss is the same to the last digit."
        if trains
        else _LEFT_OUT
    )
    if keep:
        report.line(f"Look at it: penstock info {keep}")
    return report
