"""Peak memory while a large file streams by, each way in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from _records import write_large
from _rounds import Side
from _table import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WAYS = ("records", "batches", "Arrow batches", "Arrow batches of 3 columns")
MUST_STAY_BELOW = 150


class MemoryRow(TypedDict):
    """Peaks in MB above an interpreter with pyarrow imported."""

    way: str
    after_a_quarter: float
    at_the_end: float
    must_stay_below: float
    reached: bool


def measure_memory(source: Path, size: int) -> Iterator[MemoryRow]:
    """Yield a row for each way to stream a file of `size` bytes, which is removed at the end."""
    large = source.with_name("large.jsonl")
    try:
        lines = write_large(large, source, size)
        baseline = _interpreter_with_pyarrow()
        for way in WAYS:
            with Side("_ours.py") as ours:
                _, peaks = ours.ask("memory", path=str(large), how=way, records=lines)
            early, end = ((peak - baseline) / 1e6 for peak in peaks)
            yield MemoryRow(
                way=way,
                after_a_quarter=early,
                at_the_end=end,
                must_stay_below=MUST_STAY_BELOW,
                reached=end <= MUST_STAY_BELOW,
            )
    finally:
        large.unlink(missing_ok=True)


def _interpreter_with_pyarrow() -> int:
    program = "import pyarrow, _worker; print(_worker.peak_bytes())"
    folder = Path(__file__).parent
    return int(subprocess.check_output([sys.executable, "-c", program], cwd=folder, text=True))


def memory_table(rows: Iterable[MemoryRow]) -> str:
    """Return the table of all ways."""
    return table(
        ["streamed as", "after a quarter", "at the end", "must stay below", "reached"],
        (
            (
                row["way"],
                f"{row['after_a_quarter']:.0f}",
                f"{row['at_the_end']:.0f}",
                row["must_stay_below"],
                "yes" if row["reached"] else "no",
            )
            for row in rows
        ),
    )
