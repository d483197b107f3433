"""What worker processes of these tests do."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import penstock

if TYPE_CHECKING:
    from penstock.datasets import Source


def wrong_records(source: Source, seed: int, reads: int, batch: int) -> int:
    """Read random records; return how many were not the one asked for."""
    chance = random.Random(seed)
    wrong = 0
    for _ in range(reads // batch):
        ids = [chance.randrange(len(source)) for _ in range(batch)]
        records = source[ids] if batch > 1 else [source[ids[0]]]
        wrong += sum(record["id"] != number for record, number in zip(records, ids, strict=True))
    return wrong


def private_bytes(source: Source) -> int:
    """Return this process's own memory, without what it maps, after some reads."""
    source[[0, len(source) // 2, len(source) - 1]]
    fields = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (dirty,) = (line for line in fields if line.startswith("Private_Dirty"))
    return int(dirty.split()[1]) << 10


def open_and_count(path: str, start: float) -> tuple[int, str]:
    """Open a source at a given moment, as many processes do; return length and fingerprint."""
    time.sleep(max(0.0, start - time.time()))
    source = penstock.open(path)
    return len(source), source.fingerprint
