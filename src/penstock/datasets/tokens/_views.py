"""Views of rows of tokens: some rows, several sources as one, windows over the stream of all."""

# ruff: noqa: SLF001 (a view asks its sources through the methods of the contract)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets._concatenated import Concatenated
from penstock.datasets._source import Location, Source
from penstock.datasets.tokens._source import Ends, OverTokens, TokenSource, between, take
from penstock.datasets.views._split import Parts, SplitPart, split
from penstock.datasets.views._views import Chosen, Taken, fingerprint_of
from penstock.datasets.where._where import Matched, where
from penstock.errors import CorruptIndexError, OptionError
from penstock.order import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray


_NO_STREAM = (
    "rows of a view do not follow each other as one stream. Cut the windows first and choose "
    "among them: source.windows(…).split(…)"
)


class ChosenTokens(OverTokens, Chosen):
    """Some rows of one source of tokens."""

    source: TokenSource
    _no_stream = _NO_STREAM

    @property
    def sample_size(self) -> int | None:
        return self.source.sample_size

    def _flat(self, ids: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return self.source._flat(self._chosen(ids))

    def _fresh(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        return self.source._fresh(self._chosen(ids))

    def _lengths(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.source._lengths(self._chosen(ids))

    def _document_ends(self, ids: NDArray[np.int64]) -> Ends | None:
        return self.source._document_ends(self._chosen(ids))

    def _trained(self, ids: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        return self.source._trained(self._chosen(ids))


class TakenTokens(ChosenTokens, Taken):
    """The rows of given numbers, in the given order."""


class PartTokens(ChosenTokens, SplitPart):
    """One part of a split."""


class MatchingTokens(ChosenTokens, Matched):
    """The rows for which a condition holds."""


class ConcatenatedTokens(TokenSource, Concatenated):
    """The rows of several sources, one source after the other, in a dtype that holds all tokens."""

    sources: list[TokenSource]  # type: ignore[assignment]
    _no_stream = _NO_STREAM

    @property
    def token_dtype(self) -> np.dtype[Any]:
        return np.result_type(*(one.token_dtype for one in self.sources))

    def each(self, change: Callable[[TokenSource], TokenSource]) -> TokenSource:
        found = []
        for label, one in zip(self.labels(), self.sources, strict=True):
            try:
                found.append(one.each(change))
            except OptionError as why:
                raise OptionError(f"{label}: {why.fact}", remedy=why.remedy) from None
        return ConcatenatedTokens(found, self.names)

    @property
    def sample_size(self) -> int | None:
        sizes = {one.sample_size for one in self.sources}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def keeps_apart(self) -> bool:
        return any(one.keeps_apart for one in self.sources)

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

    def _trained(self, ids: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        shares, back = self._shares(ids)
        width = self.sample_size or 0
        parts = [(self.sources[number]._trained(own), len(own)) for number, own in shares]
        if all(flags is None for flags, _ in parts):
            return None
        # All tokens of a source that knows nothing else are trained.
        rows = [np.ones((count, width), bool) if flags is None else flags for flags, count in parts]
        found: NDArray[np.bool_] = np.concatenate(rows)[back]
        return found


def named_sources(sources: Sequence[Source], names: Sequence[str] = ()) -> Concatenated:
    """Return several sources as one: of tokens, where all have tokens that one dtype holds."""
    tokens = [one for one in sources if isinstance(one, TokenSource)]
    if len(tokens) == len(sources):
        joined = ConcatenatedTokens(tokens, names)
        if joined.token_dtype.kind in "iu":
            return joined
    return Concatenated(sources, names)


def split_tokens(
    source: TokenSource, by: str | None, seed: int, shares: Mapping[str, float]
) -> Parts:
    """Return the views of `split`, each again a source of tokens."""
    if by is not None:
        raise OptionError(
            f"by={by!r}: tokens have no field to split by. Split by row numbers, without `by`, or "
            "split the records before they are tokenised."
        )
    return split(source, by, seed, shares, PartTokens)


def where_tokens(source: TokenSource, expression: object) -> Source:
    """Return the view of `where`, again a source of tokens."""
    view = where(source, expression)
    if isinstance(view, Matched):
        return MatchingTokens(source, view.rule)
    return TakenTokens(source, view.ids)


class Windows(OverTokens):
    """Row w has the tokens [w · stride, w · stride + length) of a stream, and `ahead` more.

    Samples and files have no borders here. Only as many windows as have all of their `length`
    tokens, unless the last sample was filled up, so that no token is left out: then the last window
    is, too. What is missing in the last ones, or ahead of them, is 0 and does not count in
    `lengths`.
    """

    _no_stream = "these rows are windows already. Cut others from the source that they come from."

    def __init__(self, source: TokenSource, length: int, stride: int, ahead: int = 0) -> None:
        self.source = source
        self.length = whole_number("length", length, 1)
        self.stride = whole_number("stride", stride, 1)
        self.ahead = whole_number("ahead", ahead, 0)
        if not source.is_stream:
            raise OptionError(f"there are no windows: {source._no_stream}")
        self._tokens, size = source._stream_tokens, source.sample_size
        # Whether the last sample has room for more tokens, and the last window may.
        self._is_filled_up = size is not None and 0 < self._tokens < len(source) * size
        if self._tokens < self.length and not self._is_filled_up:
            raise OptionError(
                f"there is no window of {self.length:,} tokens: all samples together have "
                f"{self._tokens:,}. Ask for shorter ones, or tokenise more text."
            )

    def __len__(self) -> int:
        rest = self._tokens - self.length
        if self._is_filled_up:
            # Of windows that lie apart the last one may begin behind the last token.
            return min(1 + max(0, -(-rest // self.stride)), -(-self._tokens // self.stride))
        return rest // self.stride + 1

    @property
    def sample_size(self) -> int:
        return self.length + self.ahead

    @property
    def fingerprint(self) -> str:
        how = (self.length, self.stride, self.ahead)
        return fingerprint_of("windows", self.source.fingerprint, *map(str, how))

    @property
    def files(self) -> list[str]:
        return self.source.files

    @property
    def blocks(self) -> NDArray[np.int64]:
        """The first windows that begin in each block of the source."""
        starts = self.source._starts_of(self.source.blocks)
        firsts = -(-starts // self.stride)
        return np.unique(np.append(firsts[firsts < len(self)], [0, len(self)])).astype(np.int64)

    def by_blocks(self) -> Windows:
        source = self.source.by_blocks()
        if source is self.source or not isinstance(source, TokenSource):
            return self
        return Windows(source, self.length, self.stride, self.ahead)

    def _places(self, ids: NDArray[np.int64]) -> Location:
        """Return where windows begin, and how long they are; one may end in another file."""
        begins = ids * self.stride
        samples = self.source._samples_at(begins)
        at = self.source.location(samples)
        size = self.token_dtype.itemsize
        inside = begins - self.source._starts_of(samples)
        offsets = np.asarray(at.offset, np.int64) + inside * size
        return Location(at.file, offsets, self._lengths(ids) * size)

    def raw(self, which: int) -> bytes:
        ids = np.array([self._number(which)])
        return bytes(self._fresh(ids)[0, : int(self._lengths(ids)[0])].tobytes())

    def _lengths(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.minimum(self._tokens - ids * self.stride, self.sample_size)

    def _document_ends(self, ids: NDArray[np.int64]) -> Ends | None:
        begins, lengths = ids * self.stride, self._lengths(ids)
        found = self.source._borders(begins, begins + lengths)
        if found is None:
            return None
        values, offsets = found
        counts = np.diff(offsets)
        # Behind the borders of each window comes its end.
        ends = np.insert(values - np.repeat(begins, counts), offsets[1:], lengths)
        return ends, offsets + np.arange(len(offsets))

    def _trained(self, ids: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        return self.source._trained_from(ids * self.stride, self.sample_size)

    def _flat(self, ids: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return self._fresh(ids).reshape(-1), np.full(len(ids), self.sample_size, np.int64)

    def _fresh(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        begins, width = ids * self.stride, self.sample_size
        if not len(ids):
            return np.empty((0, width), self.token_dtype)
        if int(begins.max()) + width <= self._tokens:
            return self._stretches(begins, width)
        rows = np.zeros((len(ids), width), self.token_dtype)
        lengths = self._lengths(ids)
        for length in np.unique(lengths).tolist():
            where = np.flatnonzero(lengths == length)
            rows[where, :length] = self._stretches(begins[where], length)
        return rows

    def _stretches(self, begins: NDArray[np.int64], width: int) -> NDArray[Any]:
        """Return `width` tokens of the stream from each of some places on, all of them there."""
        source, dtype = self.source, self.token_dtype
        starts = source._run_starts()
        if starts is None:
            return self._out_of_samples(begins, width)
        if len(starts) == 2:  # noqa: PLR2004 (one run has two borders)
            # One copy and no more: they are taken out of the map into the array to return.
            return source._run(0, width)[begins].view(dtype).reshape(len(begins), width)
        runs = np.searchsorted(starts, begins, "right") - 1
        is_cut = begins + width > starts[runs + 1]
        if is_cut.any():
            rows = np.empty((len(begins), width), dtype)
            rows[is_cut] = self._out_of_samples(begins[is_cut], width)
            if not is_cut.all():
                rows[~is_cut] = self._stretches(begins[~is_cut], width)
            return rows
        kind = np.dtype((np.void, width * dtype.itemsize))
        found = take(runs, begins - starts[runs], lambda run: source._run(run, width), kind)
        return found.view(dtype).reshape(len(begins), width)

    def _out_of_samples(self, begins: NDArray[np.int64], width: int) -> NDArray[Any]:
        """Read the samples that stretches lie in, and take the stretches out of them."""
        source = self.source
        firsts = source._samples_at(begins)
        lasts = source._samples_at(begins + width - 1) + 1
        samples = np.unique(between(firsts, lasts)[0])
        flat, lengths = source._flat(samples)
        offsets = np.cumsum(lengths) - lengths
        # Samples of one stretch stand next to each other here as well.
        inside = begins - source._starts_of(firsts)
        places = offsets[np.searchsorted(samples, firsts)] + inside
        if int(places.min()) < 0 or int(places.max()) + width > len(flat):
            raise CorruptIndexError(
                "the index is damaged: samples do not hold the tokens that stand between their "
                "first and their last one. Copy the data again, or tokenise it again."
            )
        found: NDArray[Any] = np.lib.stride_tricks.sliding_window_view(flat, width)[places]
        return found

    def _about(self) -> str:
        ahead = f" and {self.ahead:,} ahead" if self.ahead else ""
        left = self._tokens - (len(self) - 1) * self.stride - self.length
        rest = f"; the last {left:,} fill no window" if left > 0 else ""
        if left < 0:
            rest = f"; the last one has {self.length + left:,}, and is filled up"
        return (
            f"{self.length:,} tokens ({self.token_dtype.name}){ahead} a record, one every "
            f"{self.stride:,} of {self._tokens:,}{rest}"
        )
