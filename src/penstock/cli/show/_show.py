"""`penstock show`: print records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from penstock.cli._by_number import ByNumber, by_number, chosen_numbers, records_of
from penstock.cli._paths import find, look_at
from penstock.cli._stream import Record, RecordStream, StreamCondition, sampled, sliced
from penstock.cli._terminal import Progress
from penstock.cli._units import counted, parse_range
from penstock.cli._verb import COUNT, FINE, Verb, VerbCall, option, verb
from penstock.cli.show._printing import Printed, PrintedTokens, samples_of
from penstock.datasets import Source, is_tokens, open_found
from penstock.errors import OptionError

if TYPE_CHECKING:
    from penstock.index import Detected

_FIRST = slice(0, 5)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which records are shown."""

    which: slice | None
    sample: int | None
    seed: int
    where: str | None

    @property
    def drawn(self) -> tuple[int, int] | None:
        """The size and the seed of a sample."""
        return (self.sample, self.seed) if self.sample else None

    @property
    def head(self) -> int | None:
        """How many of the first records are enough, if that is known beforehand."""
        if self.sample or self.where is not None:
            return None
        start, stop = (self.which or _FIRST).start or 0, (self.which or _FIRST).stop
        return stop if stop is not None and 0 <= start < stop else None


class _Show(Verb):
    """A verb that takes `-1` as a record number, although it looks like an option."""

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


def _which(text: str) -> slice:
    return parse_range(text, "a record number (0, -1) or a range (10:20, -5:, :3)", r"-?\d+")


@verb(
    "penstock show logs",
    "penstock show logs 1000",
    "penstock show logs -3: --fields id,user.name",
    "penstock show table.csv --where \"age > 30 and city starts with 'B'\"",
    "penstock show s3://bucket/logs --sample 10 --seed 1 --json",
    "penstock show tokens 0 --decode tokenizer.json",
    index=True,
    cls=_Show,
)
@click.argument("which", metavar="[N | A:B]", required=False, type=_which)
@option("--sample K", "Show K random records; without an index that reads everything.", type=COUNT)
@option("--seed", "Seed of the sample; another one shows other records.", default=0)
@option(
    "--where CONDITION",
    "Show only records that match: \"age > 30 and not name starts with 'test'\".",
)
@option("--fields A,B.C", "Show only these fields; items[].price goes into lists.")
@option("--decode TOKENIZER", "For tokens: show their text, by tokenizer.json or a .model.")
def show(
    call: VerbCall,
    *,
    fields: str | None,
    decode: str | None,
    **given: Any,  # noqa: ANN401 (those of `_Wanted`)
) -> int:
    """Show records of PATH: the first 5, number N (from 0; -1 is the last), or the range A:B.

    PATH holds JSON, a table (CSV, Parquet …), or tokens (a folder of penstock tokenize, .bin and
    .idx of Megatron-LM, an MDS folder); --decode shows the text of tokens. With an index (penstock
    index) any record is fetched at once, by its number in the index. Without one JSON Lines are
    streamed; malformed lines are skipped with a warning and have no number.
    """
    wanted, path = _Wanted(**given), call.path
    where = wanted.where
    if wanted.which is not None and wanted.sample is not None:
        raise click.UsageError("give either [N | A:B] or --sample, not both.")
    found = look_at(path, call.options, call.folder)
    row = found.format
    if row.is_tokens or (row.folder is not None and decode is not None):
        source = open_found(found)
        if decode is not None or is_tokens(source):
            if where is not None:
                raise OptionError("--where: tokens have no fields that a condition could be about.")
            return _show_tokens(call, wanted, source, decode, fields)
    if decode is not None:
        raise OptionError(
            f"--decode: {path} holds records, not tokens; they are shown without it. penstock "
            "tokenize makes tokens of their text."
        )
    names = [name.strip() for name in fields.split(",")] if fields else None
    printed = Printed(names, as_json=call.as_json)
    missing = "no such record" if where is None else "no record matches"
    with by_number(path, found, head=wanted.head) as opened:
        if opened is not None:
            numbers = chosen_numbers(opened.source, wanted.which, wanted.drawn, where)
            printed.add_all(records_of(opened, numbers))
            held = f"{path} holds {counted(len(opened.source), 'record')}"
            if len(numbers):
                missing = f"cannot read {counted(len(numbers), 'record')} asked for"
        else:
            held = _show_stream(path, wanted, found, printed)
    printed.finish()
    if printed.count or (wanted.which is None and where is None):
        return FINE
    return call.finding(f"{missing}: {held}.")


def _show_tokens(
    call: VerbCall, wanted: _Wanted, source: Source, decode: str | None, field: str | None
) -> int:
    """Print samples of tokens, which may lie in a field of records."""
    numbers = chosen_numbers(source, wanted.which, wanted.drawn, None)
    meta = source.index_meta
    eos = None if meta is None or meta.tokens is None else meta.tokens.eos
    printed = PrintedTokens(eos, decode, as_json=call.as_json)
    printed.add_all(samples_of(ByNumber(call.path, source), numbers, field))
    printed.finish()
    if printed.count or wanted.which is None:
        return FINE
    return call.finding(f"no such sample: {call.path} holds {counted(len(source), 'sample')}.")


def _show_stream(path: str, wanted: _Wanted, at_path: Detected, printed: Printed) -> str:
    """Print the records, reading no more than necessary; return how many PATH holds."""
    matching = None if wanted.where is None else StreamCondition(wanted.where)
    found = find(path, at_path.options, at_path)
    with Progress(found.bytes) as progress:
        every = RecordStream(found.files, progress)
        with closing(iter(every)) as stream:
            printed.add_all(_streamed(wanted, stream, matching))
    if not every.ended:
        return "the range is empty"
    if matching is not None and wanted.which is None and every.total:
        matching.refuse_unseen()
    return f"{path} holds {counted(every.total, 'record')}"


def _streamed(
    wanted: _Wanted, stream: Iterator[Record], matching: StreamCondition | None
) -> Iterator[Record]:
    """Yield the wanted records; a range counts all records, not only matches."""
    if wanted.which is not None:
        stream = sliced(stream, wanted.which)
    if matching is not None:
        stream = matching.filter(stream)
    if wanted.drawn is not None:
        return sampled(stream, *wanted.drawn)
    return stream if wanted.which is not None else sliced(stream, _FIRST)
