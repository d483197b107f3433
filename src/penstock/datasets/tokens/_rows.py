"""Where tokens lie one after the other, and how many rows of them are taken at once."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from penstock.storage import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from penstock.index import SampleIndex

Ends: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"
"""Values, and where those of each row begin in them; at last where the last row's end."""
_SCANNED = 1 << 20
_FEW = 32
_LARGEST = 2**63 - 1


class Runs(NamedTuple):
    """Samples that lie one after the other in one file, run by run (int64)."""

    files: NDArray[np.int64]
    firsts: NDArray[np.int64]
    """The number of each run's first sample, and at last the number of all samples."""
    begins: NDArray[np.int64]
    """The byte of its file at which each begins …"""
    stops: NDArray[np.int64]
    """… and behind which it ends."""

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the run of each sample."""
        return np.searchsorted(self.firsts, ids, "right") - 1


def runs_of(index: SampleIndex, sample_bytes: int | None) -> Runs:
    """Return the runs of an index; `sample_bytes` where all samples have one size.

    `meta.json` is trusted where first and last rows agree with it, so that a large index is not
    read; of other indexes every row is.
    """
    rows, meta = index.sample_locations, index.meta
    if not len(rows):
        none = np.empty(0, np.int64)
        return Runs(none, np.zeros(1, np.int64), none, none)
    if meta is None:
        found = list(_scanned(rows, 0, len(rows)))
    else:
        found = []
        starts = meta.starts().tolist()
        times = np.bincount([run.file for run in meta.runs])
        for run, low, high in zip(meta.runs, starts[:-1], starts[1:], strict=True):
            if low == high:
                continue
            (file, begin, _), (last, offset, size) = rows[[low, high - 1]].tolist()
            whole = None if sample_bytes is None else run.records * sample_bytes
            if whole is None and times[run.file] == 1:
                whole = meta.files[run.file].bytes
            is_one = file == last and offset + size - begin == whole
            one = (low, file, begin, offset + size)
            found += [one] if is_one else _scanned(rows, low, high)
    _check_runs(index, found, sample_bytes)
    firsts, files, begins, stops = np.array(found, np.int64).T
    return Runs(files, np.append(firsts, len(rows)), begins, stops)


def _check_runs(
    index: SampleIndex, found: list[tuple[int, int, int, int]], sample_bytes: int | None
) -> None:
    """Raise where a run does not lie in a file, or does not have the bytes of its samples."""
    sizes = [_size_of(index, file) for file in range(len(index.file_locations))]
    last_first = len(index)
    for first, file, begin, stop in reversed(found):
        whole = stop - begin if sample_bytes is None else (last_first - first) * sample_bytes
        is_there = 0 <= file < len(sizes) and 0 <= begin <= stop <= sizes[file]
        if not is_there or stop - begin != whole:
            raise index.damaged(
                f"samples {first:,} to {last_first - 1:,} lie from byte {begin:,} to {stop:,} of "
                f"file {file:,}"
            )
        last_first = first


def _size_of(index: SampleIndex, file: int) -> int:
    path = index.file_locations[file]
    if is_remote(path):
        return _LARGEST if index.meta is None else index.meta.files[file].size
    with suppress(OSError):
        return os.stat(path).st_size
    return _LARGEST  # The file is gone: reading it raises.


def _scanned(rows: NDArray[np.uint64], low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield first sample, file, begin and stop of each run among some samples."""
    first, file, begin = low, int(rows[low, 0]), int(rows[low, 1])
    stop = begin
    for start in range(low, high, _SCANNED):
        part = rows[start : min(start + _SCANNED, high)].astype(np.int64)
        ends = part[:, 1] + part[:, 2]
        is_next = part[1:, 1] == ends[:-1]
        breaks = np.flatnonzero(~is_next | (part[1:, 0] != part[:-1, 0])) + 1
        if part[0, 0] != file or part[0, 1] != stop:
            breaks = np.concatenate([[0], breaks])
        for at in breaks.tolist():
            yield first, file, begin, int(ends[at - 1]) if at else stop
            first, (file, begin) = start + at, part[at, :2].tolist()
        stop = int(ends[-1])
    yield first, file, begin, stop


def one_value(numbers: NDArray[Any]) -> int | None:
    """Return the number that all are, if it is above 0; else None.

    Where they differ they do soon, so that only equal ones are all looked at.

    >>> one_value(np.array([8, 8])), one_value(np.array([8, 9])), one_value(np.array([]))
    (8, None, None)
    """
    if not len(numbers) or numbers[0] <= 0:
        return None
    for start in range(0, len(numbers), _SCANNED):
        if (numbers[start : start + _SCANNED] != numbers[0]).any():
            return None
    return int(numbers[0])


def between(lows: NDArray[np.int64], highs: NDArray[np.int64]) -> Ends:
    """Return the numbers from each low up to each high, and where those of each begin.

    >>> between(np.array([5, 1]), np.array([7, 2]))
    (array([5, 6, 1]), array([0, 2, 3]))
    """
    counts = np.maximum(highs - lows, 0)
    offsets = np.zeros(len(lows) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return np.arange(offsets[-1]) + np.repeat(lows - offsets[:-1], counts), offsets


def ends_of(
    values: NDArray[np.int64],
    rows: NDArray[np.int64],
    is_kept: NDArray[np.bool_],
    count: int,
) -> Ends:
    """Return those of some values that are kept, given the row of each: of `count` rows."""
    counts = np.bincount(rows[is_kept], minlength=count)
    return values[is_kept], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def take(
    runs: NDArray[np.int64],
    places: NDArray[np.int64],
    items_of: Callable[[int], NDArray[Any]],
    out: NDArray[Any],
    rows: NDArray[np.int64] | None = None,
) -> None:
    """Fill `out`, or some rows of it, with the items at places of runs.

    Items are rows of tokens as one value each (`V…`), which NumPy copies as a whole.
    """
    if len(runs) <= _FEW:
        # Of many runs, as like as not: to sort them costs more than to copy one by one.
        found = {run: items_of(run) for run in set(runs.tolist())}
        targets = range(len(runs)) if rows is None else rows.tolist()
        for row, run, place in zip(targets, runs.tolist(), places.tolist(), strict=True):
            out[row : row + 1] = found[run][place : place + 1]
        return
    order = np.argsort(runs, kind="stable")
    ordered = runs[order]
    for which in np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        target = which if rows is None else rows[which]
        out[target] = items_of(int(runs[which[0]]))[places[which]]


def items(rows: NDArray[Any], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return the rows of a C array as one value each."""
    return rows.view(kind).reshape(-1)
