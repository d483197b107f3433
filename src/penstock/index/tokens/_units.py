"""Tokenising as units of work, and the tokens of all units as one stream."""

from __future__ import annotations

import mmap
import time
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from penstock.index._parts import LongLine, PartsUnit, opened_lines, parts_of
from penstock.index._scan import LineScanner
from penstock.index.checked._checks import Aside  # noqa: TC001 (msgspec reads it)
from penstock.index.tokens._documents import DocumentMaker, TokenWork
from penstock.work import UnitResults, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from numpy.typing import NDArray

    from penstock.index._listing import Listing
    from penstock.index.checked._checks import BadLine
    from penstock.storage import Draft
    from penstock.work import Shared, View

_LENGTH = np.dtype("<i8")
_DOCUMENTS_AT_ONCE = 1 << 20
_BETWEEN_LOOKS = 0.2
_AT_ONCE = 64
"""Units that may be under way at a time; they begin in order."""


class TokensFound(msgspec.Struct):
    """What became of a part of a file."""

    documents: Annotated[int, msgspec.Meta(ge=0)]
    tokens: Annotated[int, msgspec.Meta(ge=0)]
    aside: list[Aside]
    newlines: int


@dataclass(frozen=True)
class TokenUnit(PartsUnit):
    """Parts that are tokenised; the result is tokens, int64[documents] lengths, `TokensFound`s."""

    shared: Shared[TokenWork]

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        all_lengths: list[NDArray[np.int64]] = []

        def add(tokens: NDArray[np.integer], lengths: NDArray[np.int64]) -> None:
            draft.write(np.ascontiguousarray(tokens).view(np.uint8).data)
            all_lengths.append(lengths)

        found = []
        for part in self.parts:
            maker = DocumentMaker(self.shared.value, part.found, add)
            with opened_lines(part, advance) as lines:
                for piece in lines:
                    if not isinstance(piece, LongLine):  # None is too long here.
                        maker.add(piece)
            counts = maker.documents, maker.tokens
            found.append(TokensFound(*counts, maker.aside, lines.newlines))
        for lengths in all_lengths:
            draft.write(lengths.astype(_LENGTH, copy=False).tobytes())
        self.describe(draft, found)

    def found(self) -> list[TokensFound]:
        return self.opened(list[TokensFound])[2]

    def result_of(self, dtype: np.dtype[np.integer]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the tokens of all documents, and the length of each document."""
        data, size, parts = self.opened(list[TokensFound])
        count = sum(part.tokens for part in parts)
        documents = sum(part.documents for part in parts)
        if count * dtype.itemsize + documents * _LENGTH.itemsize > size:
            raise self.damaged("its description names other tokens than it holds")
        lengths = np.frombuffer(data, _LENGTH, documents, count * dtype.itemsize)
        return np.frombuffer(data, dtype, count), lengths


def token_units(
    listing: Listing, folder: str, shared: Shared[TokenWork], unit_bytes: int
) -> list[TokenUnit]:
    """Return units of about equal size: large files in several, small ones together."""
    scanner, results = LineScanner(), UnitResults(folder)
    parts = [
        part for found in listing.files for part in parts_of(found, 0, scanner, unit_bytes, None)
    ]
    return [
        TokenUnit(results, number, group, shared)
        for number, group in enumerate(grouped(parts, unit_bytes))
    ]


class UnitCounter:
    """Passes the progress of units on to a view.

    `count` of a view that has it is called with the documents and tokens of units that are done.
    """

    def __init__(self, view: View, units: Sequence[TokenUnit]) -> None:
        self._view, self._waiting, self._due = view, [*units], 0.0
        self._count: Callable[[int, int], object] | None = getattr(view, "count", None)

    def advance(self, count: int) -> None:
        """Count bytes, as `run_units` reports them."""
        self._view.add(count)
        if (now := time.monotonic()) >= self._due:
            self._due = now + _BETWEEN_LOOKS
            self.look(_AT_ONCE)

    def look(self, most: int | None = None) -> None:
        """Count what is done of the first units that were not done before; of all by default."""
        for unit in self._waiting[:most]:
            if self._count is not None and unit.is_done():
                self._waiting.remove(unit)
                found = unit.found()
                documents = sum(part.documents for part in found)
                self._count(documents, sum(part.tokens for part in found))


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
        # Of the parts of each file: the unit, the first token in the stream, documents in the unit.
        self._places: list[list[tuple[int, int, range]]] = [[] for _ in listing.files]
        numbers = {found.path: number for number, found in enumerate(listing.files)}
        tokens, documents = np.zeros((2, len(listing.files) + 1), np.int64)
        newlines = [0] * len(listing.files)
        for number, unit in enumerate(units):
            start, first = self._starts[-1], 0
            for of, part in zip(unit.parts, unit.found(), strict=True):
                file = numbers[of.found.path]
                documents_here = range(first, first + part.documents)
                self._places[file].append((number, start, documents_here))
                start += part.tokens
                first += part.documents
                tokens[file + 1] += part.tokens
                documents[file + 1] += part.documents
                name = listing.relative(of.found)
                self.aside += [bad.in_file(name, newlines[file]) for bad in part.aside]
                newlines[file] += part.newlines
            self._starts.append(start)
        self.file_tokens: NDArray[np.int64] = np.cumsum(tokens)
        """Tokens before each file, and all of them."""
        self.file_documents: NDArray[np.int64] = np.cumsum(documents)
        """Documents before each file, and all of them."""
        self.tokens, self.documents = self._starts[-1], int(self.file_documents[-1])
        self.files = len(listing.files)
        self._opened = lru_cache(2)(lambda number: units[number].result_of(dtype))

    def copy(self, start: int, stop: int, out: BinaryIO) -> None:
        """Write tokens of the stream to a file."""
        number = bisect_right(self._starts, start) - 1
        while start < stop:
            first = self._starts[number]
            until = min(stop, self._starts[number + 1])
            out.write(self._opened(number)[0][start - first : until - first].data)
            start = until
            number += 1

    def documents_of(self, file: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield where in the stream documents of a file begin, and the lengths of many."""
        for unit, first, documents in self._places[file]:
            start = first
            for at in documents[::_DOCUMENTS_AT_ONCE]:
                until = min(documents.stop, at + _DOCUMENTS_AT_ONCE)
                lengths = self._opened(unit)[1][at:until]
                yield start, lengths
                start += int(lengths.sum())

    def all_documents(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        return chain.from_iterable(map(self.documents_of, range(self.files)))

    def lengths(self) -> NDArray[np.int64]:
        """Return the length of every document."""
        # Copied one by one: each is a view of a map, and all of them would be too many open files.
        lengths, at = np.empty(self.documents, np.int64), 0
        for _, some in self.all_documents():
            lengths[at : at + len(some)] = some
            at += len(some)
        return lengths

    def mapped(self, scratch: Path) -> NDArray[np.integer]:
        """Return all tokens as one map; `scratch` is written for it, unless one unit has all."""
        full = [n for n in range(len(self._units)) if self._starts[n] < self._starts[n + 1]]
        if len(full) <= 1:
            return self._opened(full[0])[0] if full else np.empty(0, self.dtype)
        with scratch.open("w+b") as file:
            self.copy(0, self.tokens, file)
            file.flush()
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), self.dtype)
