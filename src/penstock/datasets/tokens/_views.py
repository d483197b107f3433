"""Views of rows of tokens: numbers and nothing else, and rows of tokens again."""

# ruff: noqa: SLF001 (a view asks its sources through the methods of the contract)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets._concatenated import Concatenated
from penstock.datasets._split import Parts, SplitPart, split
from penstock.datasets._views import Chosen, Taken
from penstock.datasets.tokens._source import OverTokens, TokenSource
from penstock.datasets.where._where import Matched, where
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penstock.datasets._source import Source
    from penstock.datasets.tokens._rows import Ends

_NO_STREAM = (
    "rows of a view do not follow each other as one stream. Cut the windows first and choose "
    "among them: source.windows(…).split(…)"
)


class ChosenTokens(OverTokens, Chosen):
    """Some rows of one source of tokens."""

    source: TokenSource

    @property
    def sample_size(self) -> int | None:
        return self.source.sample_size

    @property
    def _no_stream(self) -> str:
        return _NO_STREAM

    def _flat(self, ids: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return self.source._flat(self._chosen(ids))

    def _fresh(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        return self.source._fresh(self._chosen(ids))

    def _lengths(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.source._lengths(self._chosen(ids))

    def _document_ends(self, ids: NDArray[np.int64]) -> Ends | None:
        return self.source._document_ends(self._chosen(ids))


class TakenTokens(ChosenTokens, Taken):
    """The rows of given numbers, in the given order."""


class PartTokens(ChosenTokens, SplitPart):
    """One part of a split."""


class MatchingTokens(ChosenTokens, Matched):
    """The rows for which a condition holds."""


class ConcatenatedTokens(TokenSource, Concatenated):
    """The rows of several sources of one dtype, one source after the other."""

    sources: list[TokenSource]  # type: ignore[assignment]

    @property
    def token_dtype(self) -> np.dtype[Any]:
        return self.sources[0].token_dtype

    @property
    def sample_size(self) -> int | None:
        sizes = {one.sample_size for one in self.sources}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def packing(self) -> str | None:
        """How documents were put into rows; None where sources differ."""
        kinds = {one.packing for one in self.sources}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def keeps_apart(self) -> bool:
        return any(one.keeps_apart for one in self.sources)

    @property
    def _no_stream(self) -> str:
        return _NO_STREAM

    def _flat(self, ids: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        found = Concatenated._records(self, ids)
        lengths = np.array([len(row) for row in found], np.int64)
        return np.concatenate([np.empty(0, self.token_dtype), *found]), lengths

    def _fresh(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        shares, back = self._shares(ids)
        parts = [self.sources[number]._fresh(own) for number, own in shares]
        rows: NDArray[Any] = np.concatenate(parts)[back]
        return rows

    def _lengths(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        shares, back = self._shares(ids)
        parts = [self.sources[number]._lengths(own) for number, own in shares]
        lengths: NDArray[np.int64] = np.concatenate([np.empty(0, np.int64), *parts])[back]
        return lengths

    def _document_ends(self, ids: NDArray[np.int64]) -> Ends | None:
        shares, back = self._shares(ids)
        rows: list[NDArray[np.int64]] = []
        for number, own in shares:
            found = self.sources[number]._document_ends(own)
            if found is None:
                return None
            rows += np.split(found[0], found[1][1:-1]) if len(own) else []
        ordered = [rows[place] for place in back.tolist()]
        offsets = np.cumsum([0, *map(len, ordered)], dtype=np.int64)
        return np.concatenate([np.empty(0, np.int64), *ordered]), offsets


def concatenated_tokens(one: TokenSource, other: Source) -> Source:
    """Return the rows of both: a source of tokens, where the other has tokens of the same dtype."""
    if isinstance(other, TokenSource) and other.token_dtype == one.token_dtype:
        return ConcatenatedTokens([one, other])
    return Concatenated([one, other])


def split_tokens(
    source: TokenSource, by: str | None, seed: int, shares: Mapping[str, float]
) -> Parts:
    """Return the views of `split`, each again a source of tokens."""
    if by is not None:
        raise OptionError(
            f"by={by!r}: tokens have no field to split by. Split by row numbers, without `by`, or "
            "split the records before they are tokenised."
        )
    parts = split(source, by, seed, shares)
    rules = [part.rule for part in parts if isinstance(part, SplitPart)]
    views = [PartTokens(source, rule, number) for number, rule in enumerate(rules)]
    return Parts(views, parts.names)


def where_tokens(source: TokenSource, expression: object) -> MatchingTokens:
    """Return the view of `where`, again a source of tokens."""
    return MatchingTokens(source, where(source, expression).rule)
