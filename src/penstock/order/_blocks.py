"""Block order: blocks permuted over the whole dataset, records permuted inside windows of them."""

from __future__ import annotations

import itertools
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
        self._key, blocks_key = keys("block order", *numbers, count=2)
        permuted = full[Permutation(len(full), blocks_key).positions(0, len(full))]
        self._block_starts = borders[permuted]
        self._tape_starts = np.cumsum(sizes[permuted]) - sizes[permuted]
        self._window = window_records(self.length, len(full)) // LANES
        self._lane_lengths = (self.length - 1 - np.arange(LANES)) // LANES + 1
        self._lane_starts = _lane_starts(self._lane_lengths)
        self._sheets: dict[int, _Sheet] = {}
        self._windows: dict[tuple[int, int], Permutation] = {}

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers that stand at positions (int64[n], inside the order), int64[n]."""
        sheets = positions // _SHEET
        if (sheets[1:] < sheets[:-1]).any():
            order = np.argsort(sheets, kind="stable")
            numbers = np.empty_like(positions)
            numbers[order] = self.at(positions[order])
            return numbers
        borders = [0, *(np.flatnonzero(np.diff(sheets)) + 1).tolist(), len(positions)]
        parts = [
            self._on_sheet(int(sheets[start]), positions[start:stop])
            for start, stop in itertools.pairwise(borders)
            if start < stop
        ]
        return np.concatenate([*parts, positions[:0]])

    def _on_sheet(self, number: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        cells = positions - number * _SHEET
        return self._sheet(number, cells)[cells]

    def _sheet(self, number: int, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a stretch of the order, int64[_SHEET], right at least at the cells given."""
        sheet = self._sheets.get(number)
        if sheet is None:
            if len(self._sheets) >= _SHEETS:
                # A new dict: `clear` could empty the one that another thread uses.
                self._sheets = {}
            sheet = self._sheets[number] = _Sheet()
        asked = np.bincount(cells % LANES, minlength=LANES) > 0
        lanes = np.flatnonzero(asked & ~sheet.known)
        if lanes.size:
            tape = [self._piece(lane, number * _PIECE) for lane in lanes.tolist()]
            found = self._numbers(np.concatenate(tape))
            for lane, part in zip(
                lanes.tolist(), np.split(found, np.cumsum([len(one) for one in tape])), strict=False
            ):
                sheet.numbers[: len(part), lane] = part
            # Last: another thread takes the numbers of a lane as soon as it is known.
            sheet.known[lanes] = True
        return sheet.numbers.reshape(-1)

    def _piece(self, lane: int, start: int) -> NDArray[np.int64]:
        """Return where on the tape the records of a lane are from a row on, int64[≤ _PIECE]."""
        stop = min(start + _PIECE, int(self._lane_lengths[lane]))
        return self._on_tape(lane, self._in_lane(lane, start, stop))

    def _in_lane(self, lane: int, start: int, stop: int) -> NDArray[np.int64]:
        """Return the places in its lane that stand at rows `start` … `stop - 1` of the lane."""
        parts = []
        # The first window of a lane is shorter, each by another amount.
        early = self._window - self._window * (lane + 1) // LANES
        while start < stop:
            number = (start + early) // self._window
            first = max(0, number * self._window - early)
            last = min((number + 1) * self._window - early, int(self._lane_lengths[lane]))
            window = self._permutation(lane, number, last - first)
            upto = min(stop, last)
            parts.append(first + window.positions(start - first, upto - first))
            start = upto
        return np.concatenate(parts)

    def _permutation(self, lane: int, window: int, length: int) -> Permutation:
        found = self._windows.get((lane, window))
        if found is None:
            if len(self._windows) >= _WINDOWS:
                self._windows = {}
            found = Permutation(length, self._key, window * LANES + lane)
            self._windows[lane, window] = found
        return found

    def _on_tape(self, lane: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where on the tape the places of a lane (int64[n]) are, int64[n]."""
        start, length = int(self._lane_starts[lane]), int(self._lane_lengths[lane])
        return start + (length - 1 - places if _part(lane) % 2 else places)

    def _numbers(self, tape: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what lies on the tape at places (int64[n]), int64[n]."""
        block = np.searchsorted(self._tape_starts, tape, side="right") - 1
        numbers: NDArray[np.int64] = self._block_starts[block] + (tape - self._tape_starts[block])
        return numbers


class _Sheet:
    """A stretch of the order as rows of all lanes; a lane is filled when it is first needed."""

    __slots__ = ("known", "numbers")

    def __init__(self) -> None:
        self.numbers = np.empty((_PIECE, LANES), np.int64)
        self.known = np.zeros(LANES, dtype=bool)


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
