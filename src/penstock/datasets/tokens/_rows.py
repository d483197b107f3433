"""Where tokens lie one after the other, and how many rows of them are taken at once."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

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


class Runs:
    """Samples that lie one after the other in one file, run by run.

    `firsts`: the number of each run's first sample, and at last the number of all samples;
    `begins` and `stops`: the byte of its file at which each begins, and behind which it ends.
    """

    def __init__(self, places: list[tuple[int, int, int, int]], count: int) -> None:
        self.places = places
        """First sample, file, begin and stop of each."""
        firsts, _, self.begins, self.stops = np.array(places, np.int64).reshape(-1, 4).T
        self.firsts: NDArray[np.int64] = np.append(firsts, count)

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the run of each sample."""
        return np.searchsorted(self.firsts, ids, "right") - 1


def runs_of(index: SampleIndex, sample_bytes: int | None) -> Runs:
    """Return the runs of an index; `sample_bytes` where all samples have one size.

    `meta.json` is trusted where first and last rows agree with it, so that a large index is not
    read; of other indexes every row is.
    """
    rows, meta = index.sample_locations, index.meta
    found: list[tuple[int, int, int, int]] = []
    if meta is None:
        found += _scanned(rows, 0, len(rows))
    elif len(rows):
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
    runs = Runs(found, len(rows))
    _check_runs(index, runs, sample_bytes)
    return runs


def _check_runs(index: SampleIndex, runs: Runs, sample_bytes: int | None) -> None:
    """Raise where a run does not lie in a file, or does not have the bytes of its samples."""
    sizes = [_size_of(index, file) for file in range(len(index.file_locations))]
    for (first, file, begin, stop), behind in zip(
        runs.places, runs.firsts[1:].tolist(), strict=True
    ):
        whole = stop - begin if sample_bytes is None else (behind - first) * sample_bytes
        is_there = 0 <= file < len(sizes) and 0 <= begin <= stop <= sizes[file]
        if not is_there or stop - begin != whole:
            raise index.damaged(
                f"samples {first:,} to {behind - 1:,} lie from byte {begin:,} to {stop:,} of "
                f"file {file:,}"
            )


def _size_of(index: SampleIndex, file: int) -> int:
    path = index.file_locations[file]
    if is_remote(path):
        return _LARGEST if index.meta is None else index.meta.files[file].size
    with suppress(OSError):
        return os.stat(path).st_size
    return _LARGEST  # The file is gone: reading it raises.


def _scanned(rows: NDArray[np.uint64], low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield first sample, file, begin and stop of each run among some samples."""
    if low == high:
        return
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
    kind: np.dtype[Any],
) -> NDArray[Any]:
    """Return the items at places of runs.

    Items are rows of tokens as one value each (`V…`), which NumPy copies as a whole.
    """
    out = np.empty(len(runs), kind)
    if len(runs) <= _FEW:
        # Of many runs, as like as not: to sort them costs more than to copy one by one.
        found = {run: items_of(run) for run in set(runs.tolist())}
        for row, (run, place) in enumerate(zip(runs.tolist(), places.tolist(), strict=True)):
            out[row : row + 1] = found[run][place : place + 1]
        return out
    order = np.argsort(runs, kind="stable")
    ordered = runs[order]
    for which in np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1):
        out[which] = items_of(int(runs[which[0]]))[places[which]]
    return out
