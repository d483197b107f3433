"""Windows over the stream of all tokens, of any length and stride, without another copy of them."""

# ruff: noqa: SLF001 (windows ask their source through the methods of the contract)

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.datasets._source import Location
from penstock.datasets._views import fingerprint_of
from penstock.datasets.tokens._rows import between, take
from penstock.datasets.tokens._source import OverTokens, TokenSource
from penstock.errors import CorruptIndexError, OptionError
from penstock.order import whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets.tokens._rows import Ends


class Windows(OverTokens):
    """Row w has the tokens [w · stride, w · stride + length) of a stream, and `ahead` more.

    Samples and files have no borders here. Only as many windows as have all of their `length`
    tokens, unless the last sample was filled up, so that no token is left out: then the last window
    is, too. What is missing in the last ones, or ahead of them, is 0 and does not count in
    `lengths`.
    """

    def __init__(self, source: TokenSource, length: int, stride: int, ahead: int = 0) -> None:
        self.source = source
        self.length = whole_number("length", length, 1)
        self.stride = whole_number("stride", stride, 1)
        self.ahead = whole_number("ahead", ahead, 0)
        if not source.is_stream:
            raise OptionError(f"there are no windows: {source._no_stream}")
        if self._tokens < self.length and not self._is_filled_up:
            raise OptionError(
                f"there is no window of {self.length:,} tokens: all samples together have "
                f"{self._tokens:,}. Ask for shorter ones, or tokenise more text."
            )

    @cached_property
    def _tokens(self) -> int:
        """Tokens of the stream."""
        return self.source._stream_tokens

    @cached_property
    def _is_filled_up(self) -> bool:
        """Whether the last sample has room for more tokens, and the last window may."""
        size, count = self.source.sample_size, len(self.source)
        return size is not None and 0 < self._tokens < count * size

    def __len__(self) -> int:
        rest = self._tokens - self.length
        if self._is_filled_up:
            # Of windows that lie apart the last one may begin behind the last token.
            return min(1 + max(0, -(-rest // self.stride)), -(-self._tokens // self.stride))
        return rest // self.stride + 1

    @property
    def sample_size(self) -> int:
        """Tokens of each row, those ahead counted."""
        return self.length + self.ahead

    @property
    def _no_stream(self) -> str:
        return "these rows are windows already. Cut others from the source that they come from."

    @property
    def fingerprint(self) -> str:
        """A hash of the source's own and of how it is cut."""
        how = (self.length, self.stride, self.ahead)
        return fingerprint_of("windows", self.source.fingerprint, *map(str, how))

    @property
    def files(self) -> list[str]:
        """The files of the source."""
        return self.source.files

    @property
    def blocks(self) -> NDArray[np.int64]:
        """The first windows that begin in each block of the source."""
        starts = self.source._starts_of(self.source.blocks)
        firsts = -(-starts // self.stride)
        return np.unique(np.append(firsts[firsts < len(self)], [0, len(self)])).astype(np.int64)

    def by_blocks(self) -> Windows:
        """Return the same windows, of a source that is read by blocks."""
        source = self.source.by_blocks()
        if source is self.source or not isinstance(source, TokenSource):
            return self
        return Windows(source, self.length, self.stride, self.ahead)

    def location(self, which: Any) -> Location:
        """Return where a window begins, and how long it is; it may end in another file."""
        is_many = bool(np.ndim(which))
        ids = self._numbers(which) if is_many else np.array([self._number(which)])
        begins = ids * self.stride
        samples = self.source._samples_at(begins)
        at = self.source.location(samples)
        size = self.token_dtype.itemsize
        inside = begins - self.source._starts_of(samples)
        offsets = np.asarray(at.offset, np.int64) + inside * size
        sizes = self._lengths(ids) * size
        if is_many:
            return Location(at.file, offsets, sizes)
        return Location(self.files[int(at.file[0])], int(offsets[0]), int(sizes[0]))

    def raw(self, which: int) -> bytes:
        """Return the bytes of a window's tokens."""
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
