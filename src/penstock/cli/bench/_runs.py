"""Measured runs of a loader, over files or over columns."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import pyarrow as pa

from penstock.batch import FieldEncoder
from penstock.datasets import columns_of, estimate_columns
from penstock.errors import BadRecordsError, StorageError
from penstock.loading import DataLoader, chosen_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.datasets import Source

    Shuffle = bool | Literal["full", "block"]
    Workers = int | Literal["auto"]

STAGES = ("read", "decode", "encode")
_STORAGE = ("requests", "bytes", "retries", "throttled")
_FEW_SECONDS = 5.0
_SMALL_SHARE = 0.1
"""Of the free space in the directory for temporary files."""


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
        room = _SMALL_SHARE * shutil.disk_usage(folder).free
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
