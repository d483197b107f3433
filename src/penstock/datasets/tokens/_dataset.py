"""Tokens that lie in files, found through an index: samples of one size, or documents."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock._words import counted
from penstock.datasets.text._dataset import ROW, Dataset, load_folder
from penstock.datasets.tokens._layout import (
    check_complete,
    check_fits,
    check_inside,
    dtype_of,
    one_value,
    runs_of,
)
from penstock.datasets.tokens._source import Ends, TokenSource, between, ends_of, take
from penstock.datasets.tokens._with_aux import TokensWithAuxDataset
from penstock.errors import OptionError
from penstock.index import Documents, SampleIndex, TokensMeta, rows_before
from penstock.storage import is_network, is_remote, locate

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from penstock.datasets.tokens._layout import Runs

_STRETCH = 1 << 20
"""Rows that are looked at together."""
_LOOKED_AT = 16
"""Samples whose tokens are looked at."""
_MOST_TOKENS = 1 << 24
"""More than any vocabulary has."""


class TokensDataset(TokenSource, Dataset):
    """The samples of a token folder, made here or by data-forager, local or remote.

    `meta.json` says of what type the tokens are; where there is none `token_dtype` does, and
    without it they are `uint16`. `ds[i]` is a view of the mapped file and read-only; many samples
    are copied.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.index import IndexStore
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.arange(8, dtype=np.uint16).tofile(folder / "a.bin")
    >>> store = IndexStore(folder)
    >>> store.init_store()
    >>> for offset in (0, 8):
    ...     store.add_sample(str(folder / "a.bin"), offset, 8)
    >>> store.close()
    >>> dataset = TokensDataset.create_from_index_on_filesystem(folder)
    >>> dataset[1], dataset[::-1].tolist(), dataset.windows(3, stride=2)[2].tolist()
    (array([4, 5, 6, 7], dtype=uint16), [[4, 5, 6, 7], [0, 1, 2, 3]], [4, 5, 6])
    """

    _NAME_IN_CACHE = "penstock.datasets._tokens.TokensDataset"

    def __init__(
        self,
        sample_index: SampleIndex,
        token_dtype: DTypeLike | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        Dataset.__init__(self, sample_index, name, **kwargs)
        check_complete(sample_index)
        self._dtype = dtype_of(sample_index.meta, token_dtype)
        check_fits(sample_index, self._dtype)

    @property
    def token_dtype(self) -> np.dtype[Any]:
        return self._dtype

    @cached_property
    def sample_size(self) -> int | None:
        if self._known is not None:
            return self._known.sample_size
        if (size := one_value(self._rows[:, 2])) is None:
            return None
        check_inside(self._sample_index, 0)
        return self._whole(size, 0)

    @property
    def packing(self) -> str | None:
        """How documents were put into rows: `concat`, `best_fit`; None where it is unknown."""
        return None if self._known is None else self._known.packing

    @property
    def keeps_apart(self) -> bool:
        known = self._known
        return known is not None and (known.packing == "best_fit" or known.sample_size is None)

    @property
    def _known(self) -> TokensMeta | None:
        meta = self._sample_index.meta
        return None if meta is None else meta.tokens

    @property
    def _no_stream(self) -> str:
        if self.packing != "best_fit":
            return ""
        return (
            "these samples were packed by best_fit, so that one does not follow the other. Take "
            "them as they are, or tokenise with packing='concat'."
        )

    @cached_property
    def _runs(self) -> Runs:
        size = self.sample_size
        return runs_of(self._sample_index, None if size is None else size * self._dtype.itemsize)

    @cached_property
    def _sample_kind(self) -> np.dtype[Any]:
        """A sample as one value."""
        return np.dtype((np.void, (self.sample_size or 0) * self._dtype.itemsize))

    def __getitem__(self, which: Any) -> Any:
        """Return the row of a number, or rows of a slice, a list or an array of them."""
        if type(which) is int and 0 <= which < self._length:
            number = which
        elif isinstance(which, slice | list | tuple | range) or np.ndim(which):
            return super().__getitem__(which)
        else:
            number = self._number(which)
        file, offset, size = ROW.unpack_from(self._row_bytes, number * ROW.size)
        if not self._is_mapped or not size:
            return self._process_sample(self._raw(number), number)
        text = self._texts.get(file) or self._text(file)
        if size != self._sample_kind.itemsize:
            self._check_size(self._whole(size, number), number)
        elif offset != self._offset_in_run(file, number):
            raise self._sample_index.damaged(
                f"sample {number:,} lies at byte {offset:,} of file {file:,}, and the samples "
                "around it elsewhere"
            )
        return text.items(self._dtype, offset, offset + size)  # type: ignore[attr-defined]

    def _check_size(self, tokens: int, number: int) -> None:
        """Raise where a sample has another size than all samples."""
        if self.sample_size not in (None, tokens):
            raise self._sample_index.damaged(
                f"sample {number:,} has {counted(tokens, 'token')}, and every sample "
                f"{self.sample_size:,}"
            )

    def _process_sample(self, sample_bytes: bytes, number: int = 0) -> NDArray[Any]:
        self._check_size(self._whole(len(sample_bytes), number), number)
        return np.frombuffer(sample_bytes, self._dtype)

    def _whole(self, size: int, number: int) -> int:
        """Return the tokens of so many bytes, or say that they are no whole number."""
        tokens, rest = divmod(size, self._dtype.itemsize)
        if not rest:
            return tokens
        place = self._sample_index[number]
        raise OptionError(
            f"sample {number:,} ({place.file_path}, byte {place.byte_offset:,}) has {size:,} "
            f"bytes, which is no whole number of tokens of {self._dtype.name}. Open it with the "
            "token_dtype that it was written with."
        )

    def _fresh(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        if not self._is_mapped:
            return super()._fresh(ids)
        kind = self._sample_kind
        if len(self._runs.places) == 1:
            # The numbers are checked already: "clip" spares another check.
            found = self._run_items(0, kind).take(ids, 0, None, "clip")
        else:
            runs = self._runs.of(ids)
            places = ids - self._runs.firsts[runs]
            found = take(runs, places, lambda run: self._run_items(run, kind), kind)
        return found.view(self._dtype).reshape(len(ids), self.sample_size or 0)

    def _run_items(self, number: int, kind: np.dtype[Any], step: int | None = None) -> NDArray[Any]:
        """Return what lies in a run as items: a view of the map."""
        _, file, begin, stop = self._runs.places[number]
        text = self._texts.get(file) or self._text(file)
        found: NDArray[Any] = text.items(kind, begin, stop, step)  # type: ignore[attr-defined]
        return found

    def _offset_in_run(self, file: int, number: int) -> int:
        """Return the byte at which a sample of its run begins; -1 where that is in another file."""
        places = self._runs.places
        run = bisect_right(places, number, key=itemgetter(0)) - 1
        first, its_file, begin, _ = places[run]
        inside = (number - first) * self._sample_kind.itemsize
        return begin + inside if its_file == file else -1

    @property
    def _is_mapped(self) -> bool:
        return self._by_ranges is None and self._can_be_mapped

    @cached_property
    def _can_be_mapped(self) -> bool:
        """Whether files lie on disks of this machine."""
        files = self._sample_index.file_locations
        return bool(self._length) and not any(is_remote(p) or is_network(p) for p in files)

    def _flat(self, ids: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        sizes = self._sample_index.rows_of(ids)[:, 2]
        lengths, rest = np.divmod(sizes, self._dtype.itemsize)
        is_wrong = rest != 0
        if self.sample_size is not None:
            is_wrong |= lengths != self.sample_size
        if is_wrong.any():
            bad = int(is_wrong.argmax())
            self._check_size(self._whole(int(sizes[bad]), int(ids[bad])), int(ids[bad]))
        # A bytearray, because the caller may write to it.
        return np.frombuffer(bytearray().join(self._bytes_of(ids)), self._dtype), lengths

    def _lengths(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.sample_size is None:
            return np.floor_divide(self._sample_index.rows_of(ids)[:, 2], self._dtype.itemsize)
        documents = self._sample_index.documents
        if documents is None or self._known is None or not self._known.padding:
            return super()._lengths(ids)
        _, highs = documents.bounds(ids, self.sample_size)
        lengths = documents.ends[highs - 1].astype(np.int64)
        if (wrong := (lengths < 1) | (lengths > self.sample_size)).any():
            raise documents.damaged(int(ids[wrong.argmax()]))
        return lengths

    def _document_ends(self, ids: NDArray[np.int64]) -> Ends | None:
        documents = self._sample_index.documents
        if self.sample_size is None or documents is None:
            return super()._document_ends(ids)
        return _ends(documents, ids, self.sample_size)

    def _trained_from(self, begins: NDArray[np.int64], width: int) -> NDArray[np.bool_] | None:
        bits = self._sample_index.trained
        if bits is None:
            return None
        # The bytes around each stretch, as bits, and these from where the stretch begins.
        places = (begins >> 3)[:, None] + np.arange((width + 7) // 8 + 1)
        found = bits[np.minimum(places, len(bits) - 1)]
        found[places >= len(bits)] = 0
        flags = np.unpackbits(found, axis=1, bitorder="little").view(np.bool_)
        stretches = np.lib.stride_tricks.sliding_window_view(flags, width, axis=1)
        trained: NDArray[np.bool_] = stretches[np.arange(len(begins)), begins & 7]
        return trained

    # The stream of documents: where rows begin is found in the mapped index, not kept.

    @cached_property
    def _run_bounds(self) -> NDArray[np.int64]:
        runs = self._runs
        sizes = runs.stops - runs.begins
        for number in np.flatnonzero(sizes % self._dtype.itemsize).tolist():
            self._whole(int(sizes[number]), int(runs.firsts[number]))
        return np.concatenate([[0], np.cumsum(sizes // self._dtype.itemsize)]).astype(np.int64)

    @property
    def _stream_tokens(self) -> int:
        return int(self._run_bounds[-1]) if self.sample_size is None else super()._stream_tokens

    def _starts_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.sample_size is not None:
            return super()._starts_of(ids)
        inside = np.minimum(ids, self._length - 1)
        runs = self._runs.of(inside)
        bytes_before = self._rows[inside, 1].astype(np.int64) - self._runs.begins[runs]
        sizes = (self._runs.stops - self._runs.begins)[runs]
        if ((bytes_before < 0) | (bytes_before > sizes)).any():
            raise self._sample_index.damaged("samples of a file do not follow each other")
        starts = self._run_bounds[runs] + bytes_before // self._dtype.itemsize
        return np.where(ids < self._length, starts, self._stream_tokens)

    def _samples_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.sample_size is not None:
            return super()._samples_at(positions)
        runs = np.searchsorted(self._run_bounds, positions, "right") - 1
        tokens = positions - self._run_bounds[runs]
        byte = self._runs.begins[runs] + tokens * self._dtype.itemsize
        firsts = self._runs.firsts
        # The first row that begins behind the token stands behind the row that holds it.
        return rows_before(
            lambda rows: self._rows[rows, 1], byte + 1, firsts[runs], firsts[runs + 1]
        ) - 1  # fmt: skip

    def _run_starts(self) -> NDArray[np.int64] | None:
        return self._run_bounds if self._is_mapped else None

    def _run(self, number: int, width: int) -> NDArray[Any]:
        size = self._dtype.itemsize
        return self._run_items(number, np.dtype((np.void, width * size)), size)

    def _borders(self, begins: NDArray[np.int64], stops: NDArray[np.int64]) -> Ends | None:
        size, documents = self.sample_size, self._sample_index.documents
        if size is None or documents is None:
            return super()._borders(begins, stops)
        touched, first_touched = between(begins // size, (stops - 1) // size + 1)
        ends, offsets = _ends(documents, touched, size)
        counts = np.diff(offsets)
        samples = np.repeat(touched, counts)
        found = samples * size + ends
        rows = np.repeat(np.repeat(np.arange(len(begins)), np.diff(first_touched)), counts)
        is_inside = (found > begins[rows]) & (found < stops[rows])
        # A sample ends with a piece of a document that may go on in the next one.
        at_end = np.flatnonzero(is_inside & (ends == size))
        is_inside[at_end] = documents.goes_on[samples[at_end]] == 0
        return ends_of(found, rows, is_inside, len(begins))

    def _about(self) -> str:
        known = None if self.sample_size is None else self._known
        return super()._about() + (f", {counted(known.documents, 'document')}" if known else "")

    def __getstate__(self) -> dict[str, Any]:
        state = Dataset.__getstate__(self)
        for name in ("_runs", "_run_bounds", "_bounds", "_sample_kind"):
            state.pop(name, None)
        return state


def _ends(documents: Documents, samples: NDArray[np.int64], size: int) -> Ends:
    """Return where documents end in samples of `size` tokens, ascending in each of them."""
    places, offsets = between(*documents.bounds(samples, size))
    ends = documents.ends[places].astype(np.int64)
    if len(ends):
        steps = np.diff(ends, prepend=0)
        steps[offsets[:-1]] = ends[offsets[:-1]]
        if steps.min() < 1 or ends.max() > size:
            row = int(((steps < 1) | (ends > size)).argmax())
            at = int(np.searchsorted(offsets, row, "right")) - 1
            raise documents.damaged(int(samples[at]))
    return ends, offsets


def open_tokens(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    index: str | os.PathLike[str] | None = None,
    token_dtype: DTypeLike | None = None,
) -> TokensDataset | TokensWithAuxDataset:
    """Return the samples of a token folder; `index` is the folder of an index elsewhere.

    `token_dtype` is needed where neither `meta.json` nor the samples themselves tell it.
    """
    folder = "index"
    if not is_remote(path):
        path = locate(path)[1]
        folder = folder if index is None else os.path.relpath(locate(index)[1], path)
    found = load_folder(path, folder, storage_options)
    if found.sample_schema is not None:
        if token_dtype is not None:
            raise OptionError(
                f"{path}: sample_schema.json has the types of its arrays: leave token_dtype out."
            )
        return TokensWithAuxDataset(found)
    dataset = TokensDataset(found, token_dtype)
    if found.meta is None and token_dtype is None and _may_be_wide(dataset, found):
        raise OptionError(
            f"{path} does not say of which type its tokens are, and uint16 and uint32 are both "
            "possible.",
            remedy="Give the one that they were written with: format_options={'token_dtype': "
            "'uint16'} or {'token_dtype': 'uint32'} (--token-dtype).",
        )
    return dataset


def _may_be_wide(dataset: TokensDataset, index: SampleIndex) -> bool:
    """Whether tokens that are read as uint16 may be those of uint32.

    They are not where a sample is no whole number of 4 bytes, or a token would be greater than any
    vocabulary.
    """
    rows = index.sample_locations
    for at in range(0, len(rows), _STRETCH):
        if (rows[at : at + _STRETCH, 1:] % 4).any():
            return False
    some = np.linspace(0, len(rows) - 1, min(len(rows), _LOOKED_AT)).astype(np.int64)
    tokens = np.frombuffer(b"".join(map(dataset.raw, some.tolist())), "<u4")
    return bool(len(tokens)) and int(tokens.max()) < _MOST_TOKENS
