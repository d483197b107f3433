"""Tokens of Megatron-LM's indexed datasets (`.bin` and `.idx`) by number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from penstock._words import counted
from penstock.datasets._foreign_file import Reopened, open_blocks_of, open_plain, stale
from penstock.datasets._recently_used import RecentlyUsed
from penstock.datasets._source import Location
from penstock.datasets.megatron._files import BIN, IDX, MegatronFiles, MegatronIndex, prefix_of
from penstock.datasets.text._block_texts import BLOCK_BYTES
from penstock.datasets.text._texts import FileText, MappedText
from penstock.datasets.tokens._layout import one_value
from penstock.datasets.tokens._source import Ends, TokenSource, between, distinct_ends
from penstock.errors import ObjectChangedError, ObjectNotFoundError
from penstock.index import rows_before
from penstock.storage import StorageOptions, is_remote, locate, reading

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray


_KEPT_FILES = 64
_texts: RecentlyUsed[FileText] = RecentlyUsed(_KEPT_FILES)


class MegatronTokens(Reopened[MegatronFiles], TokenSource):
    r"""The sequences of a Megatron-LM dataset, local or remote, read only.

    `path` is the prefix, or one of the two files. A row is a sequence; where all have one length
    `sample_size` says it. Both files are mapped and nothing is copied from the `.idx`, however
    many sequences it has; of remote data the `.idx` is fetched once for a host, and the `.bin` is
    read by ranges. Windows know where documents end, which may have several sequences.

    >>> from pathlib import Path
    >>> from struct import pack
    >>> np.arange(5, dtype="<u2").tofile("corpus.bin")
    >>> head = pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 2, 3)
    >>> _ = Path("corpus.idx").write_bytes(head + pack("<2i5q", 3, 2, 0, 6, 0, 1, 2))
    >>> tokens = MegatronTokens("corpus")
    >>> len(tokens), tokens[1].tolist(), tokens.windows(4)[0].tolist()
    (2, [3, 4], [0, 1, 2, 3])
    """

    _NAME_IN_CACHE = "penstock.datasets._megatron.MegatronTokens"

    def __init__(
        self, path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self._options = StorageOptions(storage_options)
        store, name = locate(f"{prefix_of(path)[0]}{IDX}", self._options)
        self._path = store.path(name).removesuffix(IDX)
        self._opened()

    def _open(self) -> MegatronFiles:
        return MegatronFiles(self._path, self._options)

    @property
    def _index(self) -> MegatronIndex:
        return self._opened().index

    @property
    def documents(self) -> int:
        return self._index.documents

    def by_blocks(self) -> Self:
        """Return the same rows out of whole MiB of a remote `.bin`, fetched once a host."""
        if self._is_by_blocks or not is_remote(self._path):
            return self
        return self._by_blocks(self._files)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def files(self) -> list[str]:
        """The `.bin`."""
        return [self._opened().bin.path]

    @property
    def token_dtype(self) -> np.dtype[Any]:
        return self._index.dtype

    @cached_property
    def sample_size(self) -> int | None:
        return one_value(self._index.lengths)

    @property
    def blocks(self) -> NDArray[np.int64]:
        """Row offsets of about 1 MiB of tokens each."""
        rows, end = len(self), self._index.end
        begins = np.arange(BLOCK_BYTES, end, BLOCK_BYTES, dtype=np.int64)
        inner = self._rows_before(begins)
        return np.unique(np.concatenate([[0], inner, [rows]])).astype(np.int64)

    def raw(self, which: int) -> bytes:
        """Return the bytes of a row."""
        _, begins, sizes = self._places(np.array([self._number(which)], np.int64))
        return self._bytes(begins, sizes)[0]

    def __getitem__(self, which: Any) -> Any:
        """Return the row of a number, or rows of a slice, a list or an array of them."""
        if isinstance(which, slice | list | tuple | range) or np.ndim(which):
            return super().__getitem__(which)
        _, begins, sizes = self._places(np.array([self._number(which)], np.int64))
        text = self._mapped()
        if text is None or not sizes[0]:
            return np.frombuffer(self._bytes(begins, sizes)[0], self.token_dtype)
        return text.items(self.token_dtype, int(begins[0]), int(begins[0] + sizes[0]))

    def _places(self, ids: NDArray[np.int64]) -> Location:
        files = self._opened()
        begins, sizes = files.index.located(ids, files.bin.entry.size)
        return Location(np.zeros(len(ids), np.int64), begins, sizes)

    def _text(self) -> FileText:
        files = self._opened()
        text = _texts.get(files.owner, self._is_by_blocks)
        if text is None:
            if self._is_by_blocks:
                text = open_blocks_of(files.bin, self._options)
            else:
                text = open_plain(files.bin)
            _texts.put(files.owner, self._is_by_blocks, text, 1)
        return text

    def _mapped(self) -> MappedText | None:
        text = self._text()
        return text if isinstance(text, MappedText) else None

    def _bytes(self, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> list[bytes]:
        if not sizes.any():
            return [b""] * len(sizes)  # The file may be empty, too.
        try:
            with reading():
                return self._text().read_many(begins, sizes)
        except (ObjectChangedError, ObjectNotFoundError) as why:
            raise stale(self.files[0], str(why)) from None

    def _flat(self, ids: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        _, begins, sizes = self._places(ids)
        # A bytearray, because the caller may write to it.
        data = bytearray().join(self._bytes(begins, sizes))
        return np.frombuffer(data, self.token_dtype), sizes // self.token_dtype.itemsize

    def _fresh(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        text, width = self._mapped(), self.sample_size or 0
        if text is None or not len(ids):
            return super()._fresh(ids)
        _, begins, _ = self._places(ids)
        item = self.token_dtype.itemsize
        # A row as one value begins at every token, so that a gather copies each at once.
        kind = np.dtype(f"V{width * item}")
        rows: NDArray[Any] = text.items(kind, 0, self._opened().bin.entry.size, item)[
            begins // item
        ]
        return rows.view(self.token_dtype).reshape(len(ids), width)

    def _lengths(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        _, _, sizes = self._places(ids)
        lengths: NDArray[np.int64] = sizes // self.token_dtype.itemsize
        return lengths

    def _document_ends(self, ids: NDArray[np.int64]) -> Ends | None:
        # A sequence is of one document, and ends with it or with a piece of it.
        return self._lengths(ids), np.arange(len(ids) + 1, dtype=np.int64)

    # The stream is the .bin itself: the place of a byte gives that of its token.

    @cached_property
    def _no_stream(self) -> str:
        if self._index.is_stream():
            return ""
        return (
            f"the sequences of {self._path}{BIN} do not lie one after the other. Take them as "
            "they are, or write the data again with Megatron-LM's tools."
        )

    @property
    def _stream_tokens(self) -> int:
        return self._index.end // self.token_dtype.itemsize

    def _starts_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(self):
            return np.zeros(len(ids), np.int64)
        starts = self._index.places[np.minimum(ids, len(self) - 1)] // self.token_dtype.itemsize
        return np.where(ids < len(self), starts, self._stream_tokens)

    def _rows_before(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first row that begins at each byte or behind it."""
        return _first_of(len(self), lambda rows: self._index.places[rows], places)

    def _samples_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._rows_before(positions * self.token_dtype.itemsize + 1) - 1

    def _run_starts(self) -> NDArray[np.int64] | None:
        if self._mapped() is None:
            return None
        return np.array([0, self._stream_tokens], np.int64)

    def _run(self, number: int, width: int) -> NDArray[Any]:
        item, text = self.token_dtype.itemsize, self._mapped()
        assert text is not None  # noqa: S101 (else there are no runs)
        return text.items(np.dtype(f"V{width * item}"), 0, self._index.end, item)

    def _borders(self, begins: NDArray[np.int64], stops: NDArray[np.int64]) -> Ends | None:
        borders = self._index.borders

        def starts(documents: NDArray[np.int64]) -> NDArray[np.int64]:
            return self._starts_of(borders[documents])

        lows, highs = (_first_of(len(borders), starts, keys) for keys in (begins + 1, stops))
        documents, offsets = between(lows, highs)
        return distinct_ends(starts(documents), offsets)

    def _about(self) -> str:
        tokens = self._opened().bin.entry.size // self.token_dtype.itemsize
        width = "" if self.sample_size is None else f", {self.sample_size:,} a record"
        documents = counted(self._index.documents, "document")
        return f"{counted(tokens, 'token')} ({self.token_dtype.name}){width}, {documents}"


def _first_of(
    count: int, values: Callable[[NDArray[np.int64]], NDArray[np.int64]], keys: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the first of `count` rising values that is not below each key."""
    low, high = np.zeros(len(keys), np.int64), np.full(len(keys), count, np.int64)
    return rows_before(lambda rows: values(rows).view(np.uint64), keys, low, high)
