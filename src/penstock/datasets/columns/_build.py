"""Columns that are not there yet: what they cost, and how they are built.

The cost is estimated from a few records. Units decode all of them, then each column is published.
"""

from __future__ import annotations

import glob
import logging
import re
import shutil
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from penstock._cpus import usable_cpus
from penstock.datasets.columns._bad import OnError, decoded, most_bad, too_many
from penstock.datasets.columns._folder import META, Column, list_columns, publish_column
from penstock.datasets.columns._place import (
    OTHER_FOLDER,
    are_unchanged,
    as_lists,
    make_root,
    unwritable,
)
from penstock.datasets.columns._units import ColumnUnit, UnitFiles, UnitParts, cut
from penstock.decode import OF_A_RECORD, keep_pandas_out
from penstock.errors import IndexTimeoutError, PenstockError, StaleIndexError
from penstock.index import digest
from penstock.storage import (
    BUILDING,
    COLUMNS_LOCK,
    NO_ROOM,
    hold_entry,
    holder_of,
    is_of_columns,
    is_remote,
    only_one,
    read_metadata,
    refuse_full_disk,
    remove_special,
    remove_tree,
    trim_cache,
)
from penstock.work import Shared, UnitResults, View, run_units, viewed

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from penstock.datasets._source import Source
    from penstock.datasets.columns._place import Freshness

