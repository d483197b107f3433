"""The stages of `penstock demo`: each checks a promise and adds a row to the table.

`python -m penstock.cli.demo._stages DIRECTORY FIRST LAST PER_SHARD` is the writer that is killed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import penstock
from penstock.cli._units import bytes_text, counted
from penstock.jsonl import JsonlDir
from penstock.storage import drafts_in

EXTENSION = ".jsonl.zst"
_CITIES = ("Bergen", "Como", "Grenoble", "Innsbruck", "Ljubljana")
_SHARDS = 10
"""Full shards; the writer that is killed at a quarter of the records is in the middle of one."""
_READY = "ready\n"
_SECONDS_TO_DIE = 30.0
_BATCH_ROWS = 4096


def record(number: int) -> dict[str, object]:
    """Return the record of a number, so that every copy can be checked.

    >>> record(7)["id"], record(7)["user"]["city"]
    (7, 'Grenoble')
    """
    mixed = number * 2_654_435_761 % (1 << 32)
    return {
        "id": number,
        "user": {"id": mixed % 1000, "city": _CITIES[number % len(_CITIES)]},
        "items": [mixed >> shift & 0xFFF for shift in range(0, mixed % 20 + 1, 4)],
        "price": round(mixed / (1 << 32) * 100, 2),
        "text": f"record {number} of the demonstration",
    }


class BrokenPromiseError(Exception):
    """Something that Penstock promises did not hold."""


class Row(NamedTuple):
    """One line of the table."""

    step: str
    seen: str
    seconds: float | None = None
    records: int | None = None
    """Handled in that time, where a rate means something."""


class DemoRun:
    """The state that the stages share; `scratch` is for an index, logs and checkpoints."""

    def __init__(self, directory: str, records: int, scratch: str) -> None:
        self.directory, self.records, self.scratch = directory, records, scratch
        self.dataset = JsonlDir(directory)
        self.first_part = records // 2  # The second writer goes on there.
        self.per_shard = max(1, records // _SHARDS)
        self.rows: list[Row] = []


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
    numbers = (run.first_part, run.records, run.per_shard)
    with killed(
        child("penstock.cli.demo._stages", run.directory, *map(str, numbers)),
        "a second process writes to the same directory",
    ):
        drafts = drafts_in(run.directory)
        promise([d.writer for d in drafts] == ["at work"], "its unfinished shard is hidden")
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


def child(module: str, *arguments: str) -> dict[str, Any]:
    """Return how a module of the same Penstock is started as a process."""
    home = Path(penstock.__file__).parents[1]
    return {"args": [sys.executable, "-m", module, *arguments], "cwd": home}


@contextmanager
def killed(started: dict[str, Any], what: str) -> Iterator[None]:
    """Start a process, wait for `wait_for_the_end`, and kill it when the block ends."""
    process = subprocess.Popen(**started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        promise((process.stdout.readline() if process.stdout else "") == _READY, what)
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        # Returns when its workers have closed stdout, too: none outlives it.
        process.communicate(timeout=_SECONDS_TO_DIE)
    promise(process.returncode == -signal.SIGKILL, "the process was killed")


def wait_for_the_end() -> None:
    """Tell the parent that this process may be killed; returns if the parent dies first."""
    sys.stdout.write(_READY)
    sys.stdout.flush()
    sys.stdin.read()


def write_half(directory: str, first: int, last: int, per_shard: int) -> None:
    """Write records to the middle of a shard, then wait to be killed."""
    with JsonlDir(directory).writer_sync(EXTENSION, max_records_per_shard=per_shard) as writer:
        writer.write_many(record(number) for number in range(first, (first + last) // 2))
        writer.flush()
        wait_for_the_end()


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


if __name__ == "__main__":
    write_half(sys.argv[1], *map(int, sys.argv[2:5]))
