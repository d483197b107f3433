"""The stages of `penstock demo`: each checks a promise and adds a row to the table."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import penstock
from penstock.cli._units import bytes_text, counted
from penstock.cli.demo._writer import EXTENSION, record
from penstock.jsonl import JsonlDir
from penstock.storage import drafts_in

if TYPE_CHECKING:
    from collections.abc import Callable

_SHARDS = 10
"""Full shards; the writer that is killed at a quarter of the records is in the middle of one."""
_START_SECONDS = 30.0
_BATCH_ROWS = 4096


class BrokenPromiseError(Exception):
    """Something that Penstock promises did not hold."""


class Row(NamedTuple):
    """One line of the table."""

    step: str
    seen: str
    seconds: float | None = None
    records: int | None = None
    """Handled in that time, where a rate means something."""


@dataclass(slots=True)
class DemoRun:
    """The state that the stages share."""

    directory: str
    records: int
    scratch: str
    """Directory for an index, logs and checkpoints."""
    rows: list[Row] = field(default_factory=list)

    @property
    def dataset(self) -> JsonlDir:
        """The dataset that the stages write and read."""
        return JsonlDir(self.directory)

    @property
    def first_part(self) -> int:
        """Records of the first stage; the second writer goes on there."""
        return self.records // 2

    @property
    def per_shard(self) -> int:
        """Records of a full shard."""
        return max(1, self.records // _SHARDS)


def promise(holds: bool, what: str) -> None:  # noqa: FBT001 (reads as a sentence)
    """Raise unless a promise holds."""
    if not holds:
        raise BrokenPromiseError(what)


def write_dataset(run: DemoRun) -> None:
    """Write the first half of the records as compressed shards."""
    seconds, published = _written(run, 0, run.first_part)
    shards = run.dataset.shards_sync()
    promise([shard.path for shard in shards] == published, "every published shard is listed")
    stored = sum(shard.size_sync() for shard in shards)
    seen = f"{counted(run.first_part, 'record')} in {counted(len(shards), 'shard')}"
    run.rows.append(Row("write", f"{seen}, {bytes_text(stored)} of zstd", seconds, run.first_part))


def _written(run: DemoRun, first: int, end: int) -> tuple[float, list[str]]:
    """Write records; return the seconds that took and the shards."""
    records = [record(number) for number in range(first, end)]
    start = time.perf_counter()
    with run.dataset.writer_sync(EXTENSION, max_records_per_shard=run.per_shard) as writer:
        writer.write_many(records)
    return time.perf_counter() - start, writer.published


def kill_a_writer(run: DemoRun) -> None:
    """Kill a second process with SIGKILL while it writes the other half."""
    before = {shard.path for shard in run.dataset.shards_sync()}
    process = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
        [
            *(sys.executable, "-m", "penstock.cli.demo._writer"),
            *(run.directory, str(run.first_part), str(run.records), str(run.per_shard)),
        ],
        # The child imports the same Penstock as this process.
        cwd=Path(penstock.__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        promise(line == "half-way\n", "a second process writes to the same directory")
        drafts = drafts_in(run.directory)
        promise([d.writer for d in drafts] == ["at work"], "its unfinished shard is hidden")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=_START_SECONDS)
    promise(process.returncode == -signal.SIGKILL, "the writer was killed")
    drafts = drafts_in(run.directory)
    promise([d.writer for d in drafts] == ["gone"], "its hidden draft is known to be dead")
    added = [s for s in run.dataset.shards_sync() if s.path not in before]
    half = (run.records - run.first_part) // 2
    whole = half // run.per_shard * run.per_shard
    seen = [r for shard in added for r in shard.iter_records_sync()]
    promise(
        seen == [record(number) for number in range(run.first_part, run.first_part + whole)],
        "what the killed writer published is whole, in order, and nothing else is to be seen",
    )
    run.rows += [
        Row("kill -9", f"a second writer, after {counted(half, 'record')} of its half"),
        Row("  visible", f"{counted(len(added), 'shard')} of it, complete to the last record"),
        Row("  left behind", f"1 hidden draft of {bytes_text(drafts[0].entry.size)}"),
    ]


def go_on(run: DemoRun) -> None:
    """Write the missing records with a new writer, which removes the dead one's draft."""
    present = sum(1 for _ in run.dataset.iter_records_sync())
    seconds, _ = _written(run, present, run.records)
    names = sorted(path.name for path in Path(run.directory).iterdir())
    promise(not drafts_in(run.directory), "the next writer clears the dead one's draft")
    promise(
        names == [f"part-{number:05d}{EXTENSION}" for number in range(len(names))],
        "shards are numbered without a gap",
    )
    more = run.records - present
    seen = f"{counted(more, 'record')} more, draft cleared, {counted(len(names), 'shard')} in all"
    run.rows.append(Row("go on", seen, seconds, more))


def stream_records(run: DemoRun) -> None:
    """Read everything as Python records, and compare each with what was written."""
    start = time.perf_counter()
    count = sum(1 for _ in run.dataset.iter_records_sync())
    seconds = time.perf_counter() - start
    promise(count == run.records, f"all {run.records:,} records are there")
    read = run.dataset.iter_records_sync()
    promise(
        all(seen == record(number) for number, seen in enumerate(read)),
        "each record is there once, in order, and as it was written",
    )
    seen = f"{counted(run.records, 'record')}, each once and in order"
    run.rows.append(Row("stream records", seen, seconds, run.records))


def stream_arrow(run: DemoRun) -> None:
    """Read everything as Arrow record batches."""
    import pyarrow.compute as pc  # noqa: PLC0415 (slow to load, and only needed here)

    start = time.perf_counter()
    batches = list(run.dataset.iter_arrow_batches_sync(batch_size=_BATCH_ROWS))
    seconds = time.perf_counter() - start
    rows = sum(batch.num_rows for batch in batches)
    total = sum(pc.sum(batch["id"]).as_py() for batch in batches)
    promise(
        max(batch.num_rows for batch in batches) <= _BATCH_ROWS, "batches are of the size asked"
    )
    promise(rows == run.records, f"Arrow has all {run.records:,} rows")
    promise(total == run.records * (run.records - 1) // 2, "Arrow has the same values")
    columns = batches[0].num_columns
    seen = f"{rows:,} rows of {columns} columns, no batch above {_BATCH_ROWS:,}"
    run.rows.append(Row("stream Arrow", seen, seconds, rows))


STAGES: list[Callable[[DemoRun], None]] = [
    write_dataset,
    kill_a_writer,
    go_on,
    stream_records,
    stream_arrow,
]
"""In order; each reads the files of those before it."""
