"""`penstock plan`: what a run over these records will do, before it does it."""

from __future__ import annotations

import json
import logging
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from penstock.cli._by_number import open_numbered
from penstock.cli._terminal import echo, echo_json
from penstock.cli._units import parse_size
from penstock.cli._verb import (
    FINDINGS,
    FINE,
    Verb,
    examples,
    index_option,
    json_option,
    storage_option,
)
from penstock.cli.plan._numbers import Layout, steps_of
from penstock.cli.plan._steps import list_steps
from penstock.cli.plan._text import Plan, document, text
from penstock.cli.plan._tokens import Cut, windows_of
from penstock.datasets import is_tokens, list_columns_of
from penstock.errors import ChangedSourceError, OptionError
from penstock.loading import Sharing, chosen_order, read_skips, resumed
from penstock.order import Cursor, Skips
from penstock.storage import locate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.datasets import Source
    from penstock.storage import StorageOptions

_log = logging.getLogger("penstock.cli")
_CACHE_BYTES = 10 << 30
"""What a host keeps of remote blocks where nobody said otherwise and its disk has room."""
_OF_A_VIEW = (
    "(The state of a view, of a split say, is explained by its loader: loader.explain(step).)"
)
_OF_WINDOWS = "(The state of a run with Tokens is one of windows: give its --length and --stride.)"
_SHUFFLES: dict[str, Any] = {"true": True, "full": "full", "block": "block", "none": False}


@dataclass(frozen=True, slots=True)
class _Asked:
    """The numbers of a run, as the command line has them."""

    batch_size: int | None
    global_batch_size: int | None
    world_size: int
    drop_last: bool
    shuffle: str
    seed: int
    epoch: int
    skip: tuple[str, ...]
    state: str | None

    def sharing(self, rank: int) -> Sharing:
        """Return how batches are shared, or say which number is missing or does not fit."""
        if not 0 <= rank < self.world_size:
            raise OptionError(f"--rank {rank} is not one of {self.world_size}; ranks count from 0.")
        size = self.batch_size
        if self.global_batch_size is not None:
            size, rest = divmod(self.global_batch_size, self.world_size)
            if rest or self.batch_size not in (None, size):
                raise OptionError(
                    f"--global-batch-size {self.global_batch_size} is not --world-size "
                    f"{self.world_size} times a batch size"
                    + (f" of {self.batch_size}." if self.batch_size else ".")
                )
        if size is None:
            raise OptionError("give --batch-size (of each rank) or --global-batch-size (of all).")
        return Sharing(size, rank, self.world_size, self.drop_last)


def _parse_steps(ctx: click.Context, param: click.Parameter, given: str | None) -> slice | None:
    if given is None:
        return None
    match = re.fullmatch(r"(\d+)|(\d+)?:(\d+)?", given)
    if match is None:
        message = f"{given!r}: expected a step (12) or a range of steps (12:15, 12:, :3)."
        raise click.BadParameter(message, ctx, param)
    if match[1]:
        return slice(int(match[1]), int(match[1]) + 1)
    return slice(*(int(bound) if bound else None for bound in match.group(2, 3)))


@click.command(
    cls=Verb,
    epilog=examples(
        "penstock plan logs --batch-size 512 --world-size 8 --workers 4",
        "penstock plan logs --global-batch-size 4096 --world-size 8 --step 1200 --rank 3",
        "penstock plan logs --batch-size 512 --shuffle full --step 0:2 --show",
        "penstock plan s3://bucket/logs --batch-size 512 --world-size 64 --hosts 8 --json",
        "penstock plan logs --batch-size 512 --state state.json --step 1200:1202",
        "penstock plan tokens --length 2048 --batch-size 8 --state state.json",
    ),
)
@click.argument("path")
@click.option("--batch-size", type=click.IntRange(min=1), metavar="B", help="Rows of each rank.")
@click.option(
    "--global-batch-size", type=click.IntRange(min=1), metavar="G", help="Rows of all ranks."
)
@click.option("--world-size", type=click.IntRange(min=1), metavar="W", default=1, help="Ranks.")
@click.option("--workers", type=click.IntRange(min=0), metavar="N", default=0, help="Of each rank.")
@click.option(
    "--shuffle",
    type=click.Choice(list(_SHUFFLES)),
    default="true",
    show_default=True,
    help="As for DataLoader; true chooses full or block by what is read.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the order.")
