"""Block order: blocks permuted over the whole dataset, records permuted inside windows of them."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.order._permutation import Permutation, keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANES = 64
"""A power of two, so that every smaller power of two, as a world size, divides it."""
WINDOW_BLOCKS = 2 * LANES
"""Blocks in a window, over all lanes: with blocks of 1 MiB some 256 MiB are open at a time (windows
begin and end inside blocks), and the records of a batch come from a hundred blocks and more."""
WINDOW_RECORDS = 65_536
"""A window has at least this many records: small blocks are cheap to hold."""
_PIECE = 4096
"""Records of one lane that are computed in one call of NumPy."""
_SHEET = _PIECE * LANES
"""Positions that are cached together: a piece of every lane."""
_SHEETS = 2
"""Sheets that are cached (4 MiB): a reader that moves forward computes each number once."""
_WINDOWS = 2 * LANES
"""Permutations of windows that are cached, since a window may span several pieces."""


def window_records(records: int, blocks: int) -> int:
    """Return how many records a window has, over all lanes, if `blocks` blocks are not empty."""
    return max(WINDOW_BLOCKS * -(-records // max(1, blocks)), WINDOW_RECORDS)


class BlockOrder:
    """The numbers below `borders[-1]`, in an order that has few blocks open at a time.

    The blocks, in random order, lie on a *tape*. The tape is cut into `LANES` equal parts, and
    position i of the order belongs to lane `i % LANES`: the lanes advance together, and any run of
    positions takes equally much (within one) of each. A lane goes through its part of the tape
    window by window, in random order inside a window. The windows of different lanes end at
    different times, so that new blocks are needed a few at a time.

    Lane x is the part of the tape whose number is x with its bits reversed. The lanes r, r + w,
    r + 2 w … that rank r of w takes (w a power of two) are then one stretch of the tape, and no
    more than w - 1 blocks, those across a border of two stretches, are read by two ranks. Every
    other part of the tape is read backwards: both neighbours of a border reach it at the same
    time, the beginning or the end of the epoch, and the block across it is open once.
    """

    def __init__(self, borders: NDArray[np.int64], seed: int, epoch: int, version: int) -> None:
        self.length = int(borders[-1])
        sizes = np.diff(borders)
        full = np.flatnonzero(sizes)
        numbers = (version, self.length, seed, epoch)
        key, blocks_key = keys("block order", *numbers, count=2)
        permuted = full[Permutation(len(full), blocks_key).positions(0, len(full))]
        self._block_starts = borders[permuted]
        self._tape_starts = np.cumsum(sizes[permuted]) - sizes[permuted]
        self._window = window_records(self.length, len(full)) // LANES
        self._lane_lengths = (self.length - 1 - np.arange(LANES)) // LANES + 1
        self._lane_starts = _lane_starts(self._lane_lengths)
        # Used by any number of threads, as are these caches.
        self._sheet = lru_cache(_SHEETS)(_empty_sheet)
        self._permutation = lru_cache(_WINDOWS)(partial(_of_window, key))

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers that stand at positions (int64[n], inside the order), int64[n]."""
        sheets = positions // _SHEET
        numbers = np.empty_like(positions)
        for sheet in np.unique(sheets).tolist():
            own = sheets == sheet
            numbers[own] = self._on_sheet(sheet, positions[own] % _SHEET)
        return numbers

    def _on_sheet(self, number: int, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers in cells (int64[n]) of a stretch of the order, int64[n]."""
        sheet, known = self._sheet(number)
        asked = np.bincount(cells % LANES, minlength=LANES) > 0
        lanes = np.flatnonzero(asked & ~known)
        if lanes.size:
            tape = [self._in_lane(lane, number * _PIECE) for lane in lanes.tolist()]
            ends = np.cumsum([len(one) for one in tape])
            found = np.split(self._numbers(np.concatenate(tape)), ends[:-1])
            for lane, part in zip(lanes.tolist(), found, strict=True):
                sheet[: len(part), lane] = part
            # Last: another thread takes the numbers of a lane as soon as it is known.
            known[lanes] = True
        return sheet.reshape(-1)[cells]

    def _in_lane(self, lane: int, start: int) -> NDArray[np.int64]:
        """Return where on the tape the records of a lane are from a row on, int64[≤ _PIECE]."""
        length = int(self._lane_lengths[lane])
        stop = min(start + _PIECE, length)
        parts = []
        # The first window of a lane is shorter, each by another amount.
        early = self._window - self._window * (lane + 1) // LANES
        while start < stop:
            number = (start + early) // self._window
            first = max(0, number * self._window - early)
            last = min((number + 1) * self._window - early, length)
            window = self._permutation(lane, number, last - first)
            upto = min(stop, last)
            parts.append(first + window.positions(start - first, upto - first))
            start = upto
        places = np.concatenate(parts)
        begin = int(self._lane_starts[lane])
        return begin + (length - 1 - places if _part(lane) % 2 else places)

    def _numbers(self, tape: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what lies on the tape at places (int64[n]), int64[n]."""
        block = np.searchsorted(self._tape_starts, tape, side="right") - 1
        numbers: NDArray[np.int64] = self._block_starts[block] + (tape - self._tape_starts[block])
        return numbers


def _of_window(key: int, lane: int, window: int, length: int) -> Permutation:
    return Permutation(length, key, window * LANES + lane)


def _empty_sheet(_number: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a stretch of the order, a column a lane, and which lanes are filled: none yet."""
    return np.empty((_PIECE, LANES), np.int64), np.zeros(LANES, dtype=bool)


def _lane_starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where on the tape the part of each lane begins, int64[LANES]."""
    # Reversing twice changes nothing: part p of the tape is lane p reversed.
    lanes = [_part(part) for part in range(LANES)]
    starts = np.empty(LANES, np.int64)
    starts[lanes] = np.cumsum(lengths[lanes]) - lengths[lanes]
    return starts


def _part(lane: int) -> int:
    """Return which part of the tape a lane is: its number with the bits reversed."""
    bits = LANES.bit_length() - 1
    return int(f"{lane:0{bits}b}"[::-1], 2)
