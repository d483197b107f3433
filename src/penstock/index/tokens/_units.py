"""Tokenising as units of work; a unit publishes the tokens of its documents and their lengths."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec
import numpy as np

from penstock.index._line_pieces import LongLine
from penstock.index._parts import PartsUnit, opened_lines, parts_of
from penstock.index._scan import LineScanner
from penstock.index.checked._checks import Aside  # noqa: TC001 (msgspec reads it)
from penstock.index.tokens._documents import DocumentMaker, TokenWork
from penstock.work import UnitResults, View, grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.index._listing import Listing
    from penstock.index._parts import FilePart
    from penstock.storage import Draft
    from penstock.work import Shared

_LENGTH = np.dtype("<i8")
_BETWEEN_LOOKS = 0.2
_AT_ONCE = 64
"""Units that may be under way at a time; they begin in order."""


class TokensFound(msgspec.Struct):
    """What became of a part of a file."""

    documents: int
    tokens: int
    aside: list[Aside]
    newlines: int


@dataclass(frozen=True)
class TokenUnit(PartsUnit):
    """Parts that are tokenised; the result is tokens, int64[documents] lengths, `TokensFound`s."""

    shared: Shared[TokenWork]

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        """Tokenise all parts."""
        all_lengths: list[NDArray[np.int64]] = []

        def add(tokens: NDArray[np.integer], lengths: NDArray[np.int64]) -> None:
            draft.write(np.ascontiguousarray(tokens).view(np.uint8).data)
            all_lengths.append(lengths)

        found = [self._tokenised(part, add, advance) for part in self.parts]
        for lengths in all_lengths:
            draft.write(lengths.astype(_LENGTH, copy=False).tobytes())
        self.describe(draft, found)

    def _tokenised(
        self,
        part: FilePart,
        add: Callable[[NDArray[np.integer], NDArray[np.int64]], object],
        advance: Callable[[int], object],
    ) -> TokensFound:
        maker = DocumentMaker(self.shared.value, part.found, add)
        with opened_lines(part, advance) as lines:
            for piece in lines:
                if not isinstance(piece, LongLine):  # None is too long here.
                    maker.add(piece)
        return TokensFound(maker.documents, maker.tokens, maker.aside, lines.newlines)

    def found(self) -> list[TokensFound]:
        """Return what became of each part."""
        return self.opened(list[TokensFound]).described


class TokenResult:
    """The result of a `TokenUnit`."""

    def __init__(self, unit: TokenUnit, dtype: np.dtype[np.integer]) -> None:
        data, size, parts = unit.opened(list[TokensFound])
        count = sum(part.tokens for part in parts)
        documents = sum(part.documents for part in parts)
        least = min((number for one in parts for number in (one.tokens, one.documents)), default=0)
        if least < 0 or count * dtype.itemsize + documents * _LENGTH.itemsize > size:
            raise unit.damaged("its description names other tokens than it holds")
        self.tokens: NDArray[np.integer] = np.frombuffer(data, dtype, count)
        """Of all documents."""
        self.lengths: NDArray[np.int64] = np.frombuffer(
            data, _LENGTH, documents, count * dtype.itemsize
        )
        """Of each document."""


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


@runtime_checkable
class TokenView(View, Protocol):
    """A view of bytes that also counts documents and tokens, whenever a unit of them is done."""

    def count(self, documents: int, tokens: int) -> object:
        """Count documents that are done, and their tokens."""
        ...


class UnitCounter:
    """Passes the progress of units on to a view."""

    def __init__(self, view: View, units: Sequence[TokenUnit]) -> None:
        self._view = view
        self._waiting = {unit.number: unit for unit in units} if isinstance(view, TokenView) else {}
        self._due = 0.0

    def advance(self, count: int) -> None:
        """Count bytes, as `run_units` reports them."""
        self._view.add(count)
        if self._waiting and (now := time.monotonic()) >= self._due:
            self._due = now + _BETWEEN_LOOKS
            self._look([*islice(self._waiting.values(), _AT_ONCE)])

    def finish(self) -> None:
        """Count the units that are left."""
        self._look([*self._waiting.values()])

    def _look(self, units: Sequence[TokenUnit]) -> None:
        for unit in units:
            if isinstance(self._view, TokenView) and unit.is_done():
                del self._waiting[unit.number]
                found = unit.found()
                documents = sum(part.documents for part in found)
                self._view.count(documents, sum(part.tokens for part in found))
