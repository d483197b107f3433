"""Samples of the stream of tokens: one a document, the stream cut, or whole documents packed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast, get_args

import numpy as np

from penstock.errors import OptionError
from penstock.index._meta import TokensMeta
from penstock.index._sample_index import Documents
from penstock.order import best_fit, whole_number

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import DTypeLike, NDArray

    from penstock.index.tokens._units import TokenStream

_ROWS_AT_ONCE = 1 << 16
_TOKENS_AT_ONCE = 1 << 21

PackingName = Literal["concat", "best_fit"]
Remainder = Literal["drop", "pad"]
_LONGEST_SAMPLE = 2**32 - 1
"""Tokens: `document_ends.bin` holds uint32."""


@dataclass(frozen=True, slots=True)
class PackOptions:
    """What samples are."""

    size: int | None
    """Tokens; None: a sample is a document."""
    packing: PackingName
    remainder: Remainder
    pad: int | None
    """Token that fills samples up."""

    def described(
        self,
        dtype: np.dtype[np.integer[Any]],
        eos: int | None,
        **counts: Any,  # noqa: ANN401 (of several types)
    ) -> TokensMeta:
        """Return the description of samples for `meta.json`."""
        fills_up = self.packing == "best_fit" or self.remainder == "pad"
        return TokensMeta(
            dtype=dtype.name,
            sample_size=self.size,
            eos=None if self.size is None else eos,
            packing=None if self.size is None else self.packing,
            pad=self.pad if fills_up else None,
            **counts,
        )


class Samples(ABC):
    """The samples of a stream, all of one size."""

    counts: NDArray[np.int64]
    """Samples in the token file of each text file."""
    dropped = 0
    """Tokens behind the last full sample."""
    padding = 0
    trained_tokens: int | None = None
    """Known when they are written; None: all tokens are trained."""

    def __init__(self, stream: TokenStream, size: int = 0) -> None:
        self._stream, self._size = stream, size

    @property
    def tokens(self) -> int:
        """In all samples, padding not counted."""
        return self._stream.tokens - self.dropped

    @abstractmethod
    def write(self, file: int, out: BinaryIO) -> None:
        """Write a token file."""

    def rows(self, file: int) -> Iterator[NDArray[np.int64]]:
        """Yield offset and bytes of the samples in a token file: int64[k, 2]."""
        count, size = int(self.counts[file]), self._size * self._stream.dtype.itemsize
        for start in range(0, count, _ROWS_AT_ONCE):
            some = min(_ROWS_AT_ONCE, count - start)
            rows = np.full((some, 2), size, np.int64)
            rows[:, 0] *= np.arange(start, start + some)
            yield rows

    def ends(self) -> Iterator[Documents]:
        """Yield where documents end in the next samples, without their first offset.

        Nothing where a sample is a document.
        """
        return iter(())

    def trained(self) -> Iterator[NDArray[np.bool_]]:
        """Yield which tokens of all samples are trained, in order; padding is not."""
        left = self.tokens
        for flags in self._stream.flags():
            yield flags[:left]
            left -= min(left, len(flags))
        yield np.zeros(self.padding, np.bool_)


def samples_of(stream: TokenStream, options: PackOptions, scratch: Path) -> Samples:
    """Return the samples of a stream; `scratch` is a file that may be written for it."""
    if options.size is None:
        return DocumentSamples(stream)
    if options.packing == "concat":
        pad = options.pad if options.remainder == "pad" else None
        return ConcatSamples(stream, options.size, pad)
    return BestFitSamples(stream, options.size, options.pad or 0, scratch)


class DocumentSamples(Samples):
    """A document is a sample."""

    def __init__(self, stream: TokenStream) -> None:
        super().__init__(stream)
        self.counts = np.diff(stream.file_documents)

    def write(self, file: int, out: BinaryIO) -> None:
        start, stop = self._stream.file_tokens[[file, file + 1]].tolist()
        self._stream.copy(start, stop, out)

    def rows(self, file: int) -> Iterator[NDArray[np.int64]]:
        first = int(self._stream.file_tokens[file])
        for start, lengths in self._stream.documents_of(file):
            rows = np.stack([np.cumsum(lengths) - lengths + (start - first), lengths], axis=1)
            yield rows * self._stream.dtype.itemsize


class ConcatSamples(Samples):
    """The stream, cut into samples; one lies in the file in whose documents it ends."""

    def __init__(self, stream: TokenStream, size: int, pad: int | None) -> None:
        super().__init__(stream, size)
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
        self.counts = np.diff(self._borders)

    def write(self, file: int, out: BinaryIO) -> None:
        start, stop = (self._borders[[file, file + 1]] * self._size).tolist()
        self._stream.copy(start, min(stop, self.tokens), out)
        if start < stop and stop > self.tokens:
            out.write(self._fill.data)

    def ends(self) -> Iterator[Documents]:
        size, done = self._size, 0
        for start, lengths in self._stream.all_documents():
            ends = start + np.cumsum(lengths)
            stop = min(int(ends[-1]), self.tokens)
            borders = np.arange((start // size + 1) * size, stop + 1, size)
            # Where documents or samples end, each place once.
            cuts = np.union1d(ends[ends <= stop], borders)
            yield Documents(
                cuts - (cuts - 1) // size * size,
                done + 1 + np.flatnonzero(cuts % size == 0),
                ~np.isin(borders, ends, assume_unique=True),
            )
            done += len(cuts)
        if self.padding:
            yield Documents(np.empty(0, np.int64), np.array([done]), np.zeros(1, bool))


class BestFitSamples(Samples):
    """Documents packed by `penstock.order.best_fit`; a sample lies in the file of its first one.

    The plan is held in memory: some 60 bytes a document. The tokens are not.
    """

    def __init__(self, stream: TokenStream, size: int, pad: int, scratch: Path) -> None:
        super().__init__(stream, size)
        self._pad, lengths = pad, stream.lengths()
        plan = best_fit(lengths, size)
        starts = np.cumsum(lengths) - lengths
        self._from = starts[plan.piece_document] + plan.piece_start
        self._lengths, self._offsets = plan.piece_length, plan.sample_offsets
        lasts = self._offsets[1:] - 1
        ended = plan.piece_start[lasts] + plan.piece_length[lasts]
        self._goes_on = ended < lengths[plan.piece_document[lasts]]
        first = plan.piece_document[self._offsets[:-1]]
        files = np.searchsorted(stream.file_documents, first, side="right") - 1
        self.counts = np.bincount(files, minlength=stream.files)
        self._borders = np.cumsum([0, *self.counts.tolist()])
        self.padding = (len(self._offsets) - 1) * size - stream.tokens
        self._tokens, self._scratch = stream.mapped("tokens", scratch), scratch

    def write(self, file: int, out: BinaryIO) -> None:
        start, stop = self._borders[[file, file + 1]].tolist()
        out.writelines(some.data for some in self._gathered(start, stop, self._tokens, self._pad))

    def trained(self) -> Iterator[NDArray[np.bool_]]:
        flags = self._stream.mapped("trained", self._scratch.with_suffix(".flags"))
        return self._gathered(0, len(self._offsets) - 1, flags, 0)

    def _pieces(self, start: int, stop: int) -> tuple[slice, NDArray[np.int64], NDArray[np.int64]]:
        """Return which pieces samples have, the sample of each, and where it ends in that one."""
        pieces = slice(int(self._offsets[start]), int(self._offsets[stop]))
        counts = np.diff(self._offsets[start : stop + 1])
        ends = np.cumsum(self._lengths[pieces])
        before = (ends - self._lengths[pieces])[np.cumsum(counts) - counts]
        return pieces, np.repeat(np.arange(stop - start), counts), ends - np.repeat(before, counts)

    def _gathered(
        self, first: int, last: int, values: NDArray[Any], fill: int
    ) -> Iterator[NDArray[Any]]:
        """Yield what stands in samples, given the value of each token of the stream."""
        step = max(1, _TOKENS_AT_ONCE // self._size)
        for start in range(first, last, step):
            stop = min(last, start + step)
            pieces, samples, ends = self._pieces(start, stop)
            lengths = self._lengths[pieces]
            before = np.cumsum(lengths) - lengths
            into = samples * self._size + ends - lengths
            each = np.arange(int(lengths.sum()))
            found = np.full((stop - start) * self._size, fill, values.dtype)
            found[np.repeat(into - before, lengths) + each] = values[
                np.repeat(self._from[pieces] - before, lengths) + each
            ]
            yield found

    def ends(self) -> Iterator[Documents]:
        total = len(self._offsets) - 1
        for start in range(0, total, _TOKENS_AT_ONCE):
            stop = min(total, start + _TOKENS_AT_ONCE)
            ends = self._pieces(start, stop)[2]
            yield Documents(ends, self._offsets[start + 1 : stop + 1], self._goes_on[start:stop])


def token_type(dtype: DTypeLike) -> np.dtype[np.integer[Any]]:
    """Return the dtype of tokens, always little-endian."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = np.dtype(object)
    if found.kind not in "iu":
        raise OptionError(
            f"token_dtype={dtype!r}: expected a NumPy type of integers, as np.uint16 or np.uint32."
        )
    return cast("np.dtype[np.integer[Any]]", found.newbyteorder("<"))


