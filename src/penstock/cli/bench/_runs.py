"""Measured runs of a loader, over files or over columns, and the advice that follows from them."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import pyarrow as pa

from penstock.batch import FieldEncoder
from penstock.cli._units import bytes_text, counted
from penstock.datasets import Source, columns_of, estimate_columns
from penstock.errors import BadRecordsError, StorageError
from penstock.loading import DataLoader, chosen_order
from penstock.storage import free_bytes

if TYPE_CHECKING:
    Shuffle = bool | Literal["full", "block"]
    Workers = int | Literal["auto"]

STAGES = ("read", "decode", "encode")
_STORAGE = ("requests", "bytes", "retries", "throttled")
_FEW_SECONDS = 5.0
_SMALL_SHARE = 0.1
"""Of the free space in the directory for temporary files."""
_SAME = 1.1
"""Rates within this factor count as equal."""
_WORTH = 1.2
"""Gains from this factor on are worth a word."""
_MUCH = 0.5
"""A stage with this share of the work is named."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a loader is run."""

    workers: Workers
    types: Mapping[str, str]
    batch_size: int
    shuffle: Shuffle
    output: Literal["arrow"] | None = None
    seed: int = 0
    """Different for each run, so that no run profits from blocks that an earlier one cached."""
    change: Literal["", "block order", "few fields", "columns"] = ""
    """The change that a run tries, beside numbers of workers."""


@dataclass(frozen=True, slots=True)
class LoaderRun:
    """The measurements of one run."""

    setting: Setting
    records: int
    """Delivered after the first batch."""
    seconds: float
    """From the first batch to the last."""
    first: float
    """Seconds until the first batch."""
    order: str
    """Kind of order, and why."""
    made_by: str
    """Engine that made the batches, and why."""
    stats: Mapping[str, float] = field(repr=False)
    columns: str = ""
    """Whether fields were decoded or gathered, and why."""

    @property
    def rate(self) -> float:
        """Records a second."""
        if not self.records:  # The first batch took all the time there was.
            return self.stats["records"] / self.first
        return self.records / self.seconds

    def micros(self, stage: str) -> float:
        """Microseconds per record of a stage, added up over all threads or processes."""
        return self.stats[f"{stage}_seconds"] * 1e6 / max(1.0, self.stats["records"])

    def share(self, stage: str) -> float:
        """Share of a stage in the work."""
        return self.micros(stage) / max(1e-9, sum(map(self.micros, STAGES)))

    def storage(self) -> dict[str, int]:
        """Requests, bytes, retries and throttled requests."""
        return {name: int(self.stats[f"storage_{name}"]) for name in _STORAGE}


def measure(source: Source, setting: Setting, seconds: float) -> LoaderRun:
    """Run a loader for some seconds after its first batch; the source has records."""
    began = time.perf_counter()
    loader = DataLoader(
        source,
        dict(setting.types) or None,
        batch_size=setting.batch_size,
        shuffle=setting.shuffle,
        num_workers=setting.workers,
        output=setting.output,
        seed=setting.seed,
        epochs=None,
        # Each run decodes, unless its source has columns.
        materialize=False,
    )
    batches: Any = iter(loader)
    try:
        next(batches)
        first = last = time.perf_counter()
        records = 0
        while last - first < seconds:
            records += len(next(batches))
            last = time.perf_counter()
    finally:
        batches.close()  # Ends its workers.
    decided = cast("Mapping[str, str]", loader.explain())
    through_columns = setting.change == "columns"
    order = ": ".join(chosen_order(source, setting.shuffle, through_columns=through_columns))
    return LoaderRun(
        setting,
        records,
        last - first,
        first - began,
        order,
        decided["workers"],
        loader.stats(),
        decided["columns"],
    )


class ColumnsTrial(NamedTuple):
    """The same records with columns of all fields."""

    source: Source
    seconds: float | None
    """Seconds that it took to make them; None where they were there."""


@contextmanager
def columns_for(
    source: Source, types: Mapping[str, str], *, is_remote: bool
) -> Iterator[ColumnsTrial | None]:
    """Give the records with columns, made for this run; None where that takes long."""
    if not types:
        yield None
        return
    schema = pa.schema(list(FieldEncoder(types).fields.items()))
    present = columns_of(source, schema)
    if present is not None:
        yield ColumnsTrial(present, None)
        return
    cost = estimate_columns(source, schema)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        room = _SMALL_SHARE * free_bytes(folder)
        if is_remote or cost.seconds > _FEW_SECONDS or 2 * cost.bytes > room:
            yield None
            return
        began = time.monotonic()
        try:
            made = source.materialize(schema, folder, progress=False, on_error="mask")
        except (BadRecordsError, StorageError):
            yield None  # The runs that decode report bad records.
            return
        yield ColumnsTrial(made, time.monotonic() - began)


class Advice(NamedTuple):
    """One piece of advice, and its reason."""

    do: str
    why: str


@dataclass(frozen=True, slots=True)
class BenchFacts:
    """Facts of the data that the advice depends on."""

    path: str
    is_remote: bool
    compressions: frozenset[str]
    names_fields: bool
    """Whether the user named the fields."""
    sequential: str = ""
    """Compression of files that can only be read from their beginning."""


