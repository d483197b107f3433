"""The cost of building columns, estimated from a few records."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock._cpus import usable_cpus
from penstock.datasets.columns._bad import OF_A_RECORD, decoded
from penstock.storage import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.datasets._source import Source

_RUNS = 8
_RUN_RECORDS = 125
"""In each of so many places; 1,000 in all."""
_FIRST = 16
"""Records that are read before time counts: to open files and to make decoders."""
_LOOK_SECONDS = 0.03
_WRITE_RATE = 400e6
_FETCH_RATE = 50e6
"""Bytes a second of writing columns, and of reading remote files: on the slow side of common."""
_WORKERS_SECONDS = 0.5
"""Until worker processes run."""
_COLUMN_SECONDS = 0.005
"""For each column, to make its files and to wait until they are on disk."""


@dataclass(frozen=True, slots=True)
class ColumnsEstimate:
    """About what building columns takes."""

    seconds: float
    """With all processors."""
    bytes: int
    """The size of the columns; twice as much while they are built."""
    records: int
    """To be decoded."""
    folder: str = ""
    """Where they go."""
    core_seconds: float = 0.0
    """Decoding them takes on one processor."""
    disk_bytes: int = 0
    """Columns and units together, while they are built."""


def estimated(source: Source, schema: pa.Schema, start: int = 0) -> ColumnsEstimate:
    """Return what it takes to decode these fields of the records from `start` on."""
    length = len(source)
    records = length - start
    if not records or not len(schema):
        return ColumnsEstimate(0.0, 0, records)
    record_seconds, size = _look(source, schema, start)
    seconds = core_seconds = record_seconds * records
    if seconds > 1:
        seconds = seconds / usable_cpus() + _WORKERS_SECONDS
    if source.files and is_remote(source.files[0]) and source.index_meta is not None:
        stored = sum(file.size for file in source.index_meta.files)
        seconds = max(seconds, stored * records / length / _FETCH_RATE)
    seconds += size * length / _WRITE_RATE + len(schema) * _COLUMN_SECONDS
    disk_bytes = int(size * (length + records))
    return ColumnsEstimate(
        seconds, int(size * length), records, core_seconds=core_seconds, disk_bytes=disk_bytes
    )


def _look(source: Source, schema: pa.Schema, start: int) -> tuple[float, float]:
    """Return the seconds and the bytes that a record takes."""
    took, rows, size, sized = 0.0, 0, 0, 0
    for ids in _sample(source, start):
        began = time.perf_counter()
        try:
            batch = source._projected(ids, schema)  # noqa: SLF001 (what a source is asked for)
        except OF_A_RECORD:
            # Slow, record by record: its time is not that of other records.
            if not sized:
                batch = decoded(source, ids[:_FIRST], schema, "null", 0).columns
                size, sized = batch.nbytes, batch.num_rows
            continue
        if sized or len(ids) > _FIRST:
            took += time.perf_counter() - began
            rows += len(ids)
        size += batch.nbytes
        sized += len(ids)
        if took > _LOOK_SECONDS:
            break
    return took / max(1, rows), size / max(1, sized)


def _sample(source: Source, start: int) -> Iterator[NDArray[np.int64]]:
    """Yield numbers of a few records, in places where it costs little to begin to read."""
    length = len(source)
    files = source.files
    if files and is_remote(files[0]):
        # Each place is a request.
        yield np.arange(start, min(length, start + _RUN_RECORDS), dtype=np.int64)
        return
    places = source.unit_borders[:-1]
    places = places[places >= start] if (places >= start).any() else np.array([start])
    chosen = np.unique(places[np.linspace(0, len(places) - 1, _RUNS).astype(np.int64)])
    first = int(chosen[0])
    yield np.arange(first, min(length, first + _FIRST), dtype=np.int64)
    run = _RUN_RECORDS * _RUNS // len(chosen)
    for place in chosen.tolist():
        yield np.arange(place, min(length, place + run), dtype=np.int64)
