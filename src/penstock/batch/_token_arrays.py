"""Rows of tokens into inputs and labels of a language model: plain arrays, no loop over rows.

A row has `width` places. A model sees the first `length`; a row that is one wider holds the token
after them, too. The first `lengths[b]` places of row b hold tokens, the others are padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Numbers = NDArray[np.int64]

IGNORED = -100
"""The label that losses do not count, as torch's cross entropy has it."""


class DocumentEnds(NamedTuple):
    """Where documents end in each row: those of row b are `values[offsets[b] : offsets[b + 1]]`."""

    values: Numbers
    """The place behind a document's last token, ascending in each row."""
    offsets: Numbers
    """int64[B + 1]."""

    def rows(self) -> Numbers:
        """Return the row of each value."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


@dataclass(frozen=True, slots=True, eq=False)
class TokenRows:
    """Tokens as they were read; slices are rows that stand next to each other."""

    tokens: Array
    """Of any integer type, [B, width]."""
    lengths: Numbers
    """Real tokens of each row, int64[B]."""
    ends: DocumentEnds | None
    """Where documents end; None where that does not matter."""

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens."""
        return self.tokens.nbytes

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice) -> TokenRows:
        start, stop, _ = rows.indices(len(self))
        ends = self.ends
        if ends is not None:
            offsets = ends.offsets[start : stop + 1]
            ends = DocumentEnds(ends.values[offsets[0] : offsets[-1]], offsets - offsets[0])
        return TokenRows(self.tokens[start:stop], self.lengths[start:stop], ends)

    def filled(self, rows: Numbers) -> TokenRows:
        """Return a row for each of `rows` (int64[B]): that of here, or for -1 an empty one."""
        there = rows >= 0
        tokens = np.zeros((len(rows), *self.tokens.shape[1:]), self.tokens.dtype)
        lengths = np.zeros(len(rows), np.int64)
        tokens[there], lengths[there] = self.tokens[rows[there]], self.lengths[rows[there]]
        if self.ends is None:
            return TokenRows(tokens, lengths, None)
        counts = np.zeros(len(rows), np.int64)
        # Rows that exist keep their order.
        counts[there] = np.diff(self.ends.offsets)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return TokenRows(tokens, lengths, DocumentEnds(self.ends.values, offsets))


def ends_behind(tokens: Array, lengths: Numbers, eos: int) -> DocumentEnds:
    """Return the ends of documents that each end with a token, and of the last one in each row.

    >>> ends = ends_behind(np.array([[5, 0, 7, 8], [1, 2, 0, 0]]), np.array([4, 3]), eos=0)
    >>> ends.values.tolist(), ends.offsets.tolist()
    ([2, 4, 3], [0, 2, 3])
    """
    rows, width = tokens.shape
    row, place = np.divmod(np.flatnonzero(tokens == eos), width)
    is_real = place + 1 < lengths[row]
    # A row that ends in the middle of a document ends that piece of it.
    filled = np.flatnonzero(lengths)
    behind = (row * width + place)[is_real]
    row, place = np.divmod(np.sort(np.append(behind, filled * width + lengths[filled] - 1)), width)
    return DocumentEnds(place + 1, np.searchsorted(row, np.arange(rows + 1)))


def inputs_and_labels(rows: TokenRows, length: int, *, shift: bool) -> tuple[Numbers, Numbers]:
    """Return `input_ids` and `labels`, int64[B, length] each, in memory of their own.

    >>> rows = TokenRows(np.array([[1, 2, 3, 4], [5, 6, 0, 0]]), np.array([4, 2]), None)
    >>> inputs, labels = inputs_and_labels(rows, 3, shift=True)
    >>> inputs.tolist(), labels.tolist()
    ([[1, 2, 3], [5, 6, 0]], [[2, 3, 4], [6, -100, -100]])
    """
    tokens, lengths, ends = rows.tokens, rows.lengths, rows.ends
    inputs = tokens[:, :length].astype(np.int64)
    if not shift:
        labels = inputs.copy()
        _ignore_from(labels, lengths)
        return inputs, labels
    labels = np.empty_like(inputs)
    after = tokens[:, 1 : length + 1]
    labels[:, : after.shape[1]] = after
    labels[:, after.shape[1] :] = IGNORED
    _ignore_from(labels, lengths - 1)
    if ends is not None:
        # The last token of a document does not predict the next document.
        last = ends.values - 1
        inside = (last >= 0) & (last < length)
        labels[ends.rows()[inside], last[inside]] = IGNORED
    return inputs, labels


def _ignore_from(labels: Numbers, starts: Numbers) -> None:
    """Let the places of each row from its start on not count."""
    short = np.flatnonzero(starts < labels.shape[1])
    if len(short):
        beyond = np.arange(labels.shape[1]) >= starts[short, None]
        labels[short] = np.where(beyond, IGNORED, labels[short])


def segments(ends: DocumentEnds, length: int) -> dict[str, Any]:
    """Return the documents in rows of `length` places, which stand one after the other.

    `position_ids`, int64[B, length]: how far each place is from the beginning of its document;
    `cu_seqlens`, int32[documents + 1]: where documents begin, and the end of the last;
    `max_seqlen`: places of the longest. Padding counts as a document.

    >>> found = segments(DocumentEnds(np.array([2, 3, 4]), np.array([0, 2, 3])), length=4)
    >>> found["position_ids"].tolist(), found["cu_seqlens"].tolist(), found["max_seqlen"]
    ([[0, 1, 0, 0], [0, 1, 2, 3]], [0, 2, 3, 4, 8], 4)
    """
    count = len(ends.offsets) - 1
    inside = (ends.values > 0) & (ends.values < length)
    begins = np.zeros(count * length, np.bool_)
    begins[::length] = True
    begins[(ends.rows() * length + ends.values)[inside]] = True
    starts = np.flatnonzero(begins)
    sizes = np.diff(starts, append=count * length)
    places = np.arange(count * length) - np.repeat(starts, sizes)
    return {
        "position_ids": places.reshape(count, length),
        "cu_seqlens": np.append(starts, count * length).astype(np.int32),
        "max_seqlen": int(sizes.max(initial=0)),
    }
