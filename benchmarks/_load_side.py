"""One side of the loading job: whole epochs in batches of tensors, as a training loop takes them.

Only the standard library and numpy, because it also runs in the environments of peers.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from _worker import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

BATCH = 1024
FIELDS = ("id", "price", "label", "tags")
"""int64, float32, int64, and int64 lists of any length."""
_MEMORY_SAMPLES = (0.1, 0.5, 0.9)
"""Parts of an epoch after which the memory of workers is looked at."""
_UNIFORM_DISTANCE = 1 - 0.5**0.5
"""Median distance of neighbours in a uniform permutation, as a part of its length."""


class Look(TypedDict):
    """What one epoch shows of a loader."""

    distance: float
    """Median distance of neighbours, as a part of that in a uniform permutation."""
    twice: int
    never: int
    cut: bool
    """Whether it took too long to be seen to its end."""
    memory: list[int]
    """Private bytes of the largest worker, at some points."""


@dataclass
class Loading:
    """A loader of something converted."""

    made: Callable[..., Iterable[object]]
    """From a path, a number of workers, and options, to a new loader of one shuffled epoch."""
    ids_of: Callable[[object], np.ndarray]
    """From a batch to the field `id` of its records."""
    convert: Callable[[str, str], object]
    """What has to be done once: from a file of JSON Lines to what `made` takes."""

    def works(self) -> dict[str, Callable[..., object]]:
        """Return what can be asked for."""
        return {"convert": self.converted, "epoch": self.epoch, "look": self.look}

    def converted(self, source: str, target: str) -> int:
        """Convert; return how many bytes that took on disk, those of the source not counted."""
        Path(target).mkdir()
        self.convert(source, target)
        files = [path.stat() for path in Path(target).rglob("*") if path.is_file()]
        given = Path(source).stat().st_ino
        return sum(file.st_size for file in files if file.st_ino != given)

    def epoch(
        self, path: str, workers: int | str, seconds: float, **options: object
    ) -> dict[str, float]:
        """Go through an epoch, or so many seconds of it.

        The first batch is told by itself: the records and seconds are those after it.
        """
        began = time.perf_counter()
        first = last = records = 0.0
        for batch in self.made(path, workers, **options):
            last = time.perf_counter()
            if not first:
                first = last
            else:
                records += len(self.ids_of(batch))
            if last - first > seconds:
                break
        # What is closed behind the loop is no part of it.
        return {"records": records, "seconds": last - first, "first": first - began}

    def look(
        self, path: str, workers: int | str, seconds: float, records: int, **options: object
    ) -> Look:
        """Return what comes in which order and what it takes, for an epoch or some seconds."""
        parts: list[np.ndarray] = []
        memory: list[int] = []
        first, seen, cut = 0.0, 0, False
        for batch in self.made(path, workers, **options):
            parts.append(np.array(self.ids_of(batch)))
            seen += len(parts[-1])
            first = first or time.perf_counter()
            cut = time.perf_counter() - first > seconds
            due = len(memory) < len(_MEMORY_SAMPLES)
            if due and (cut or seen >= _MEMORY_SAMPLES[len(memory)] * records):
                memory.append(max(map(private_bytes, worker_pids()), default=0))
            if cut:
                break
        ids = np.concatenate(parts)
        distinct = len(np.unique(ids))
        return Look(
            distance=float(np.median(np.abs(np.diff(ids)))) / (_UNIFORM_DISTANCE * records),
            twice=seen - distinct,
            never=records - distinct,
            cut=cut and distinct < records,
            memory=memory,
        )

    def serve(self, more: Mapping[str, Callable[..., object]] | None = None) -> None:
        """Answer until there are no more questions."""
        serve({**self.works(), **(more or {})})


def worker_pids() -> list[int]:
    """Return the processes below this one that have none below themselves, trackers aside."""
    return [pid for pid in _leaves(os.getpid()) if b"resource_tracker" not in _command(pid)]


def _leaves(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(n) for task in tasks for n in (task / "children").read_text().split()]
    except OSError:
        return []  # It ended.
    for child in children:
        found += _leaves(child) or [child]
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def private_bytes(pid: int) -> int:
    """Return what a process has in memory that it shares with nobody."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    lines = [line.split() for line in text.splitlines() if line.startswith("Private_")]
    return 1024 * sum(int(words[1]) for words in lines if words[0] in _PRIVATE)


_PRIVATE = ("Private_Clean:", "Private_Dirty:")
