"""Ranges of records that are decoded by themselves, each into one file on the way to columns."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.datasets._table_source import ArrowSink
from penstock.datasets.columns._bad import OnError, decoded
from penstock.work import PublishedUnit, Shared, shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets._source import Source
    from penstock.datasets.columns._folder import Column
    from penstock.storage import Draft

_UNIT_BYTES = 48 << 20
"""Of text in a unit, or less where there is little of it."""
_LEAST_BYTES = 4 << 20
_MANY_UNITS = 16
_UNIT_RECORDS = 262_144
_STRETCH = 16_384
"""Records that are decoded together."""
_STRETCH_BYTES = 16 << 20
_STREAM_BYTES = 512 << 10
"""Text of a stretch that can only be decompressed forward: so little is kept, to go back to."""
_BAD = b"penstock.bad"
_OLD_STRETCH = 65_536
_KEPT_ARRAYS = 1 << 16
"""Of units, at most: less than 100 MB."""


@dataclass(frozen=True)
class RecordsUnit(PublishedUnit):
    """A range of records; see `penstock.work.PublishedUnit`."""

    shared: Shared[Source]
    start: int
    stop: int

    def __str__(self) -> str:
        return f"records {self.start:,} to {self.stop - 1:,}"

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class ColumnUnit(RecordsUnit):
    """Some records whose fields are decoded into an Arrow file."""

    schema: pa.Schema
    on_error: OnError
    most_bad: int

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        source = self.shared.value
        # No `with`: to close it after a write that failed would hide why.
        writer = pa.ipc.new_file(pa.PythonFile(ArrowSink(draft.write), "w"), self.schema)
        for ids in stretches(source, self.start, self.stop):
            with _no_search_for_garbage():
                columns, bad = decoded(source, ids, self.schema, self.on_error, self.most_bad)
            about = {_BAD: json.dumps(bad).encode()} if bad else None
            writer.write_batch(columns, custom_metadata=about)
            advance(len(ids))
        writer.close()


@contextmanager
def _no_search_for_garbage() -> Iterator[None]:
    """Spare Python the search among many thousands of lists that are all in use, a tenth of it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def cut(source: Source, start: int) -> list[tuple[int, int]]:
    """Return ranges of the records from `start` on that lie together, of a bearable size each.

    The same for the same source, so that a later builder finds the finished units.
    """
    length = len(source)
    records = _UNIT_RECORDS
    if source.index_meta is not None and source.index_meta.bytes:
        text_bytes = source.index_meta.bytes
        unit_bytes = min(_UNIT_BYTES, max(_LEAST_BYTES, text_bytes // _MANY_UNITS))
        records = min(records, max(1, unit_bytes * length // text_bytes))
    borders = source.unit_borders
    borders = borders[borders > start] - start
    return [(start + low, start + high) for low, high in shares(length - start, borders, records)]


def stretches(source: Source, start: int, stop: int) -> Iterator[NDArray[np.int64]]:
    """Yield numbers of records that are decoded together: not too many, and not too much text."""
    for low in range(start, stop, _STRETCH):
        ids = np.arange(low, min(low + _STRETCH, stop), dtype=np.int64)
        if source.sample_index is None:
            yield ids
            continue
        at = source.location(ids)
        is_forward = np.isin(at.file, list(source.stream_files)).any()
        most = _STREAM_BYTES if is_forward else _STRETCH_BYTES
        ends = np.cumsum(at.bytes)
        # A stretch goes on until its text is too much, but has one record at least.
        borders = np.flatnonzero(np.diff(ends // most, prepend=0))
        yield from np.split(ids, borders[borders > 0])


class UnitParts:
    """The values of one field: of a column that is to grow, and then of units, part by part."""

    def __init__(self, files: UnitFiles, column: int, old: Column | None = None) -> None:
        self._files, self._column, self._old = files, column, old

    def __iter__(self) -> Iterator[pa.Array]:
        if self._old is not None:
            length = self._old.meta.length
            for low in range(0, length, _OLD_STRETCH):
                yield self._old.take(np.arange(low, min(low + _OLD_STRETCH, length)))
        for which in range(len(self._files.batches)):
            yield self._files.column(which, self._column)


class UnitFiles:
    """The files of all units, mapped one at a time; columns are taken from them in order.

    To read a batch takes time for each of its columns, so some of them are kept for their turn.
    """

    def __init__(self, units: Sequence[ColumnUnit]) -> None:
        self._kept: dict[int, list[pa.Array]] = {}
        """Of batches that were read, the columns from `_first` on."""
        self._first = 0
        self._last: tuple[ColumnUnit, pa.RecordBatchFileReader] | None = None
        self.batches: list[tuple[ColumnUnit, int]] = []
        """The unit of each batch, and its number there."""
        self.bad: dict[str, list[int]] = {}
        """For each field the records whose value could not be read."""
        for unit in units:
            reader = self._reader(unit)
            for at in range(reader.num_record_batches):
                self.batches.append((unit, at))
                _, about = reader.get_batch_with_custom_metadata(at)
                if about is not None and _BAD in about:
                    for name, numbers in json.loads(about[_BAD]).items():
                        self.bad.setdefault(name, []).extend(numbers)

    def column(self, which: int, number: int) -> pa.Array:
        """Return the values of one column in some records."""
        together = max(1, _KEPT_ARRAYS // len(self.batches))
        first = number - number % together
        if first != self._first:
            self._first, self._kept = first, {}
        if which not in self._kept:
            unit, at = self.batches[which]
            batch = self._reader(unit).get_batch(at)
            numbers = range(first, min(first + together, batch.num_columns))
            self._kept[which] = [batch.column(one) for one in numbers]
        return self._kept[which][number - first]

    def _reader(self, unit: ColumnUnit) -> pa.RecordBatchFileReader:
        if self._last is None or self._last[0] is not unit:
            # A map of Arrow needs no descriptor, and arrays of every unit are held.
            self._last = unit, pa.ipc.open_file(pa.memory_map(unit.name))
        return self._last[1]
