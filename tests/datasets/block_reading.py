"""Processes that read the blocks of one remote source."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import penstock
from penstock.storage import Meter, metered


def read_all(url: str, options: dict[str, str], threads: int) -> dict[str, float]:
    """Read all records in some order by each of several threads; return what that cost."""
    source = penstock.open(url, storage_options=options).by_blocks()
    print("ready", flush=True)
    input()
    meter = Meter()

    def read(seed: int) -> None:
        ids = random.Random(seed).sample(range(len(source)), len(source))
        with metered(meter):
            records = [
                record for at in range(0, len(ids), 500) for record in source[ids[at : at + 500]]
            ]
        assert [record["id"] for record in records] == ids

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, range(threads)))
    return meter.counts()
