"""Which documents lie together in samples of one size: best fit, the longest first."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

import numpy as np

from penstock.errors import OptionError
from penstock.order._whole import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Packing(NamedTuple):
    """Samples as pieces of documents; sample i has those from `sample_offsets[i]` to `[i + 1]`."""

    piece_document: NDArray[np.int64]
    """int64[p]: number of the document that each piece is of; ascending within a sample."""
    piece_start: NDArray[np.int64]
    """int64[p]: where in its document each piece begins."""
    piece_length: NDArray[np.int64]
    """int64[p]: tokens of each piece, at least 1."""
    sample_offsets: NDArray[np.int64]
    """int64[samples + 1]: the number of each sample's first piece; the last is p."""


def best_fit(lengths: NDArray[np.int64], size: SupportsIndex) -> Packing:
    """Return a plan that packs documents, of these lengths, into samples of at most `size`.

    A document that fits into a sample stays whole. Each full `size` of a longer one is a sample of
    its own, and only the rest is packed. The longest go first, each into the sample that it fills
    best. Samples come in the order of their first documents, so that documents in one sample were
    close to each other. The plan is a pure function of its arguments.

    >>> plan = best_fit([3, 12, 2, 5], 5)
    >>> plan.sample_offsets.tolist()
    [0, 2, 3, 4, 5, 6]
    >>> plan.piece_document.tolist()
    [0, 1, 1, 1, 2, 3]
    >>> plan.piece_start.tolist(), plan.piece_length.tolist()
    ([0, 10, 0, 5, 0, 0], [3, 2, 5, 5, 2, 5])
    """
    size = whole_number("size", size, least=1)
    lengths = np.asarray(lengths, np.int64)
    if lengths.size and int(lengths.min()) < 0:
        number = int(lengths.argmin())
        raise OptionError(f"Document {number} has {lengths[number]} tokens: expected 0 or more.")
    chunks, rests = np.divmod(lengths, size)
    packed = np.flatnonzero(rests)
    bins = _bins_of(rests[packed], size)
    return _in_order(chunks, rests, packed, bins, size)


def _bins_of(lengths: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the bin of each item, all of them shorter than `size`.

    All items of one length are placed at once. The first of them goes into the bin with the least
    room that is enough, and the next ones too until its room is not: then it is the turn of the
    next bin. So a length is a few steps, each with all the bins of one room.
    """
    # Small numbers are sorted by their digits, which takes a fraction of the time.
    order = np.argsort(lengths.astype(np.min_scalar_type(size)), kind="stable")
    counts = np.bincount(lengths, minlength=1)
    firsts = np.cumsum(counts) - counts
    bins = np.empty(len(lengths), np.int64)
    """The bin of each item, by length; of one length, by number."""
    room = _Room()
    opened = 0
    for length in np.flatnonzero(counts)[::-1].tolist():
        place = int(firsts[length])
        left = int(counts[length])
        while left:
            taken = room.least(length, left)
            if taken is None:
                many = -(-left // (size // length))
                taken = size, np.arange(opened, opened + many)
                opened += many
            before, chosen = taken
            each = before // length
            placed = min(left, len(chosen) * each)
            bins[place : place + placed] = np.repeat(chosen, each)[:placed]
            filled, over = divmod(placed, each)
            room.add(before - each * length, chosen[:filled])
            room.add(before - over * length, chosen[filled:])
            place += placed
            left -= placed
    by_number = np.empty_like(bins)
    by_number[order] = bins
    return by_number


class _Room:
    """The bins that are not full, by how much room they have."""

    def __init__(self) -> None:
        self._rooms: list[int] = []
        self._bins: dict[int, list[NDArray[np.int64]]] = {}

    def add(self, room: int, bins: NDArray[np.int64]) -> None:
        """Add bins that have so much room."""
        if not room or not len(bins):
            return
        if room in self._bins:
            self._bins[room].append(bins)
        else:
            self._bins[room] = [bins]
            insort(self._rooms, room)

    def least(self, length: int, items: int) -> tuple[int, NDArray[np.int64]] | None:
        """Take bins of the least room that is enough, no more than so many items can use."""
        place = bisect_left(self._rooms, length)
        if place == len(self._rooms):
            return None
        room = self._rooms[place]
        parts = self._bins[room]
        # Many bins, of which every length takes a few, are not copied each time.
        bins = parts[0] if len(parts) == 1 else np.concatenate(parts)
        useful = -(-items // (room // length))
        if useful < len(bins):
            self._bins[room] = [bins[useful:]]
        else:
            del self._rooms[place], self._bins[room]
        return room, bins[:useful]


def _in_order(
    chunks: NDArray[np.int64],
    rests: NDArray[np.int64],
    packed: NDArray[np.int64],
    bins: NDArray[np.int64],
    size: int,
) -> Packing:
    """Return the plan: the full chunks of each document, and its rest where the bins have it."""
    chunk_document = np.repeat(np.arange(len(chunks)), chunks)
    chunk_number = np.arange(len(chunk_document)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
    # Of several values for one place the last stays, which is the bin's first document.
    first = np.empty(bins.max(initial=-1) + 1, np.int64)
    first[bins[::-1]] = packed[::-1]
    # A sample comes where its first piece would stand if every piece stood alone.
    pieces = chunks + (rests > 0)
    begins = np.cumsum(pieces) - pieces
    place = np.append(begins[chunk_document] + chunk_number, (begins + chunks)[first[bins]])
    order = np.argsort(place, kind="stable")
    samples = np.flatnonzero(np.diff(place[order], prepend=-1))
    return Packing(
        np.append(chunk_document, packed)[order],
        np.append(chunk_number, chunks[packed])[order] * size,
        np.append(np.full(len(chunk_number), size), rests[packed])[order],
        np.append(samples, len(order)),
    )