@click.option("--epoch", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--drop-last", is_flag=True, help="Without the last batch if it is not full.")
@click.option(
    "--skip",
    multiple=True,
    metavar="N | A:B | FILE",
    help="Records to leave out, as often as needed; a file has one number or range on a line.",
)
@click.option("--hosts", type=click.IntRange(min=1), metavar="H", default=1, help="Of all ranks.")
@click.option(
    "--cache-bytes",
    "cache_size",
    metavar="SIZE",
    help="Of blocks that a host keeps: cache_limit, or 10GiB.",
)
@click.option("--step", metavar="A:B", callback=_parse_steps, help="List the records of steps.")
@click.option("--rank", type=click.IntRange(min=0), metavar="R", help="Of one rank only.")
@click.option("--show", is_flag=True, help="With --step: print the records themselves.")
@click.option(
    "--state", metavar="FILE", help="Plan from where a run stands: what state_dict() gave, as JSON."
)
@click.option(
    "--length",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of tokens: records are windows, as Tokens(N) cuts them; samples if not given.",
)
@click.option(
    "--stride", type=click.IntRange(min=1), metavar="N", help="From window to window: N of Tokens."
)
@index_option
@storage_option
@json_option
@click.pass_context
def plan(  # noqa: PLR0913 (one argument an option)
    ctx: click.Context,
    /,
    *,
    path: str,
    workers: int,
    hosts: int,
    cache_size: str | None,
    step: slice | None,
    rank: int | None,
    show: bool,
    length: int | None,
    stride: int | None,
    folder: str | None,
    storage_options: StorageOptions,
    as_json: bool,
    **numbers: Any,  # noqa: ANN401 (those of `_Asked`)
) -> int:
    """Say what a run over PATH will do: steps, rows, padding, reads, and which records come when.

    It is the order of penstock.DataLoader with the same numbers. Nothing but the index is read,
    unless --show asks for records. PATH needs an index (penstock index), or is CSV, Parquet
    or tokens.
    """
    asked = _Asked(**numbers)
    if show and step is None:
        raise click.UsageError("--show prints the records of steps: give --step A:B.")
    if hosts > asked.world_size:
        raise click.UsageError(f"--hosts {hosts}: {asked.world_size} ranks run on as many at most.")
    if asked.state is not None:
        _refuse_beside_state(ctx)
    sharing = asked.sharing(rank or 0)
    layout = Layout(workers, hosts, _cache_bytes(cache_size, storage_options))
    state = None if asked.state is None else _read_state(asked.state)
    with open_numbered(path, storage_options, folder) as found:
        opened = windows_of(found, Cut(length, stride), state)
        try:
            cursor, why = _cursor(asked, opened.source, state)
        except ChangedSourceError as failure:
            hint = _OF_WINDOWS if is_tokens(opened.source) else _OF_A_VIEW
            echo(f"penstock: {storage_options.redact(str(failure))} {hint}", err=True)
            return FINDINGS
        if step is not None:
            ranks = range(asked.world_size) if rank is None else [rank]
            return list_steps(opened, cursor, sharing, step, ranks, show=show, as_json=as_json)
        whole = Plan(
            path,
            opened.source,
            steps_of(cursor, opened.source, sharing),
            why,
            layout,
            _sizes(opened.source, storage_options),
            has_state=state is not None,
            columns=_columns(opened.source),
        )
        if as_json:
            echo_json(document(whole))
        else:
            echo(text(whole))
    return FINE


def _sizes(source: Source, options: StorageOptions) -> dict[str, int]:
    """Return the bytes of each file."""
    entries = ((file, locate(file, options)) for file in source.files)
    return source.file_sizes() or {file: store.entry(name).size for file, (store, name) in entries}


def _columns(source: Source) -> list[str]:
    """Return the fields that have columns of all records."""
    if is_tokens(source):
        return []
    there = [one.meta for one in list_columns_of(source) if not one.stale]
    # Those in which null stands for what does not fit are used by nobody who did not ask for them.
    whole = (meta for meta in there if meta.length == len(source) and not meta.nulled)
    return list(dict.fromkeys(meta.path for meta in whole))


def _cache_bytes(given: str | None, options: StorageOptions) -> int:
    if given is None:
        limit = options.cache_limit
        return _CACHE_BYTES if limit is None else limit
    return 0 if given.strip() == "0" else parse_size(given)


def _refuse_beside_state(ctx: click.Context) -> None:
    for name in ("seed", "epoch", "shuffle"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is what the state says: leave it out with --state.")


def _cursor(asked: _Asked, source: Source, state: dict[str, Any] | None) -> tuple[Cursor, str]:
    """Return where the run stands, and why its order is of its kind."""
    skip = _skips(asked.skip, len(source))
    if state is not None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            cursor = resumed(state, source, skip, "raise")
        for warning in told:
            _log.warning("%s", warning.message)
        return cursor, "as the state says"
    kind, why = chosen_order(source, _SHUFFLES[asked.shuffle])
    cursor = Cursor(
        fingerprint=source.fingerprint,
        length=len(source),
        seed=asked.seed,
        epoch=asked.epoch,
        kind=kind,
        skip=skip,
    )
    return cursor, why


def _skips(given: Sequence[str], length: int) -> tuple[tuple[int, int], ...]:
    ranges: list[tuple[int, int]] = []
    for one in given:
        match = re.fullmatch(r"(\d+)(?::(\d+))?", one)
        if match is None:
            ranges += read_skips(one, length)
        else:
            start = int(match[1])
            ranges.append((start, int(match[2]) if match[2] else start + 1))
    return Skips(ranges, length).ranges


def _read_state(path: str) -> dict[str, Any]:
    try:
        state = json.loads(Path(path).read_bytes())
    except (ValueError, UnicodeDecodeError) as failure:
        raise OptionError(f"--state {path}: this is no JSON: {failure}.") from None
    if not isinstance(state, dict):
        raise OptionError(f"--state {path}: expected what state_dict() returned, a JSON object.")
    return state