def advice(
    runs: Sequence[LoaderRun], facts: BenchFacts, made: ColumnsTrial | None = None
) -> list[Advice]:
    """Return the advice that follows from the runs, the most useful first."""
    plain = [run for run in runs if not run.setting.change]
    best = best_of(plain)
    size = best.setting.batch_size
    return [
        *_workers(plain, best),
        *_columns(runs, best, facts, made),
        *_sequential(facts),
        *_changes(runs, plain),
        *_stages(runs, best, facts),
        *_storage(best, facts),
        Advice(
            "measure a training step without data",
            f"a batch of {size:,} takes {size / best.rate * 1000:.1f} ms here: a step that takes "
            "longer never waits for it",
        ),
    ]


def best_of(runs: Sequence[LoaderRun]) -> LoaderRun:
    """Return the fastest run; among equals the default, or the one with the fewest workers."""
    most = max(run.rate for run in runs)
    fast = {run.setting.workers: run for run in runs if run.rate * _SAME >= most}
    return fast["auto"] if "auto" in fast else fast[min(fast)]


def _workers(plain: Sequence[LoaderRun], best: LoaderRun) -> Iterator[Advice]:
    others = [f"{run.rate:,.0f} with {run.setting.workers}" for run in plain if run is not best]
    number = best.setting.workers
    do = "leave num_workers as it is, 'auto'" if number == "auto" else f"num_workers={number}"
    if others:
        yield Advice(do, f"{best.rate:,.0f} records/s, against {', '.join(others)}")


def _columns(
    runs: Sequence[LoaderRun], best: LoaderRun, facts: BenchFacts, made: ColumnsTrial | None
) -> Iterator[Advice]:
    """Compare gathering from columns with the best run that decodes."""
    run = next((run for run in runs if run.setting.change == "columns"), None)
    if run is None or made is None or run.rate < _WORTH * best.rate:
        return
    why = f"{run.rate / best.rate:.1f} × as fast: {run.rate:,.0f} records/s"
    do = "leave materialize as it is, 'auto': it gathers from the columns that are there"
    if made.seconds is not None:
        fields = ",".join(f"{name}:{type_}" for name, type_ in run.setting.types.items())
        command = f"penstock materialize {shlex.quote(facts.path)} {shlex.quote(fields)}"
        do = f"decode once, for more than one epoch: materialize='auto' does so, or {command}"
        why += f", after {made.seconds:.1f} s once"
    yield Advice(do, why)


def _sequential(facts: BenchFacts) -> Iterator[Advice]:
    if kind := facts.sequential:
        yield Advice(
            f"penstock convert {shlex.quote(facts.path)} DST, which writes small zstd frames; or "
            f"name fields and leave materialize='auto', which shuffles {kind} through columns",
            f"{kind} can only be read from its beginning, so nothing was shuffled here",
        )


def _changes(runs: Sequence[LoaderRun], plain: Sequence[LoaderRun]) -> Iterator[Advice]:
    """Compare each change with the run of the same number of workers."""
    rates = {run.setting.workers: run.rate for run in plain}
    for run in runs:
        workers, names = run.setting.workers, [*run.setting.types]
        few = ", ".join(names[:3]) + ", …" * (len(names) > 3)  # noqa: PLR2004 (one line)
        do = {
            "block order": "shuffle='block', which is what shuffle=True means here",
            "few fields": "ask only for the fields that the model takes; numbers at the top of a "
            f"record ({few}) are the cheapest",
        }.get(run.setting.change)
        gain = run.rate / rates.get(workers, run.rate)
        if do is not None and gain >= _WORTH:
            how = f"{gain:.1f} × as fast with num_workers={workers}"
            yield Advice(do, f"{how}: {run.rate:,.0f} records/s")


def _stages(runs: Sequence[LoaderRun], best: LoaderRun, facts: BenchFacts) -> Iterator[Advice]:
    tried = any(run.setting.change == "few fields" for run in runs)
    if best.share("decode") > _MUCH and not facts.names_fields and not tried:
        yield Advice(
            "name the fields that you need (--fields here, encode={…} in DataLoader)",
            f"{best.share('decode'):.0%} of the work is decoding, and every field was asked for",
        )
    if best.share("read") > _MUCH and not facts.is_remote:
        do, how = "look at the disk, or run it again with the files in the page cache", "reading"
        if facts.compressions:
            do = "keep files that are read again and again uncompressed, if there is room"
            how = "reading and decompressing"
        yield Advice(do, f"{best.share('read'):.0%} of the work is {how} local files")


def _storage(run: LoaderRun, facts: BenchFacts) -> Iterator[Advice]:
    requests, size = run.stats["storage_requests"], run.stats["storage_bytes"]
    if not facts.is_remote or not requests:
        return
    if throttled := run.stats["storage_throttled"]:
        yield Advice(
            "fewer workers or ranks at a time, or more prefixes in the bucket",
            f"storage said {counted(int(throttled), 'time')} to slow down",
        )
    if run.share("read") > _MUCH:
        yield Advice(
            "more workers, or the data nearer to the machine; blocks that were read are kept on "
            "its disk (cache_dir and cache_limit in -o), so that later epochs do not wait",
            f"{run.share('read'):.0%} of the work is waiting for storage: "
            f"{counted(int(requests), 'request')} of {bytes_text(int(size / requests))} each",
        )
