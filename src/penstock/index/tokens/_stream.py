"""The tokens of all units as one stream."""

from __future__ import annotations

import mmap
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.index._bad_lines import BadLine
from penstock.index.tokens._units import TokenResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from penstock.index._listing import Listing
    from penstock.index.tokens._units import TokenUnit

_DOCUMENTS_AT_ONCE = 1 << 20


class DocumentRun(NamedTuple):
    """Documents that follow each other."""

    start: int
    """Of their tokens in the stream."""
    lengths: NDArray[np.int64]


class _PartPlace(NamedTuple):
    """Where the documents of a part lie."""

    unit: int
    start: int
    """Of its tokens in the stream."""
    first: int
    """Of its documents in the unit."""
    documents: int


class TokenStream:
    """The documents of all text files, in order."""

    def __init__(
        self, units: Sequence[TokenUnit], listing: Listing, dtype: np.dtype[np.integer]
    ) -> None:
        self.dtype = dtype
        self.aside: list[BadLine] = []
        """The lines that are no documents."""
        self._units = units
        self._starts = [0]
        self._places: list[list[_PartPlace]] = [[] for _ in listing.files]
        numbers = {found.path: number for number, found in enumerate(listing.files)}
        tokens, documents = np.zeros((2, len(listing.files) + 1), np.int64)
        newlines = [0] * len(listing.files)
        for number, unit in enumerate(units):
            start, first = self._starts[-1], 0
            for of, part in zip(unit.parts, unit.found(), strict=True):
                file = numbers[of.found.path]
                self._places[file].append(_PartPlace(number, start, first, part.documents))
                start += part.tokens
                first += part.documents
                tokens[file + 1] += part.tokens
                documents[file + 1] += part.documents
                name, before = listing.relative(of.found), newlines[file] + 1
                self.aside += [
                    BadLine(name, before + bad.newlines, bad.offset, bad.size, bad.reason)
                    for bad in part.aside
                ]
                newlines[file] += part.newlines
            self._starts.append(start)
        self.file_tokens: NDArray[np.int64] = np.cumsum(tokens)
        """Tokens before each file, and all of them."""
        self.file_documents: NDArray[np.int64] = np.cumsum(documents)
        """Documents before each file, and all of them."""
        self._opened = lru_cache(2)(self._open)

    @property
    def tokens(self) -> int:
        """How many."""
        return self._starts[-1]

    @property
    def documents(self) -> int:
        """How many."""
        return int(self.file_documents[-1])

    @property
    def files(self) -> int:
        """How many text files."""
        return len(self.file_documents) - 1

    def copy(self, start: int, stop: int, out: BinaryIO) -> None:
        """Write tokens of the stream to a file."""
        number = bisect_right(self._starts, start) - 1
        while start < stop:
            first = self._starts[number]
            until = min(stop, self._starts[number + 1])
            out.write(self._opened(number).tokens[start - first : until - first].data)
            start = until
            number += 1

    def documents_of(self, file: int) -> Iterator[DocumentRun]:
        """Yield where the documents of a file are, many at a time."""
        for place in self._places[file]:
            start, at, stop = place.start, place.first, place.first + place.documents
            while at < stop:
                until = min(stop, at + _DOCUMENTS_AT_ONCE)
                lengths = self._opened(place.unit).lengths[at:until]
                yield DocumentRun(start, lengths)
                start += int(lengths.sum())
                at = until

    def all_documents(self) -> Iterator[DocumentRun]:
        """Yield where all documents are, many at a time."""
        for file in range(self.files):
            yield from self.documents_of(file)

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of every document."""
        lengths, at = np.empty(self.documents, np.int64), 0
        for some in self.all_documents():
            lengths[at : at + len(some.lengths)] = some.lengths
            at += len(some.lengths)
        return lengths

    def mapped(self, scratch: Path) -> NDArray[np.integer]:
        """Return all tokens as one map; `scratch` is written for it, unless one unit has all."""
        full = [n for n in range(len(self._units)) if self._starts[n] < self._starts[n + 1]]
        if len(full) <= 1:
            return self._opened(full[0]).tokens if full else np.empty(0, self.dtype)
        with scratch.open("w+b") as file:
            self.copy(0, self.tokens, file)
            file.flush()
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), self.dtype)

    def _open(self, number: int) -> TokenResult:
        return TokenResult(self._units[number], self.dtype)
