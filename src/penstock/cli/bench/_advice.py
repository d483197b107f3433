"""What the measured numbers suggest, each with its reason."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli._units import bytes_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.cli.bench._columns import Gathered
    from penstock.cli.bench._runs import Run

_SAME = 1.1
"""Rates this close to each other are the same, as far as one look can tell."""
_WORTH = 1.2
"""A gain from here on is worth a word."""
_MUCH = 0.5
"""A stage that takes this part of the work is where to begin."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do, and why."""

    do: str
    why: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the data beside the runs."""

    path: str
    is_remote: bool
    compressions: frozenset[str]
    names_fields: bool
    """Whether the user named the fields."""

    @property
    def is_gzip(self) -> bool:
        """Whether some of it can only be read from its beginning."""
        return "gzip" in self.compressions


def advice(runs: Sequence[Run], facts: Facts, made: Gathered | None = None) -> list[Advice]:
    """Return what follows from the runs, the most useful first; `made` is what one gathers from."""
    plain = [run for run in runs if not run.setting.change]
    changes = list(_changes(runs, plain))
    return [
        *_workers(plain),
        *_columns(runs, plain, facts, made),
        *_gzip(facts),
        *changes,
        *_stages(plain, facts, is_fields_told=any("fields" in one.do for one in changes)),
        *_storage(plain, facts),
        *_enough(plain),
    ]


def best_of(runs: Sequence[Run]) -> Run:
    """Return the fastest run; of those that are as good as equal the one with the least workers."""
    most = max(run.rate for run in runs)
    return min((run for run in runs if run.rate * _SAME >= most), key=_effort)


def _effort(run: Run) -> float:
    # "auto" is what nobody has to write.
    return -1 if run.setting.workers == "auto" else run.setting.workers


def _workers(plain: Sequence[Run]) -> Iterator[Advice]:
    if len(plain) < 2:  # noqa: PLR2004 (nothing to compare)
        return
    best = best_of(plain)
    others = ", ".join(
        f"{run.rate:,.0f} with {run.setting.workers}" for run in plain if run is not best
    )
    why = f"{best.rate:,.0f} records/s, against {others}"
    if best.setting.workers == "auto":
        yield Advice("leave num_workers as it is, 'auto'", why)
    else:
        yield Advice(f"num_workers={best.setting.workers}", why)


def _columns(
    runs: Sequence[Run], plain: Sequence[Run], facts: Facts, made: Gathered | None
) -> Iterator[Advice]:
    """Compare gathering from columns with the best run that decodes."""
    run = next((run for run in runs if run.setting.change == "columns"), None)
    if run is None or made is None or run.rate < _WORTH * best_of(plain).rate:
        return
    gain = f"{run.rate / best_of(plain).rate:.1f} × as fast: {run.rate:,.0f} records/s"
    if made.seconds is None:
        do = "leave materialize as it is, 'auto': it gathers from the columns that are there"
        yield Advice(do, gain)
        return
    fields = ",".join(f"{name}:{type_}" for name, type_ in run.setting.types.items())
    command = f"penstock materialize {shlex.quote(facts.path)} {shlex.quote(fields)}"
    yield Advice(
        f"decode once, for more than one epoch: materialize='auto' does so, or {command}",
        f"{gain}, after {made.seconds:.1f} s once",
    )


def _gzip(facts: Facts) -> Iterator[Advice]:
    if facts.is_gzip:
        yield Advice(
            f"penstock convert {shlex.quote(facts.path)} DST, which writes small zstd frames; or "
            "name fields and leave materialize='auto', which shuffles gzip through columns",
            "gzip can only be read from its beginning, so nothing was shuffled here",
        )


def _changes(runs: Sequence[Run], plain: Sequence[Run]) -> Iterator[Advice]:
    """Compare what was tried with the run of the same number of workers."""
    for run in runs:
        change = run.setting.change
        same = [one for one in plain if one.setting.workers == run.setting.workers]
        if change in ("", "columns") or not same:
            continue
        gain = run.rate / same[0].rate
        why = f"{gain:.1f} × as fast with {run.setting.workers} workers: {run.rate:,.0f} records/s"
        if gain < _WORTH:
            continue
        if change == "block order":
            yield Advice("shuffle='block', which is what shuffle=True means here", why)
        else:
            yield Advice(
                "ask only for the fields that the model takes; numbers at the top of a record "
                f"({_few(list(run.setting.types))}) are the cheapest",
                why,
            )


def _stages(plain: Sequence[Run], facts: Facts, *, is_fields_told: bool) -> Iterator[Advice]:
    run = best_of(plain)
    share = f"{run.share('read'):.0%} of the work is"
    if run.share("decode") > _MUCH and not facts.names_fields and not is_fields_told:
        yield Advice(
            "name the fields that you need (--fields here, encode={…} in DataLoader)",
            f"{run.share('decode'):.0%} of the work is decoding, and all {len(run.setting.types)} "
            "fields were asked for",
        )
    if run.share("read") > _MUCH and not facts.is_remote:
        if facts.compressions:
            yield Advice(
                "keep what is read again and again uncompressed, if there is room",
                f"{share} reading and decompressing local files",
            )
        else:
            yield Advice(
                "look at the disk, or run it again with the files in the page cache",
                f"{share} reading local files",
            )


def _storage(plain: Sequence[Run], facts: Facts) -> Iterator[Advice]:
    run = best_of(plain)
    requests, size = run.stats["storage_requests"], run.stats["storage_bytes"]
    if not facts.is_remote or not requests:
        return
    if run.stats["storage_throttled"]:
        yield Advice(
            "fewer workers or ranks at a time, or more prefixes in the bucket",
            f"storage said {run.stats['storage_throttled']:,.0f} times to slow down",
        )
    if run.share("read") > _MUCH:
        each = size / requests
        yield Advice(
            "more workers, or the data nearer to the machine; blocks that were read are kept on "
            "its disk (cache_dir and cache_limit in -o), so that later epochs do not wait",
            f"{run.share('read'):.0%} of the work is waiting for storage: {requests:,.0f} requests "
            f"of {bytes_text(int(each))} each",
        )


def _enough(plain: Sequence[Run]) -> Iterator[Advice]:
    best = best_of(plain)
    seconds = best.setting.batch_size / best.rate
    yield Advice(
        "measure a training step without data",
        f"a batch of {best.setting.batch_size:,} takes {seconds * 1000:.1f} ms here: a step that "
        "takes longer never waits for it",
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")  # noqa: PLR2004 (one line)