def token_id(name: str, value: int, dtype: np.dtype[np.integer[Any]]) -> int:
    """Return a token, or raise if the dtype does not hold it."""
    token = whole_number(name, value, 0)
    most = int(np.iinfo(dtype).max)
    if token > most:
        raise OptionError(
            f"{name}={token} does not fit token_dtype={dtype.name} (0 to {most}). Give "
            f"token_dtype=np.{holding(token)}."
        )
    return token


def holding(token: int) -> str:
    """Return the name of the smallest common dtype that holds a token."""
    return np.promote_types(np.min_scalar_type(token), np.uint16).name


def refuse_misfit(
    ids: NDArray[Any],
    dtype: np.dtype[np.integer[Any]],
    place_of: Callable[[int], str],
    **details: object,
) -> None:
    """Raise for a token that the dtype does not hold; `place_of` says where one is."""
    most = int(np.iinfo(dtype).max)
    if not len(ids) or (int(ids.min()) >= 0 and int(ids.max()) <= most):
        return
    at = int(np.flatnonzero((ids < 0) | (ids > most))[0])
    option, remedy = "token_dtype", f"Give token_dtype=np.{holding(int(ids.max()))}."
    if int(ids[at]) < 0:
        option, remedy = (
            "tokenizer",
            "Tokens are numbers from 0 on: look at what the tokenizer returns.",
        )
    fact = f"token {int(ids[at])} does not fit {dtype.name} (0 to {most}): {place_of(at)}."
    raise OptionError(fact, remedy=remedy, option=option, **details)


def pack_options(  # noqa: PLR0913, PLR0917 (as they are given)
    size: int | None,
    packing: str,
    remainder: str,
    eos: int | None,
    pad: int | None,
    dtype: np.dtype[np.integer[Any]],
) -> PackOptions:
    """Return the options of samples, or raise for invalid ones."""
    for name, value, kind in (
        ("packing", packing, PackingName),
        ("keep_remainder", remainder, Remainder),
    ):
        default, other = get_args(kind)
        if value not in (default, other):
            raise OptionError(f'{name}={value!r}: expected "{default}" or "{other}".')
        if size is None and value != default:
            raise OptionError(
                f"{name}={value!r} packs documents into samples of one size. Give sample_size="
            )
    if size is not None and whole_number("sample_size", size, 1) > _LONGEST_SAMPLE:
        raise OptionError(f"sample_size={size}: expected at most {_LONGEST_SAMPLE:,} tokens.")
    if size is not None and eos is None:
        raise OptionError(
            "eos_idx=None: with sample_size= a token ends every document. Give its number."
        )
    filling = eos if pad is None else token_id("pad_idx", pad, dtype)
    return PackOptions(None if size is None else int(size), packing, remainder, filling)  # type: ignore[arg-type]
