"""What an index says of its tokens: their type, whether it is whole, and where samples lie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import CorruptIndexError, ObjectNotFoundError, OptionError, PenstockError
from penstock.index import DOCUMENT_FILES, rebuilding
from penstock.storage import is_remote

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from penstock.index import Meta, SampleIndex

_META = "meta.json"
_OFFSETS = DOCUMENT_FILES[0]
_KINDS = ("tokens", "samples")
"""Of indexes that may be of tokens; the second is what a custom indexer writes."""
_SCANNED = 1 << 20
_LARGEST = 2**63 - 1


def dtype_of(meta: Meta | None, asked: DTypeLike | None) -> np.dtype[Any]:
    """Return the dtype of an index, or else the one that was asked for."""
    if meta is not None and meta.kind not in _KINDS:
        raise CorruptIndexError(
            f"this is an index of {meta.kind}, not of tokens. Open it with penstock.open(), or "
            "tokenise first: penstock tokenize SRC DST"
        )
    try:
        wanted = np.dtype(np.uint16 if asked is None else asked).newbyteorder("<")
    except (TypeError, ValueError, SyntaxError):
        raise OptionError(
            f"token_dtype={asked!r} is no type of NumPy: give 'uint16' or 'uint32'."
        ) from None
    if not np.issubdtype(wanted, np.integer):
        raise OptionError(
            f"token_dtype={wanted.name}: tokens are integers, as of uint16 or uint32."
        )
    if meta is None or (meta.tokens is None and meta.kind != "tokens"):
        return wanted
    known = _named(None if meta.tokens is None else meta.tokens.dtype)
    if asked is not None and wanted != known:
        raise OptionError(
            f"token_dtype={wanted.name}, but meta.json says that these tokens are {known.name}. "
            "Leave the argument out."
        )
    return known


def _named(name: str | None) -> np.dtype[Any]:
    """Return the dtype that `meta.json` names."""
    # NumPy parses what has commas and braces, and raises as parsers do.
    with suppress(TypeError, ValueError, SyntaxError):
        known = np.dtype(name).newbyteorder("<")  # None is that of floats.
        if known.kind in "iu":
            return known
    raise CorruptIndexError(
        f"meta.json says that these tokens are {name!r}, which is no type of integers: it is "
        "damaged. Copy it again, or tokenise again: penstock tokenize SRC DST --overwrite"
    )


def check_complete(index: SampleIndex) -> None:
    """Raise if the index has arrays beside tokens, or if files of it are missing.

    An index of data-forager has neither `meta.json` nor files of documents, and one of a
    `TokenizedSampleGenerator`, which notes no documents, has only the first.
    """
    if index.sample_schema is not None:
        raise CorruptIndexError(
            "these samples have extra arrays beside the tokens (sample_schema.json). Open them "
            "by penstock.open() or TokensWithAuxDataset."
        )
    names: set[str] = set()
    if index.origin is not None:
        with suppress(OSError):  # Gone by now, and what was loaded is mapped.
            names = set(os.listdir(index.origin.folder))
    there = [name for name in DOCUMENT_FILES if name in names]
    if index.meta is None and there and _META not in names:
        raise _incomplete(index, f"{_META} is missing, though {there[0]} is there")
    known = None if index.meta is None else index.meta.tokens
    if known is None or known.sample_size is None or index.documents is not None or not len(index):
        return
    if known.borders or (there and _OFFSETS not in names):
        raise _incomplete(index, f"{_OFFSETS} is missing", ObjectNotFoundError)


def _incomplete(
    index: SampleIndex, why: str, kind: type[PenstockError] = CorruptIndexError
) -> PenstockError:
    folder, base = "", "DST"
    if index.origin is not None:
        folder, base = index.origin.folder, index.origin.base
    return kind(
        f"the index{folder and f' in {folder}'} is damaged: {why}: an incomplete copy. Copy the "
        f"folder again, or tokenise again: {rebuilding(base, tokens=True)}",
        path=folder or None,
    )


def check_fits(index: SampleIndex, dtype: np.dtype[Any]) -> None:
    """Raise where `meta.json` and the index disagree, as far as a check is cheap."""
    meta = index.meta
    if meta is None or meta.tokens is None or not len(index):
        return
    size, item = meta.tokens.sample_size, dtype.itemsize
    tokens = meta.tokens.tokens if size is None else meta.records * size
    if tokens * item != meta.bytes:
        raise index.damaged(
            f"{_META} speaks of {tokens:,} tokens of {dtype.name}, which are {tokens * item:,} "
            f"bytes, and the samples have {meta.bytes:,}",
        )
    for number in (0, len(index) - 1):
        found = check_inside(index, number)
        if found % item if size is None else found != size * item:
            wanted = "whole tokens" if size is None else f"{size:,} tokens"
            raise index.damaged(
                f"{_META} says that samples are {wanted} of {dtype.name}, and sample {number:,} "
                f"has {found:,} bytes",
            )


def check_inside(index: SampleIndex, number: int) -> int:
    """Return the bytes of a sample; raise where its file ends before it does."""
    place = index[number]
    path, end = place.file_path, place.byte_offset + place.num_bytes
    if end > (there := _size_of(index, index.file_locations.index(path))):
        raise index.damaged(f"sample {number:,} ends at byte {end:,}, and {path} has {there:,}")
    return place.num_bytes


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
    _check_runs(index, found, sample_bytes)
    return Runs(found, len(rows))


def _check_runs(
    index: SampleIndex, places: list[tuple[int, int, int, int]], sample_bytes: int | None
) -> None:
    """Raise where a run does not lie in a file, or does not have the bytes of its samples."""
    sizes = [_size_of(index, file) for file in range(len(index.file_locations))]
    ends = [*(first for first, *_ in places[1:]), len(index)]
    for (first, file, begin, stop), behind in zip(places, ends[: len(places)], strict=True):
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
    first, (file, begin) = low, rows[low, :2].astype(np.int64).tolist()
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
