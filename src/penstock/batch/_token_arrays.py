"""Rows of tokens into inputs and labels of a language model: plain arrays, no loop over rows.

A row has `width` places. A model sees the first `length`; a row that is one wider holds the token
after them, too. The first `lengths[b]` places of row b hold tokens, the others are padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Numbers = NDArray[np.int64]
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.batch._batch import Batch
    from penstock.batch._encoder import BatchPosition
    from penstock.batch._tokens import Tokens
    from penstock.datasets import TokenSource


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
        """Return a row for each of `rows` (int64[B]): that of here, or for -1 an empty one.

        >>> few = TokenRows(
        ...     np.array([[7, 8]]), np.array([2]), DocumentEnds(np.array([2]), np.array([0, 1]))
        ... )
        >>> more = few.filled(np.array([-1, 0]))
        >>> more.tokens.tolist(), more.lengths.tolist(), more.ends.offsets.tolist()
        ([[0, 0], [7, 8]], [0, 2], [0, 0, 1])
        """
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


class Segments(NamedTuple):
    """The documents of a batch whose rows stand one after the other."""

    position_ids: Numbers
    """How far each place is from the beginning of its document, int64[B, length]."""
    cu_seqlens: NDArray[np.int32]
    """Where documents begin, and the end of the last, int32[documents + 1]."""
    max_seqlen: int
    """Places of the longest."""


def segments(ends: DocumentEnds, length: int) -> Segments:
    """Return the documents in rows of `length` places; padding counts as a document.

    >>> found = segments(DocumentEnds(np.array([2, 3, 4]), np.array([0, 2, 3])), length=4)
    >>> found.position_ids.tolist(), found.cu_seqlens.tolist(), found.max_seqlen
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
    borders = np.append(starts, count * length).astype(np.int32)
    return Segments(places.reshape(count, length), borders, int(sizes.max(initial=0)))


class TokenDocuments:
    """`Tokens` over a token source: rows are read as tokens; the batch says where documents are."""

    has_even_rows = True
    fields: ClassVar[dict[str, pa.DataType]] = {}

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def read(self, source: TokenSource, ids: NDArray[np.int64]) -> TokenRows:
        """Return the rows of the source that `Tokens.bind` returned."""
        return self._tokens.rows(source, ids)

    def arrays(self, rows: TokenRows, where: BatchPosition) -> dict[str, Any]:
        """Return plain arrays, owned and writable."""
        del where
        return self._tokens.arrays_of(rows)

    def batch(
        self,
        arrays: Mapping[str, Any],
        where: BatchPosition,
        valid: NDArray[np.bool_] | None = None,
    ) -> Batch:
        """Return the batch of arrays."""
        return self._tokens.batch(arrays, where, valid)

    def describe(self) -> str:
        """Return what a batch is."""
        return self._tokens.describe()


class TokenWindows(TokenDocuments):
    """The same without documents: every array has a row for each record, so that it can be cut."""

    def part(self, arrays: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
        """Return some rows of what `arrays` made, without a copy."""
        return {name: array[start:stop] for name, array in arrays.items()}
