"""Samples out of the stream of tokens: documents one after the other, or as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from penstock.index.tokens._stream import TokenStream

_ROWS_AT_ONCE = 1 << 16

PackingName = Literal["concat", "best_fit"]
Remainder = Literal["drop", "pad"]


@dataclass(frozen=True, slots=True)
class PackOptions:
    """What samples are."""

    size: int | None
    """Tokens; None: a sample is a document."""
    packing: PackingName
    remainder: Remainder
    pad: int | None
    """Stands where a sample is filled up."""


class Ends(NamedTuple):
    """Where documents end in the next samples: what `Documents` holds, but its first offset."""

    values: NDArray[np.int64]
    offsets: NDArray[np.int64]
    goes_on: NDArray[np.bool_]


class Samples(Protocol):
    """What becomes of a stream."""

    counts: NDArray[np.int64]
    """Samples in the token file of each text file."""
    tokens: int
    """In all samples, those that fill up not counted."""
    dropped: int
    padding: int

    def write(self, file: int, out: BinaryIO) -> None:
        """Write a token file."""
        ...

    def rows(self, file: int) -> Iterator[NDArray[np.int64]]:
        """Yield offset and bytes of the samples in a token file: int64[k, 2]."""
        ...

    def ends(self) -> Iterator[Ends]:
        """Yield where documents end, where samples have one size; nothing else."""
        ...


def samples_of(stream: TokenStream, options: PackOptions, scratch: Path) -> Samples:
    """Return the samples of a stream; `scratch` may be written on the way."""
    if options.size is None:
        return DocumentSamples(stream)
    if options.packing == "concat":
        pad = options.pad if options.remainder == "pad" else None
        return ConcatSamples(stream, options.size, pad)
    from penstock.index.tokens._best_fit import BestFitSamples  # noqa: PLC0415 (rarely needed)

    return BestFitSamples(stream, options.size, options.pad or 0, scratch)


class DocumentSamples:
    """A document is a sample."""

    def __init__(self, stream: TokenStream) -> None:
        self._stream = stream
        self.counts = np.diff(stream.file_documents)
        self.tokens, self.dropped, self.padding = stream.tokens, 0, 0

    def write(self, file: int, out: BinaryIO) -> None:
        """Write a token file."""
        start, stop = self._stream.file_tokens[[file, file + 1]].tolist()
        self._stream.copy(start, stop, out)

    def rows(self, file: int) -> Iterator[NDArray[np.int64]]:
        """Yield offset and bytes of the samples in a token file: int64[k, 2]."""
        first = int(self._stream.file_tokens[file])
        for some in self._stream.documents_of(file):
            rows = np.empty((len(some.lengths), 2), np.int64)
            rows[:, 1] = some.lengths
            rows[:, 0] = np.cumsum(some.lengths) - some.lengths + (some.start - first)
            yield rows * self._stream.dtype.itemsize

    def ends(self) -> Iterator[Ends]:
        """Yield nothing: a sample ends where its document does."""
        return iter(())


class ConcatSamples:
    """The stream, cut into samples; one lies in the file in whose documents it ends."""

    def __init__(self, stream: TokenStream, size: int, pad: int | None) -> None:
        self._stream, self._size = stream, size
        # Samples that end before each file does.
        self._borders = stream.file_tokens // size
        rest = stream.tokens % size
        self._fill = np.empty(0, stream.dtype)
        if rest and pad is not None:
            last = int(np.flatnonzero(np.diff(stream.file_documents))[-1])
            self._borders[last + 1 :] += 1
            self._fill = np.full(size - rest, pad, stream.dtype)
        self.padding = len(self._fill)
        self.dropped = 0 if self.padding else rest
        self.tokens = stream.tokens - self.dropped
        self.counts = np.diff(self._borders)

    def write(self, file: int, out: BinaryIO) -> None:
        """Write a token file."""
        start, stop = (self._borders[[file, file + 1]] * self._size).tolist()
        self._stream.copy(start, min(stop, self.tokens), out)
        if start < stop and stop > self.tokens:
            out.write(self._fill.data)

    def rows(self, file: int) -> Iterator[NDArray[np.int64]]:
        """Yield offset and bytes of the samples in a token file: int64[k, 2]."""
        return even_rows(int(self.counts[file]), self._size * self._stream.dtype.itemsize)

    def ends(self) -> Iterator[Ends]:
        """Yield where documents end."""
        size, done = self._size, 0
        for start, lengths in self._stream.all_documents():
            ends = start + np.cumsum(lengths)
            stop = min(int(ends[-1]), self.tokens)
            borders = np.arange((start // size + 1) * size, stop + 1, size)
            # Where documents or samples end, each place once.
            cuts = np.union1d(ends[ends <= stop], borders)
            yield Ends(
                cuts - (cuts - 1) // size * size,
                done + 1 + np.flatnonzero(cuts % size == 0),
                ~np.isin(borders, ends, assume_unique=True),
            )
            done += len(cuts)
        if self.padding:
            yield Ends(np.empty(0, np.int64), np.array([done]), np.zeros(1, bool))


def even_rows(count: int, size: int) -> Iterator[NDArray[np.int64]]:
    """Yield offset and bytes of samples that all have so many bytes."""
    for start in range(0, count, _ROWS_AT_ONCE):
        some = min(_ROWS_AT_ONCE, count - start)
        rows = np.full((some, 2), size, np.int64)
        rows[:, 0] *= np.arange(start, start + some)
        yield rows
