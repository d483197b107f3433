"""`penstock show`: records to look at."""

from __future__ import annotations

import json
import logging
import re
from contextlib import closing
from typing import TYPE_CHECKING

import click

from penstock.cli._fields import pick, without_nonfinite
from penstock.cli._paths import entry_of, find
from penstock.cli._selection import Batches, Numbered, sampled, sliced
from penstock.cli._terminal import Progress, echo, echo_json
from penstock.cli._units import counted
from penstock.cli._verb import FINDINGS, FINE, Verb, examples, json_option, storage_option
from penstock.errors import MalformedLineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.storage import StorageOptions

_log = logging.getLogger("penstock.cli")
_FIRST = slice(0, 5)


class _Show(Verb):
    """Takes `-1` as a record number although it looks like an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        valued = {name for p in self.params if not getattr(p, "is_flag", True) for name in p.opts}
        negative = [
            i
            for i, (before, text) in enumerate(zip(["", *args], args, strict=False))
            if re.fullmatch(r"-\d+(:-?\d*)?", text) and before not in valued
        ]
        if len(negative) == 1 and "--" not in args:
            (at,) = negative
            args = [*args[:at], *args[at + 1 :], "--", args[at]]
        return super().parse_args(ctx, args)


def _parse_which(ctx: click.Context, param: click.Parameter, text: str | None) -> slice | None:
    if text is None:
        return None
    match = re.fullmatch(r"(-?\d+)|(-?\d+)?:(-?\d+)?", text)
    if match is None:
        message = f"{text!r}: expected a record number (0, -1) or a range (10:20, -5:, :3)."
        raise click.BadParameter(message, ctx, param)
    if match[1]:
        number = int(match[1])
        return slice(number, number + 1 or None)
    return slice(*(int(bound) if bound else None for bound in match.group(2, 3)))


@click.command(
    cls=_Show,
    epilog=examples(
        "penstock show logs",
        "penstock show logs 1000",
        "penstock show logs -3: --fields id,user.name",
        "penstock show s3://bucket/logs --sample 10 --seed 1 --json",
    ),
)
@click.argument("path")
@click.argument("which", metavar="[N | A:B]", required=False, callback=_parse_which)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="K",
    help="K records of all of them, each equally likely; reads everything.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sample.")
@click.option("--fields", metavar="A,B.C", help="Only these fields; items[].price goes into lists.")
@storage_option
@json_option
def show(  # noqa: PLR0913 (one argument an option)
    *,
    path: str,
    which: slice | None,
    sample: int | None,
    seed: int,
    fields: str | None,
    storage_options: StorageOptions,
    as_json: bool,
) -> int:
    """Show records of PATH: the first 5, number N (from 0; -1 is the last), or the range A:B.

    Malformed lines are passed over with a warning and have no number.
    """
    if which is not None and sample is not None:
        raise click.UsageError("give either [N | A:B] or --sample, not both.")
    found = find(path, storage_options)
    wanted = [name.strip() for name in fields.split(",")] if fields else None
    shown = _Shown(wanted, as_json=as_json)
    with Progress(sum(entry_of(file).size for file in found.files)) as progress:
        batches = Batches(found.files, progress)
        with closing(iter(batches)) as stream:
            records = sampled(stream, sample, seed) if sample else sliced(stream, which or _FIRST)
            shown.add_all(records)
    shown.finish()
    if which is not None and not shown.count:
        held = (
            f"{path} holds {counted(batches.total, 'record')}"
            if batches.ended
            else "the range is empty"
        )
        echo(f"penstock: no such record: {held}.", err=True)
        return FINDINGS
    return FINE


class _Shown:
    """Prints records as they come, or gathers them for one JSON array."""

    def __init__(self, fields: list[str] | None, *, as_json: bool) -> None:
        self._fields = fields
        self._missing = set(fields or ())
        self._document: list[object] | None = [] if as_json else None
        self._nonfinite = False
        self.count = 0

    def add_all(self, records: Iterator[Numbered]) -> None:
        for record in records:
            self.count += 1
            value = record.value
            if self._fields is not None:
                value = {name: pick(value, name) for name in self._fields}
                self._missing -= {name for name, picked in value.items() if picked is not None}
            try:
                self._add(record, value)
            except RecursionError:
                message = (
                    f"{_place(record)} is nested too deeply to be shown; --fields shows parts."
                )
                raise MalformedLineError(message, path=record.path) from None

    def _add(self, record: Numbered, value: object) -> None:
        text = json.dumps(value, indent=2, ensure_ascii=False)
        if self._document is None:
            # A lone surrogate cannot be printed; its escape is what stood in the file.
            printable = text.encode("utf-8", "backslashreplace").decode()
            echo(f"# {_place(record)}\n{printable}")
            return
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:
            self._nonfinite = True
            value = without_nonfinite(value)
        self._document.append(value)

    def finish(self) -> None:
        if self._document is not None:
            echo_json(self._document)
        if self._nonfinite:
            _log.warning("NaN and infinities are shown as null, because JSON has neither")
        if self.count and self._missing:
            _log.warning("none of the records shown has %s", ", ".join(sorted(self._missing)))


def _place(record: Numbered) -> str:
    return f"{record.number} – {record.path}:{record.line}"
