"""A loader run for some seconds, and what it showed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from penstock.loading import DataLoader, chosen_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.datasets import Source

    Shuffle = bool | Literal["full", "block"]
    Workers = int | Literal["auto"]

STAGES = ("read", "decode", "encode")


@dataclass(frozen=True, slots=True)
class Setting:
    """How a loader is run."""

    workers: Workers
    types: Mapping[str, str]
    batch_size: int
    shuffle: Shuffle
    output: Literal["arrow"] | None = None
    seed: int = 0
    """Another one for each run, so that none lives on blocks that the one before has brought."""
    change: Literal["", "block order", "few fields", "columns"] = ""
    """What is tried beside the numbers of workers."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run showed."""

    setting: Setting
    records: int
    """Handed out after the first batch."""
    seconds: float
    """From the first batch to the last."""
    first: float
    """Seconds until the first batch."""
    order: str
    """Which one, and why."""
    made_by: str
    """Who made the batches, and why."""
    stats: Mapping[str, float] = field(repr=False)
    columns: str = ""
    """Whether fields were decoded or gathered, and why."""

    @property
    def rate(self) -> float:
        """Records a second."""
        if not self.records:
            # The first batch took all the time there was.
            return self.stats["records"] / self.first
        return self.records / self.seconds

    def micros(self, stage: str) -> float:
        """Microseconds a record of a stage, added up over all threads or processes."""
        return self.stats[f"{stage}_seconds"] * 1e6 / max(1.0, self.stats["records"])

    def share(self, stage: str) -> float:
        """The part of the work that a stage is."""
        return self.micros(stage) / max(1e-9, sum(map(self.micros, STAGES)))


def measure(source: Source, setting: Setting, seconds: float) -> Run | None:
    """Let a loader run so long after its first batch; None where there is no batch at all."""
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
        # Each run decodes, unless it is the one over columns, whose source has them.
        materialize=False,
    )
    batches: Any = iter(loader)
    try:
        if next(batches, None) is None:
            return None
        first = last = time.perf_counter()
        records = 0
        while last - first < seconds:
            records += len(next(batches))
            last = time.perf_counter()
    finally:
        # What was started for it ends here.
        batches.close()
    decided = cast("Mapping[str, str]", loader.explain())
    through_columns = setting.change == "columns"
    return Run(
        setting,
        records,
        last - first,
        first - began,
        ": ".join(chosen_order(source, setting.shuffle, through_columns=through_columns)),
        decided["workers"],
        loader.stats(),
        decided["columns"],
    )
