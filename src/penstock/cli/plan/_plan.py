"""`penstock plan`: steps, reads and records of a run, before it runs."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from penstock.cli._by_number import ByNumber, open_indexed
from penstock.cli._paths import look_at
from penstock.cli._units import parse_range, parse_size
from penstock.cli._verb import (
    COUNT,
    FROM_0,
    SHUFFLES,
    VerbCall,
    flag,
    option,
    shuffle_option,
    verb,
)
from penstock.cli.plan._epoch import Epoch, RunLayout, RunPlan, list_steps
from penstock.datasets import Source, is_tokens, list_columns_of
from penstock.errors import ChangedSourceError, OptionError
from penstock.loading import (
    FeedOptions,
    Sharing,
    begin_of,
    bound_plan,
    check_plan,
    mixed_source,
    order_choice,
    plan_before,
    read_skips,
    resumed,
)
from penstock.order import (
    STOPS,
    BucketPlan,
    CostPlan,
    Mixture,
    PackingPlan,
    Plan,
    Skips,
    Stop,
)
from penstock.storage import StorageOptions, locate

if TYPE_CHECKING:
    from penstock.cli._terminal import Report

_log = logging.getLogger("penstock.cli")
_CACHE_BYTES = 10 << 30
"""Cache of remote blocks on a host, by default, if its disk has room."""
_OF_A_VIEW = (
    "(The state of a view, such as a split, is explained by its loader: loader.explain(step).)"
)
_OF_WINDOWS = "(The state of a run with Tokens is one of windows: give its --length and --stride.)"


@dataclass(frozen=True, slots=True)
class _RunNumbers:
    """The numbers of a run, as given on the command line."""

    batch_size: int | None
    global_batch_size: int | None
    cost: tuple[str, int] | None
    bucket: tuple[str, int | None] | None
    pack: tuple[str, int] | None
    weights: str | None
    balance: str | None
    world_size: int
    drop_last: bool
    shuffle: str
    seed: int
    epoch: int
    skip: tuple[str, ...]
    state: str | None

    def sharing(self, rank: int) -> Sharing:
        """Return how batches are shared; refuse numbers that are missing or do not fit."""
        if not 0 <= rank < self.world_size:
            raise OptionError(f"--rank {rank} is not one of {self.world_size}; ranks count from 0.")
        if (plan := self._plan()) is not None:
            return Sharing(1, rank, self.world_size, self.drop_last, plan)
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

    def _plan(self) -> Plan | None:
        """Return the plan that is asked for in place of a batch size."""
        asked = [name for name in ("cost", "bucket", "pack") if getattr(self, name) is not None]
        if not asked:
            return None
        size, needs_size = self.batch_size, asked != ["cost"]
        if len(asked) > 1 or self.global_batch_size is not None or needs_size != bool(size):
            raise OptionError(
                "give one of --cost FIELD:N, --bucket FIELD --batch-size B and --pack FIELD:N "
                "--batch-size B."
            )
        if self.cost is not None:
            return CostPlan(*self.cost)
        if self.pack is not None:
            return PackingPlan(*self.pack, size or 1)
        field, buckets = self.bucket or ("", None)
        return BucketPlan(field, size or 1, buckets or 8)


def _field_and_number(text: str) -> tuple[str, int]:
    found = _with_number(text)
    if found[1] is None:
        raise OptionError(f"{text!r}: expected FIELD:N, as in 'len(text):4096'.")
    return found[0], found[1]


def _with_number(text: str) -> tuple[str, int | None]:
    field, colon, number = text.rpartition(":")
    return (field, int(number)) if colon and number.isdecimal() else (text, None)


def _part(text: str) -> tuple[str, float, str]:
    """Return name, weight and path of a source of a mixture; no path is that of the verb."""
    found = re.fullmatch(r"([^=]+)=(\d*\.?\d+(?:[eE][+-]?\d+)?)(?::(.+))?", text)
    if found is None:
        raise OptionError(f"--mix {text!r}: expected NAME=WEIGHT or NAME=WEIGHT:PATH.")
    return found[1], float(found[2]), found[3] or ""


def _steps(text: str) -> slice:
    return parse_range(text, "a step (12) or a range of steps (12:15, 12:, :3)")


@verb(
    "penstock plan logs --batch-size 512 --world-size 8 --workers 4",
    "penstock plan logs --global-batch-size 4096 --world-size 8 --step 1200 --rank 3",
    "penstock plan logs --batch-size 512 --shuffle full --step 0:2 --show",
    "penstock plan s3://bucket/logs --batch-size 512 --world-size 64 --hosts 8 --json",
    "penstock plan logs --cost 'len(text):65536' --world-size 8",
    "penstock plan logs --batch-size 512 --balance label",
    "penstock plan web --mix web=0.7 --mix code=0.3:code.parquet --batch-size 512",
    "penstock plan logs --batch-size 512 --state state.json --step 1200:1202",
    "penstock plan tokens --length 2048 --batch-size 8 --state state.json",
    index=True,
)
@option("--batch-size B", "Rows of each rank in a step, as in your run.", type=COUNT)
@option("--global-batch-size G", "Rows of all ranks in a step, instead.", type=COUNT)
@option(
    "--cost FIELD:N",
    "Batches whose FIELD sums to at most N: CostPlan. Also len(FIELD), and len() for bytes.",
    type=_field_and_number,
)
@option(
    "--bucket FIELD[:K]",
    "Batches of records of similar FIELD, in K buckets: BucketPlan.",
    type=_with_number,
)
@option(
    "--pack FIELD:N",
    "Batches of bins whose FIELD sums to at most N: PackingPlan.",
    type=_field_and_number,
)
@option("--weights FIELD", "Draw records with replacement, by the weights in FIELD.")
@option("--balance FIELD", "Draw records so that each value of FIELD comes equally often.")
@option(
    "--mix NAME=WEIGHT[:PATH]",
    "A source of a mixture, and where it lies unless it is PATH. Repeatable.",
    multiple=True,
    type=_part,
)
@option(
    "--stop WHEN",
    "With --mix: when an epoch ends.",
    type=click.Choice(STOPS),
    default=STOPS[0],
)
@option("--world-size W", "Number of ranks.", type=COUNT, default=1)
@option("--workers N", "Workers of each rank, for the reads.", type=FROM_0, default=0)
@shuffle_option
@option("--seed", "Seed of the order.", default=0)
@option("--epoch", "Epoch to plan.", type=FROM_0, default=0)
@flag("--drop-last", "Leave out the last batch if it is not full.")
@option(
    "--skip N | A:B | FILE",
    "Records to leave out; a file has one number or range on a line. Repeatable.",
    multiple=True,
)
@option("--hosts H", "Hosts that the ranks are spread over.", type=COUNT, default=1)
@option(
    "--cache-bytes SIZE",
    "Disk cache of a host; by default the storage option cache_limit, or 10GiB.",
    dest="cache_size",
    type=lambda text: 0 if text.strip() == "0" else parse_size(text),
)
@option("--step A:B", "List the records of steps.", type=_steps)
@option("--rank R", "List the records of one rank only.", type=FROM_0)
@flag("--show", "With --step: print the records themselves.")
@option("--state FILE", "Plan from where a run stands: its loader's state_dict() as JSON.")
@option("--length N", "For tokens: plan windows of N tokens, as Tokens(N) cuts them.", type=COUNT)
@option("--stride N", "For tokens: tokens from window to window, if not the length.", type=COUNT)
def plan(  # noqa: PLR0913 (one argument an option)
    call: VerbCall,
    *,
    workers: int,
    hosts: int,
    cache_size: int | None,
    step: slice | None,
    rank: int | None,
    show: bool,
    length: int | None,
    stride: int | None,
    mix: Sequence[tuple[str, float, str]],
    stop: Stop,
    **numbers: Any,  # noqa: ANN401 (those of `_RunNumbers`)
) -> int | Report:
    """Show what a run over PATH will do: steps, rows, padding, reads, and which records come when.

    It is the order of penstock.DataLoader with the same numbers. Nothing but the index is read,
    unless --show asks for records, or a plan, --weights or --balance for a field. An index that
    PATH needs and has not is built first. A stream has no PATH, and its records are known when
    they are read: ask its loader, by loader.explain().
    """
    asked, ctx = _RunNumbers(**numbers), click.get_current_context()
    if show and step is None:
        raise click.UsageError("--show prints the records of steps: give --step A:B.")
    if hosts > asked.world_size:
        raise click.UsageError(f"--hosts {hosts}: more than --world-size {asked.world_size}.")
    for name in ("seed", "epoch", "shuffle") if asked.state is not None else ():
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is what the state says: leave it out with --state.")
    sharing = asked.sharing(rank or 0)
    if cache_size is None:
        limit = call.options.cache_limit
        cache_size = _CACHE_BYTES if limit is None else limit
    layout = RunLayout(workers, hosts, cache_size)
    state = None if asked.state is None else _read_state(asked.state)

    def open_one(place: str) -> Source:
        return open_indexed(place, look_at(place, call.options, call.folder))

    mixture = None
    if mix:
        sources = {name: open_one(place or call.path) for name, _, place in mix}
        mixture = Mixture(sources, {name: weight for name, weight, _ in mix}, stop)
    source = open_one(call.path) if mixture is None else mixed_source(mixture)
    opened = _windows(ByNumber(call.path, source), length, stride, state)
    sharing = replace(sharing, plan=bound_plan(sharing.plan, opened.source))
    try:
        epoch, why, plan = _epoch(asked, opened.source, state, sharing.plan, mixture)
    except ChangedSourceError as failure:
        hint = _OF_WINDOWS if is_tokens(opened.source) else _OF_A_VIEW
        return call.finding(f"{failure} {hint}")
    sharing = replace(sharing, plan=plan)
    if step is not None:
        ranks = range(asked.world_size) if rank is None else [rank]
        opened = replace(opened, source=epoch.source)
        return list_steps(call, opened, epoch, sharing, step, ranks, show=show)
    steps = epoch.steps(sharing)
    sizes, columns = _sizes(epoch.source, call.options), _columns(epoch.source)
    has_state = state is not None
    return RunPlan(call.path, epoch.source, steps, why, layout, sizes, columns, has_state).report()


def _windows(
    opened: ByNumber, length: int | None, stride: int | None, state: dict[str, Any] | None
) -> ByNumber:
    """Return the windows that a run with `Tokens` goes over; without a length the records.

    A state decides whether a window includes the next token, for `shift=True`.
    """
    if length is None:
        if stride is not None:
            raise OptionError("--stride: from window to window of --length N tokens. Give it, too.")
        return opened
    if not is_tokens(opened.source):
        raise OptionError(f"--length: {opened.path} holds records, not tokens. Leave it out.")
    from penstock.batch import Tokens  # noqa: PLC0415 (only for tokens)

    known = state or {}
    was = (str(known.get("fingerprint")), known.get("length", 0))
    both = (Tokens(length, stride, shift, boundaries=False) for shift in (True, False))
    shifted, plain = (windows.over(opened.source) for windows in both)
    is_plain = plain.was(*was) and not shifted.was(*was)
    return replace(opened, source=plain if is_plain else shifted)


def _sizes(source: Source, options: StorageOptions) -> dict[str, int]:
    """Return the bytes of each file."""
    entries = ((file, locate(file, options)) for file in source.files)
    return source.file_sizes() or {file: store.entry(name).size for file, (store, name) in entries}


def _columns(source: Source) -> list[str]:
    """Return the fields that have columns of all records."""
    if is_tokens(source):
        return []
    there = [one.meta for one in list_columns_of(source) if not one.stale]
    # A loader ignores columns in which null replaces misfits, unless they are asked for.
    whole = (meta for meta in there if meta.length == len(source) and not meta.nulled)
    return list(dict.fromkeys(meta.path for meta in whole))


def _epoch(
    asked: _RunNumbers,
    source: Source,
    state: dict[str, Any] | None,
    plan: Plan | None,
    mixture: Mixture | None,
) -> tuple[Epoch, str, Plan | None]:
    """Return where the run stands, why its order is of its kind, and the plan over its records."""
    skip = _skips(asked.skip, len(source))
    shuffle = SHUFFLES[asked.shuffle] if state is None else False  # A state says it.
    options = FeedOptions(
        shuffle, asked.seed, plan, weights=asked.weights, balance=asked.balance, mixture=mixture
    )
    choice = order_choice(source, options, skip, through_columns=True)
    if state is not None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cursor = resumed(state, source, skip, "raise", choice)
        for warning in caught:
            _log.warning("%s", warning.message)
        before = choice.as_it_was(cursor, source)
        plan = plan_before(plan, source, before)
        return Epoch(check_plan(cursor, plan), before, choice), "as the state says", plan
    cursor = begin_of(source, options, choice, skip).at(asked.epoch)
    return Epoch(cursor, source, choice), choice.why, plan


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
        state = json.loads(Path(path).expanduser().read_bytes())
    except (ValueError, UnicodeDecodeError) as failure:
        raise OptionError(f"--state {path}: this is no JSON: {failure}.") from None
    if not isinstance(state, dict):
        raise OptionError(f"--state {path}: expected what state_dict() returned, a JSON object.")
    if "done" in state:
        raise OptionError(
            f"--state {path}: this is the state of a stream, whose records are known when they are "
            "read. Load it, and ask loader.explain()."
        )
    return state