_log = logging.getLogger("penstock.datasets")
_LAYOUT = 1
"""Raised whenever the files of units, or what they are cut from, change."""
_SCHEMA = "schema.arrow"
_STUCK_SECONDS = 3600.0
"""For how long a builder may finish nothing before others give up waiting for it."""
_SYNCS = 4
"""Files of a column that are waited for side by side."""
_IN_CALLER_SECONDS = 1.0
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
_OFFSETS = re.compile(r".+-offsets-[0-9a-f]{16}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Building:
    """How columns are built."""

    on_error: OnError = "raise"
    workers: int | None = None
    progress: bool | View | None = None
    most_bad: int = 0
    """Records that "mask" may set aside, if more than its own limit."""
    warns_of_unknown: bool = True
    """Whether to warn of fields that no record seems to have."""


Wanted: TypeAlias = "Mapping[pa.Field, Column | None]"
"""Fields, with the columns of their first records: of as many records, or none at all."""


def first_record(wanted: Wanted) -> int:
    """Return the first record that is to be decoded."""
    return max((column.meta.length for column in wanted.values() if column), default=0)


@contextmanager
def only_column_builder(root: Path) -> Iterator[None]:
    """Be the only process, on any host, that changes the columns in a folder.

    While another one is at it, wait as long as it finishes something; large data takes long.
    """
    make_root(root)
    # Not that of pathlib, which fails where a folder is removed while it looks.
    parts = f"{glob.escape(str(root))}/{BUILDING}*/*"
    stuck = IndexTimeoutError(
        f"another process has been building columns in {root} and has finished nothing for "
        f"{_STUCK_SECONDS:,.0f} s. Wait for it or end it, or give another folder: path=",
        path=str(root),
    )

    def progress() -> object:
        return {*glob.glob(parts, include_hidden=True)}

    with only_one(root / COLUMNS_LOCK, _STUCK_SECONDS, stuck, progress):
        held = hold_entry(root)
        yield
    del held
    trim_cache(root)


def build(source: Source, wanted: Wanted, root: Path, how: Building, freshness: Freshness) -> None:
    """Build columns; the caller is the only builder.

    By `freshness` the columns that are to become longer hold. What a killed builder of the
    same columns had finished is used; what others left is removed.
    """
    _refuse_touched(source, freshness)
    if source.sample_index is not None:
        source = copy(source)  # It opens the files that are there now.
    start = first_record(wanted)
    ranges = cut(source, start)
    records = [freshness.fingerprint, as_lists(freshness.files), len(source)]
    folder = root / f"{BUILDING}{digest([_LAYOUT, *records, start, how.on_error, ranges])}"
    schema = pa.schema([pa.field(field.name, field.type) for field in wanted])
    known, kept = _schema_in(folder), []
    if known is not None and {*schema} <= {*known}:
        # A builder that was killed while it published had begun with more fields.
        schema, kept = known, [folder]
    _remove_leftovers(root, kept)
    cost = estimated(source, schema, start)
    refuse_full_disk(cost.disk_bytes, root, "building these columns", OTHER_FOLDER)
    is_quick = cost.core_seconds < _IN_CALLER_SECONDS or not source.decodes_in_processes
    workers = 0 if how.workers is None and is_quick else how.workers
    results = UnitResults(str(folder), suffix=".arrow")
    shared = Shared(source, keep_pandas_out)
    most = max(most_bad(len(source)), how.most_bad)
    units = [
        ColumnUnit(results, number, shared, low, high, schema, how.on_error, most)
        for number, (low, high) in enumerate(ranges)
    ]
    try:
        folder.mkdir(exist_ok=True)
        remove_special(folder)
        (folder / _SCHEMA).write_bytes(schema.serialize())
        with viewed(how.progress, len(source) - start, "materialising", unit="records") as view:
            run_units(units, workers=workers, advance=view.add, caller_helps=True)
        _refuse_touched(source, freshness)
        _publish(source, wanted, units, root, freshness)
    except Exception as why:
        # After Ctrl-C what is finished stays, for the next time.
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(why, OSError) and (
            not isinstance(why, PenstockError) or why.errno in NO_ROOM
        ):
            raise unwritable(root, why) from why
        raise
    _remove_leftovers(root)


def remove_finished(root: Path, has_all: Callable[[pa.Schema], bool]) -> None:
    """Remove what a builder left that was killed after its last column.

    That is a column that was replaced, and units of columns that are all there.
    """
    folders = [path for path in root.glob(".*") if is_of_columns(path.name)]
    if not folders:
        return
    with holder_of(root / COLUMNS_LOCK) as builder:
        for folder in folders if builder == "gone" else ():
            schema = _schema_in(folder)
            is_column = not folder.name.startswith(BUILDING)
            if is_column or (schema is not None and has_all(schema)):
                shutil.rmtree(folder, ignore_errors=True)


def _schema_in(folder: Path) -> pa.Schema | None:
    """Return the fields that a killed builder decoded into a folder; None where there is none."""
    with suppress(OSError, pa.ArrowException):
        if not folder.is_symlink():
            return pa.ipc.read_schema(pa.py_buffer(read_metadata(folder / _SCHEMA)))
    return None


def _publish(
    source: Source, wanted: Wanted, units: Sequence[ColumnUnit], root: Path, freshness: Freshness
) -> None:
    files = UnitFiles(units)
    schema, on_error, most = units[0].schema, units[0].on_error, units[0].most_bad
    if on_error == "mask":
        bad = np.unique(np.array([*chain.from_iterable(files.bad.values())], np.int64))
        if len(bad) > most:
            raise too_many(source, bad, schema, most)
    with ThreadPoolExecutor(_SYNCS, "penstock-sync") as pool:
        for field, old in wanted.items():
            found = np.unique(np.array(files.bad.get(field.name, ()), np.int64))
            nulled = 0 if old is None else old.meta.nulled
            bad = np.empty(0, np.int64) if old is None else old.bad
            if on_error == "null":
                nulled += len(found)
                if nulled:
                    one, many = "value that does not fit %s is", "values that do not fit %s are"
                    text = f"field %r: %d {one if nulled == 1 else many} null"
                    _log.warning(text, field.name, nulled, field.type)
            else:
                bad = np.concatenate([bad, found])
            publish_column(
                root,
                pa.field(field.name, field.type),
                UnitParts(files, schema.get_field_index(field.name), old),
                fingerprint=freshness.fingerprint,
                length=len(source),
                bad=bad,
                nulled=nulled,
                files=freshness.files,
                pool=pool,
            )


def _remove_leftovers(root: Path, kept: Container[Path] = ()) -> None:
    """Remove what dead builders left, and offsets that no column needs; for the only builder."""
    needed = {name for meta in list_columns(root) for name in meta.lists}
    for path in [*root.iterdir()]:
        is_unused = (
            _OFFSETS.fullmatch(path.name) and path.name not in needed and not (path / META).exists()
        )
        if (is_of_columns(path.name) and path not in kept) or is_unused:
            remove_tree(path)


def _refuse_touched(source: Source, before: Freshness) -> None:
    if not are_unchanged(before.files, source.file_facts()):
        raise StaleIndexError(
            f"files were overwritten while their records were decoded: {source.files[0]}, or "
            f"others of {len(source.files):,}. Open them again when no process writes to them."
        )


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
                size, sized = _stored_bytes(batch), batch.num_rows
            continue
        if sized or len(ids) > _FIRST:
            took += time.perf_counter() - began
            rows += len(ids)
        size += _stored_bytes(batch)
        sized += len(ids)
        if took > _LOOK_SECONDS:
            break
    return took / max(1, rows), size / max(1, sized)


def _stored_bytes(batch: pa.RecordBatch) -> int:
    """Return about how many bytes columns take: as many as Arrow's, but a whole one for a bool."""
    bools = [type_ for type_ in batch.schema.types if pa.types.is_boolean(type_)]
    return int(batch.nbytes + batch.num_rows * len(bools))


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
