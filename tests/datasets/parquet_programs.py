"""What processes do that open Parquet files which end them, if anything does."""

from __future__ import annotations

import random
import resource
from collections import Counter
from pathlib import Path

from penstock.datasets import ParquetRows
from penstock.decode import keep_pandas_out
from penstock.errors import PenstockError

_TAIL = 8


def plain_column(path: str) -> list[object]:
    """Return the column of a file whose other column is encrypted, and the error about that one."""
    told = ""
    try:
        ParquetRows(path)[0]
    except PenstockError as error:
        told = str(error)
    return [ParquetRows(path, columns=["id"])[:], told]


def read_damaged(path: str, seeds: list[int]) -> dict[str, int]:
    """Read a file many times, each time with other bytes of its footer changed; count outcomes."""
    whole = Path(path).read_bytes()
    damaged = Path(path).with_name("damaged.parquet")
    length = int.from_bytes(whole[-_TAIL:-4], "little")
    outcomes: Counter[str] = Counter()
    for seed in range(*seeds):
        chance, changed = random.Random(seed), bytearray(whole)
        for _ in range(chance.choice([1, 1, 2, 4])):
            place = chance.randrange(len(whole) - _TAIL - length, len(whole) - _TAIL)
            changed[place] = chance.choice([chance.randrange(256), 0, 127, 128, 255])
        damaged.write_bytes(changed)
        try:
            rows = ParquetRows(damaged)
            rows[[0, len(rows) - 1]]
            outcomes["read"] += 1
        except PenstockError as error:
            is_named = "damaged.parquet" in str(error) or "record " in str(error)
            outcomes["told" if is_named else str(error)] += 1
    return outcomes


def peak_of_reading(path: str) -> list[object]:
    """Return why a row could not be read, and the most MiB that this process had."""
    try:
        told = str(ParquetRows(path)[0])
    except PenstockError as error:
        told = f"{type(error).__name__}: {error}"
    # Not `ru_maxrss`: that begins with what the process had from which this one was forked.
    status = Path("/proc/self/status").read_text()
    return [told, int(status.partition("VmHWM:")[2].split()[0]) >> 10]


def with_little_memory(path: str) -> object:
    """Return why a row cannot be read by a process that has 100 MiB left."""
    rows = ParquetRows(path)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), most))
    try:
        return str(rows[0])
    except PenstockError as error:
        return f"{type(error).__name__}: {error}"


def without_pandas(path: str) -> list[object]:
    """Return what becomes of nanoseconds where pandas cannot be imported."""
    keep_pandas_out()
    rows = ParquetRows(path)
    try:
        told = str(rows[1])
    except PenstockError as error:
        told = f"{type(error).__name__}: {error}"
    return [str(rows[0]["at"]), told, rows.read([1], {"at": "timestamp[ns]"}).column(0)[0].value]
