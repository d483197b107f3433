"""Samples of whole documents: a plan that fills them well, and the tokens gathered by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.index.tokens._pack import Ends, even_rows
from penstock.order import best_fit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from penstock.index.tokens._stream import TokenStream

_TOKENS_AT_ONCE = 1 << 21


class BestFitSamples:
    """Documents packed by `penstock.order.best_fit`; a sample lies in the file of its first one.

    The plan is held in memory: some 60 bytes a document. The tokens are not.
    """

    def __init__(self, stream: TokenStream, size: int, pad: int, scratch: Path) -> None:
        self._stream, self._size, self._pad = stream, size, pad
        lengths = stream.lengths()
        plan = best_fit(lengths, size)
        starts = np.cumsum(lengths) - lengths
        self._from = starts[plan.piece_document] + plan.piece_start
        self._lengths, self._offsets = plan.piece_length, plan.sample_offsets
        lasts = self._offsets[1:] - 1
        ended = plan.piece_start[lasts] + plan.piece_length[lasts]
        self._goes_on = ended < lengths[plan.piece_document[lasts]]
        first = plan.piece_document[self._offsets[:-1]]
        files = np.searchsorted(stream.file_documents, first, side="right") - 1
        self.counts: NDArray[np.int64] = np.bincount(files, minlength=stream.files)
        self._borders = np.cumsum([0, *self.counts.tolist()])
        self.tokens, self.dropped = stream.tokens, 0
        self.padding = (len(self._offsets) - 1) * size - stream.tokens
        self._tokens = stream.mapped(scratch)

    def write(self, file: int, out: BinaryIO) -> None:
        """Write a token file."""
        start, stop = self._borders[[file, file + 1]].tolist()
        step = max(1, _TOKENS_AT_ONCE // self._size)
        starts = range(start, stop, step)
        out.writelines(self._gathered(at, min(stop, at + step)).data for at in starts)

    def _gathered(self, start: int, stop: int) -> NDArray[np.integer]:
        """Return the tokens of samples."""
        counts = np.diff(self._offsets[start : stop + 1])
        pieces = slice(int(self._offsets[start]), int(self._offsets[stop]))
        lengths = self._lengths[pieces]
        before = np.cumsum(lengths) - lengths
        samples = np.repeat(np.arange(stop - start), counts)
        # Pieces of a sample follow each other from its begin on.
        into = samples * self._size + before - np.repeat(before[_firsts(counts)], counts)
        each = np.arange(int(lengths.sum()))
        tokens = np.full((stop - start) * self._size, self._pad, self._stream.dtype)
        tokens[np.repeat(into - before, lengths) + each] = self._tokens[
            np.repeat(self._from[pieces] - before, lengths) + each
        ]
        return tokens

    def rows(self, file: int) -> Iterator[NDArray[np.int64]]:
        """Yield offset and bytes of the samples in a token file: int64[k, 2]."""
        return even_rows(int(self.counts[file]), self._size * self._stream.dtype.itemsize)

    def ends(self) -> Iterator[Ends]:
        """Yield where documents end."""
        total = len(self._offsets) - 1
        for start in range(0, total, _TOKENS_AT_ONCE):
            stop = min(total, start + _TOKENS_AT_ONCE)
            counts = np.diff(self._offsets[start : stop + 1])
            lengths = self._lengths[int(self._offsets[start]) : int(self._offsets[stop])]
            ends = np.cumsum(lengths)
            before = (ends - lengths)[_firsts(counts)]
            yield Ends(
                ends - np.repeat(before, counts),
                self._offsets[start + 1 : stop + 1],
                self._goes_on[start:stop],
            )


def _firsts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each group of so many begins."""
    return np.cumsum(counts) - counts
