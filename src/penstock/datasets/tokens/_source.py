"""Rows of tokens by number: what token folders, windows and views of them have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeGuard

import numpy as np
import pyarrow as pa

from penstock._words import counted
from penstock.datasets._source import Source
from penstock.datasets.text._texts import grouped
from penstock.decode import empty_batch, fit_batch
from penstock.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.datasets._source import Fields
    from penstock.datasets.views._split import Parts

TOKENS = "tokens"
"""The one column that a row is in Arrow."""
Ends: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"
"""Values, and where those of each row begin in them; at last where the last row's end."""
_FEW = 32
_MOST_ITEMS = 2**31 - 1


class TokenSource(Source):
    """A source whose records are rows of tokens: 1-D arrays of one integer type.

    `ds[i]` is a row; many rows come as one fresh 2-D array where they are all `sample_size` wide,
    and as a list of fresh arrays where each has a length of its own. Arrow has them as one column
    `tokens`.

    A format implements dtype, width and `_flat`, and `_fresh` where that is faster for rows of one
    width; `_lengths` and `_document_ends` where it knows documents. Windows over the stream of its
    tokens work then; `_run_starts` and `_run` make them faster for mapped tokens.
    """

    _SURFACE: ClassVar = Source._SURFACE | {  # noqa: SLF001 (see there)
        "__add__": "tokens._views.named_sources",
        "split": "tokens._views.split_tokens",
        "take": "tokens._views.TakenTokens",
        "where": "tokens._views.where_tokens",
        "windows": "tokens._views.Windows",
    }
    schema_is_complete = True
    is_tokens = True

    if TYPE_CHECKING:  # Views of tokens are tokens.

        def split(self, *, by: str | None = None, seed: int = 0, **shares: float) -> Parts: ...
        def take(self, ids: Any) -> TokenSource: ...
        def where(self, expression: Any) -> TokenSource: ...

    @property
    @abstractmethod
    def token_dtype(self) -> np.dtype[Any]:
        """The integer type of every token."""

    @property
    @abstractmethod
    def sample_size(self) -> int | None:
        """Tokens of each row; None where rows have lengths of their own."""

    @abstractmethod
    def _flat(self, ids: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the tokens of rows one after the other, in fresh memory, and each row's number."""

    @property
    def keeps_apart(self) -> bool:
        """Whether rows hold documents that only their ends keep apart: no token stands between."""
        return False

    @property
    def is_stream(self) -> bool:
        """Whether rows follow each other as one stream of tokens, so that it has windows."""
        return not self._no_stream

    @property
    def _no_stream(self) -> str:
        """Why there is no stream, and what to do; empty where there is one."""
        return ""

    def lengths(self, ids: Any) -> NDArray[np.int64]:
        """Return how many tokens of each row are real; those behind them only fill it up."""
        return self._lengths(self._numbers(ids))

    def document_ends(self, ids: Any) -> Ends | None:
        """Return where documents end in each row, ascending; the last end is the row's length.

        Values and offsets: those of row k are `values[offsets[k]:offsets[k + 1]]` (int64). None
        where they are unknown.
        """
        return self._document_ends(self._numbers(ids))

    def trained(self, ids: Any) -> NDArray[np.bool_] | None:
        """Return which tokens of rows of one width are trained: bool[rows, width].

        None where all of them are. A folder that a template made knows it; see `docs/tokens.md`.
        """
        found = self._trained(self._numbers(ids))
        if found is not None and self.sample_size is None:
            raise OptionError(
                "rows have lengths of their own. Ask for windows: source.windows(64).trained(ids)"
            )
        return found

    def windows(self, length: int, stride: int | None = None, *, ahead: int = 0) -> TokenSource:
        """Return the stream of all tokens cut into windows, one every `stride` tokens.

        Window w has the tokens from w · stride on, `length` of them and `ahead` more, which are 0
        where the stream has ended. Without a stride each begins where the one before ends.
        """
        wide = length if stride is None else stride
        windows: TokenSource = self._later("windows")(self, length, wide, ahead)
        return windows

    def each(self, change: Callable[[TokenSource], TokenSource]) -> TokenSource:
        """Return `change(self)`; where sources were joined, those that it makes of each, joined."""
        return change(self)

    def _fresh(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return rows of one width, fresh and writable."""
        return self._flat(ids)[0].reshape(len(ids), self.sample_size or 0)

    def _lengths(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.sample_size is None:
            return self._flat(ids)[1]
        return np.full(len(ids), self.sample_size, np.int64)

    def _document_ends(self, ids: NDArray[np.int64]) -> Ends | None:
        if self.sample_size is not None:
            return None
        # A row without a width is a document.
        return self._lengths(ids), np.arange(len(ids) + 1, dtype=np.int64)

    def _trained(self, ids: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        return self._trained_from(self._starts_of(ids), self.sample_size or 0)

    def _trained_from(self, begins: NDArray[np.int64], width: int) -> NDArray[np.bool_] | None:
        """Return which of `width` tokens of the stream from each of some places on are trained.

        Places behind the stream are not. None where all tokens are.
        """
        return None

    # The stream: all rows one after the other, without what fills up the last one.

    @cached_property
    def _bounds(self) -> NDArray[np.int64]:
        """Where in the stream each row begins, and where the last one ends."""
        bounds = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self._lengths(np.arange(len(self))), out=bounds[1:])
        return bounds

    @property
    def _stream_tokens(self) -> int:
        """Tokens of the stream."""
        if self.sample_size is None or not len(self):
            return int(self._bounds[-1])
        last = np.array([len(self) - 1])
        return int(last[0]) * self.sample_size + int(self._lengths(last)[0])

    def _starts_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where in the stream rows begin; where it ends for the number behind the last."""
        if self.sample_size is None:
            return self._bounds[ids]
        return np.minimum(ids * self.sample_size, self._stream_tokens)

    def _samples_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row in which each token of the stream stands."""
        if self.sample_size is None:
            return np.searchsorted(self._bounds, positions, "right") - 1
        return positions // self.sample_size

    def _run_starts(self) -> NDArray[np.int64] | None:
        """Return where in the stream tokens begin that lie mapped in one piece, and where it ends.

        None where tokens are not mapped. Tokens that fill up the last row count.
        """
        return None

    def _run(self, number: int, width: int) -> NDArray[Any]:
        """Return the stretches of `width` tokens that begin at each token of a run: V[…] items."""
        raise TypeError(f"tokens of {type(self).__name__} are not mapped: see `_run_starts`")

    def _borders(self, begins: NDArray[np.int64], stops: NDArray[np.int64]) -> Ends | None:
        """Return where documents end inside of stretches of the stream, as numbers of tokens.

        Neither where a stretch begins nor where it stops. None where they are unknown.
        """
        if self.sample_size is not None:
            return None
        firsts, lasts = self._samples_at(begins) + 1, self._samples_at(stops - 1) + 1
        samples, offsets = between(firsts, lasts)
        return distinct_ends(self._starts_of(samples), offsets)

    # The surface of all sources.

    @property
    def schema(self) -> pa.Schema:
        """One column `tokens`: lists of the dtype, of one size where rows have one."""
        item = pa.from_numpy_dtype(self.token_dtype)
        return pa.schema({TOKENS: pa.list_(item, self.sample_size or -1)})

    def _records(self, ids: NDArray[np.int64]) -> Any:
        if self.sample_size is not None:
            return self._fresh(ids)
        values, lengths = self._flat(ids)
        ends = np.cumsum(lengths)
        places = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
        return [values[start:end] for start, end in places]

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        schema = self.schema
        (type_,) = schema.types
        if self.sample_size is not None:
            values = pa.array(self._fresh(ids).reshape(-1))
            column = pa.FixedSizeListArray.from_arrays(values, type=type_)
        else:
            flat, lengths = self._flat(ids)
            if len(flat) > _MOST_ITEMS:
                raise OptionError(
                    f"{len(ids):,} rows have {len(flat):,} tokens, more than a list column of "
                    "Arrow holds. Ask for fewer rows at a time."
                )
            offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
            column = pa.ListArray.from_arrays(offsets, pa.array(flat), type=type_)
        return pa.RecordBatch.from_arrays([column], schema=schema)

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        if TOKENS in schema.names:
            return fit_batch(self._inferred(ids), schema, ids)
        return fit_batch(empty_batch(pa.schema([]), len(ids)), schema, ids)

    def materialize(self, fields: Fields, *_: Any, **__: Any) -> Source:
        """Refuse: tokens are kept on disk as what they are, so that reading them is a gather."""
        raise OptionError(
            f"there is nothing to decode in tokens ({', '.join(map(str, fields))}): reading them "
            "is a gather already. Use the source as it is."
        )

    def _about(self) -> str:
        """Return the number of tokens, their type and the width of rows."""
        size, dtype = self.sample_size, self.token_dtype.name
        if size is None:
            return f"{counted(self._stream_tokens, 'token')} ({dtype}), a document a record"
        return f"{counted(len(self) * size, 'token')} ({dtype}), {size:,} a record"


class OverTokens(TokenSource):
    """Rows made of those of one source of tokens."""

    source: TokenSource

    @property
    def token_dtype(self) -> np.dtype[Any]:
        return self.source.token_dtype

    @property
    def keeps_apart(self) -> bool:
        return self.source.keeps_apart


def is_tokens(source: object) -> TypeGuard[TokenSource]:
    """Whether records are rows of tokens; a feed that is no source has none."""
    return isinstance(source, Source) and source.is_tokens


def between(lows: NDArray[np.int64], highs: NDArray[np.int64]) -> Ends:
    """Return the numbers from each low up to each high, and where those of each begin.

    >>> between(np.array([5, 1]), np.array([7, 2]))
    (array([5, 6, 1]), array([0, 2, 3]))
    """
    counts = np.maximum(highs - lows, 0)
    offsets = np.zeros(len(lows) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return np.arange(offsets[-1]) + np.repeat(lows - offsets[:-1], counts), offsets


def ends_of(
    values: NDArray[np.int64],
    rows: NDArray[np.int64],
    is_kept: NDArray[np.bool_],
    count: int,
) -> Ends:
    """Return those of some values that are kept, given the row of each: of `count` rows."""
    counts = np.bincount(rows[is_kept], minlength=count)
    return values[is_kept], np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def distinct_ends(values: NDArray[np.int64], offsets: NDArray[np.int64]) -> Ends:
    """Return rising values, each once in a row: documents without a token end where others do."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    is_new = np.ones(len(values), bool)
    is_new[1:] = (values[1:] != values[:-1]) | (rows[1:] != rows[:-1])
    return ends_of(values, rows, is_new, len(offsets) - 1)


def take(
    runs: NDArray[np.int64],
    places: NDArray[np.int64],
    items_of: Callable[[int], NDArray[Any]],
    kind: np.dtype[Any],
) -> NDArray[Any]:
    """Return the items at places of runs.

    Items are rows of tokens as one value each (`V…`), which NumPy copies as a whole.
    """
    out = np.empty(len(runs), kind)
    if len(runs) <= _FEW:
        # The rows probably lie in different runs: copying one by one is faster than sorting.
        found = {run: items_of(run) for run in set(runs.tolist())}
        for row, (run, place) in enumerate(zip(runs.tolist(), places.tolist(), strict=True)):
            out[row : row + 1] = found[run][place : place + 1]
        return out
    for which in grouped(runs):
        out[which] = items_of(int(runs[which[0]]))[places[which]]
    return out
