"""Records that lie in files as runs of bytes, found through an index."""

from __future__ import annotations

import os
import struct
import threading
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from penstock._words import counted
from penstock.datasets._source import Location
from penstock.datasets.text._about import AboutText
from penstock.datasets.text._block_texts import BlockText, block_firsts, blocked_runs, open_blocks
from penstock.datasets.text._texts import (
    REBUILD,
    FramedText,
    MappedText,
    RangedText,
    StreamText,
    grouped,
    is_stream,
    read_grouped,
)
from penstock.errors import ObjectNotFoundError, OptionError, StaleIndexError
from penstock.index import IndexStore, file_fingerprint, load_beside
from penstock.jsonl import SEQUENTIAL, compression_of
from penstock.storage import (
    Entry,
    LocalStore,
    StorageOptions,
    is_network,
    is_remote,
    locate,
    reading,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.datasets.text._block_texts import Runs
    from penstock.datasets.text._texts import FileText
    from penstock.index import FileMeta, SampleIndex

ROW = struct.Struct("<QQQ")
_MOST_OPEN = 128
"""Files that are open or mapped at the same time; each is a descriptor."""
_SAMPLED = 1000
_LEAST_RUN = 64
"""Records that are worth a look whether they lie one after the other."""
_opening = threading.RLock()
_opened: deque[tuple[weakref.ref[Dataset], int]] = deque()
_datasets: weakref.WeakSet[Dataset] = weakref.WeakSet()


class Dataset(AboutText):
    """Samples by number; a subclass says in `_process_sample` what bytes mean.

    Nothing is open before the first sample is asked for. Any number of threads and processes may
    read, also those forked after the first sample was read: reads are by position.
    """

    _by_ranges: Dataset | None = None
    """The same samples without blocks, for a dataset that was made by `by_blocks`."""

    @classmethod
    def create_from_index_on_filesystem(
        cls,
        base_path: str | os.PathLike[str],
        index_data_folder: str = "index",
        name: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Open the index in a folder, local or remote; `kwargs` are the constructor's."""
        index = load_folder(base_path, index_data_folder, storage_options)
        return cls.from_index(index, name, **kwargs)

    @classmethod
    def from_index(cls, sample_index: SampleIndex, name: str | None = None, **kwargs: Any) -> Self:
        """Return the records that an index describes; `kwargs` are the constructor's."""
        return cls(sample_index, name=name, **kwargs)

    def __init__(self, sample_index: SampleIndex, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # Of a class that a subclass inherits from beside this one.
        self._take_index(sample_index, name)

    def _take_index(self, sample_index: SampleIndex, name: str | None) -> None:
        self._sample_index = sample_index
        self._name = name
        self._length = len(sample_index)
        # By bytes, because a row of an array costs five times as much.
        rows = np.ascontiguousarray(sample_index.sample_locations, np.uint64)
        self._rows = rows
        self._row_bytes = rows.data.cast("B") if len(rows) else memoryview(b"")
        self._texts: dict[int, FileText] = {}
        _datasets.add(self)
        self._schema: pa.Schema | None = None

    @abstractmethod
    def _process_sample(self, sample_bytes: bytes) -> Any:
        """Return what a sample's bytes mean."""

    def initialize(self) -> None:
        """Open the first files ahead of time; there is no need to."""
        for number in range(min(_MOST_OPEN, len(self._sample_index.file_locations))):
            self._text(number)

    @property
    def is_initialized(self) -> bool:
        """Whether files are open in this process."""
        return bool(self._texts)

    def __len__(self) -> int:
        return self._length

    @cached_property
    def fingerprint(self) -> str:
        return self._sample_index.fingerprint

    def _past(self, least: int, most: int) -> Iterator[tuple[int, str]]:
        meta = self._sample_index.meta
        if meta is None:
            yield from super()._past(least, most)
            return
        # An update appends whole runs, so that it had every length at which a run ends, the last
        # ones first: those are asked for.
        ends = np.unique(meta.starts())
        for end in ends[(least <= ends) & (ends <= most)][::-1].tolist():
            yield end, self.fingerprint if end == self._length else meta.fingerprint_at(end)

    def _has_finished(self, least: int, most: int) -> bool:
        meta = self._sample_index.meta
        runs = [] if meta is None else zip(meta.runs, meta.starts()[1:].tolist(), strict=True)
        return any(end <= most and run.finished_after >= least > 0 for run, end in runs)

    @property
    def files(self) -> list[str]:
        return list(self._sample_index.file_locations)

    def by_blocks(self) -> Self:
        if self._by_ranges is not None or not self._block_runs:
            return self
        twin = copy(self)
        vars(twin).update(_by_ranges=self, _texts={})
        _datasets.add(twin)
        return twin

    @cached_property
    def _block_runs(self) -> dict[int, Runs]:
        index = self._sample_index
        return {} if index.meta is None else blocked_runs(index, index.meta)

    def _places(self, ids: NDArray[np.int64]) -> Location:
        return Location(*self._sample_index.rows_of(ids).T)

    def raw(self, which: int) -> bytes:
        return self._raw(self._number(which))

    @property
    def blocks(self) -> NDArray[np.int64]:
        """Record offsets of about 1 MiB of text each, or of zstd frames."""
        meta = self._sample_index.meta
        if meta is None or not self._length:
            return super().blocks
        starts = meta.starts()
        borders = [np.array([0], np.int64)]
        for run, low, high in zip(meta.runs, starts[:-1], starts[1:], strict=True):
            firsts = block_firsts(self._sample_index, run.file, int(low), int(high))
            borders += [firsts, np.array([high])]
        return np.unique(np.concatenate(borders))

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of up to 1,000 records, the first ones and others spread over all."""
        if self._by_ranges is not None:
            # A few records out of everywhere are not worth their blocks.
            return self._by_ranges.schema
        if self._schema is None:
            first = np.arange(min(self._length, _SAMPLED // 2))
            spread = np.linspace(0, max(0, self._length - 1), _SAMPLED // 2).astype(np.int64)
            some = np.unique(np.concatenate([first, spread]))[: self._length]
            self._schema = self._schema_of(some)
        return self._schema

    def _schema_of(self, ids: NDArray[np.int64]) -> pa.Schema:
        return self._inferred(ids).schema

    def _raw(self, number: int) -> bytes:
        file, offset, size = ROW.unpack_from(self._row_bytes, number * ROW.size)
        text = self._texts.get(file) or self._text(file)
        return text.read(offset, size)

    def _bytes_of(self, ids: NDArray[np.int64]) -> list[bytes]:
        """Return each record's own bytes; every file is asked once."""
        if not len(ids):
            return []
        files, begins, sizes = self._sample_index.rows_of(ids).T

        def read(which: NDArray[np.int64]) -> list[bytes]:
            return self._text(int(files[which[0]])).read_many(begins[which], sizes[which])

        def is_quick(which: NDArray[np.int64]) -> bool:
            text, begin = self._text(int(files[which[0]])), begins[which]
            return isinstance(text, BlockText) and text.is_at_hand(begin, begin + sizes[which])

        with reading():
            if (files == files[0]).all():
                return self._text(int(files[0])).read_many(begins, sizes)
            at_once = is_remote(self._sample_index.file_locations[0])
            if self._by_ranges is not None:
                at_once = not all(map(is_quick, grouped(files)))
            return read_grouped(files, read, at_once=at_once)

    def _text_of_run(self, ids: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]] | None:
        """Return the text of records that lie one after the other, and where each of them ends.

        None for others: they are read one by one.
        """
        if len(ids) < _LEAST_RUN:
            return None
        first, last = int(ids[0]), int(ids[-1])
        if last - first != len(ids) - 1 or (np.diff(ids) != 1).any():
            return None
        rows = self._rows[first : last + 1]
        ends = (rows[:, 1] + rows[:, 2]).astype(np.int64)
        start = int(rows[0, 1])
        if (rows[:, 0] != rows[0, 0]).any() or (ends[:-1] != rows[1:, 1]).any():
            return None
        if start > int(ends[0]) or ends[-1] == start or (np.diff(ends) < 0).any():
            return None  # Without bytes, or damaged: reading them one by one says which.
        with reading():
            text = self._text(int(rows[0, 0])).read(start, int(ends[-1]) - start)
        return text, ends - start

    def _text(self, file: int) -> FileText:
        text = self._texts.get(file)
        if text is None:
            index = self._sample_index
            if file >= len(index.file_locations):
                count = len(index.file_locations)
                raise index.damaged(f"it speaks of file {file}, and names {count:,}")
            with _opening:
                text = self._texts.get(file)
                runs = None if self._by_ranges is None else self._block_runs.get(file)
                if text is None and runs is not None and index.meta is not None:
                    text = open_blocks(index, index.meta, file, runs)
                elif text is None:
                    text = open_text(index, file)
                    _let_go_of_old()
                    _opened.append((weakref.ref(self), file))
                self._texts[file] = text
        return text

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        return [self._process_sample(text) for text in self._bytes_of(ids)]

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        raise OptionError(f"{type(self).__name__} has samples, not records with fields.")

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        raise OptionError(f"{type(self).__name__} has samples, not records with fields.")

    def __getstate__(self) -> dict[str, Any]:
        state = {**vars(self), "_texts": {}, "_schema": None}
        del state["_rows"], state["_row_bytes"]
        for known in ("_block_runs", "fingerprint"):
            state.pop(known, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._take_index(self._sample_index, self._name)


def load_folder(
    base_path: str | os.PathLike[str],
    index_data_folder: str,
    storage_options: Mapping[str, Any] | None,
) -> SampleIndex:
    """Return the index in a folder, local or remote."""
    if is_remote(base_path):
        options = StorageOptions(storage_options)
        return load_beside(os.fspath(base_path), index_data_folder, options)
    return IndexStore(base_path, index_data_folder=index_data_folder).load()


def open_text(index: SampleIndex, number: int) -> FileText:
    """Open one file of an index; a file that changed since raises."""
    path = index.file_locations[number]
    options = index.origin.options if index.origin is not None else None
    store, name = locate(path, options)
    meta = index.meta.files[number] if index.meta is not None else None
    compression = compression_of(path)
    if isinstance(store, LocalStore):
        remedy = _remedy(index)
        _check_unchanged(path, store, name, meta, remedy)
        if compression is None and not is_network(name):
            return MappedText(name, path, remedy)
    known = Entry(name, meta.size, meta.modified, meta.version) if meta is not None else None
    file = store.open(name, known)
    if compression is None:
        return RangedText(file)
    if is_stream(index, number):
        longest = None if meta is None else meta.bytes
        return StreamText(file, compression if compression in SEQUENTIAL else "", longest)
    return FramedText(file, index.frames_of(number))


def _remedy(index: SampleIndex) -> str:
    meta = index.meta
    if index.file_locations[0].endswith(".bin") if meta is None else meta.is_of_tokens:
        return "Tokenise the text again: penstock tokenize SRC DST --overwrite"
    return REBUILD


def _check_unchanged(
    path: str, store: LocalStore, name: str, meta: FileMeta | None, remedy: str
) -> None:
    try:
        entry = store.entry(name)
    except ObjectNotFoundError:
        message = f"{path} is gone since the index was built. Bring it back. {remedy}"
        raise StaleIndexError(message, path=path) from None
    if meta is None:
        return
    same = (entry.size, entry.modified) == (meta.size, meta.modified)
    if not same and entry.size >= meta.size:
        with closing(store.open(name)) as file:
            same = file_fingerprint(file, meta.size) == meta.fingerprint
    if not same:
        what = f"{counted(meta.size, 'byte')} then, {entry.size:,} now"
        if entry.size == meta.size:
            what = "other content at equal size"
        message = f"{path} changed since the index was built: {what}. {remedy}"
        raise StaleIndexError(message, path=path)


def _let_go_of_old() -> None:
    """Close what was opened first, whichever dataset it belongs to: descriptors are few."""
    while len(_opened) >= _MOST_OPEN:
        owner, file = _opened.popleft()
        dataset = owner()
        if dataset is not None:
            dataset._texts.pop(file, None)  # noqa: SLF001 (of this class)


def _after_fork_in_child() -> None:
    # Locks, of this module and in texts, may be held by threads that are not here.
    global _opening  # noqa: PLW0603
    _opening = threading.RLock()
    _opened.clear()
    for dataset in list(_datasets):
        dataset._texts = {}  # noqa: SLF001 (of this class)


os.register_at_fork(after_in_child=_after_fork_in_child)
