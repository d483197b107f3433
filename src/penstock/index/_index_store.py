"""An index that custom indexers write sample by sample."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penstock.errors import CorruptIndexError, IndexExistsError, OptionError
from penstock.index._fingerprint import file_fingerprint
from penstock.index._folder import NewFolder
from penstock.index._listing import INDEX_FOLDER
from penstock.index._load import load_index
from penstock.index._meta import FORMAT, VERSION, FileMeta, Meta, RecordRun, encode_meta
from penstock.index._names import FILES, META, ROWS
from penstock.index._place import IndexPlace
from penstock.index._sample_index import Origin
from penstock.index._stale import check_fresh, listing_of, repairing
from penstock.storage import LocalStore, StorageOptions, join

if TYPE_CHECKING:
    from typing import BinaryIO

    from penstock.index._meta import TokensMeta
    from penstock.index._sample_index import SampleIndex

_ROWS_AT_ONCE = 65_536


class IndexStoreInterface(Protocol):
    """Writes and loads sample locations."""

    def init_store(self) -> None:
        """Begin to write; before the first `add_sample`."""
        ...

    def add_sample(self, file_location: str, byte_offset: int, num_bytes: int) -> None:
        """Add the next sample."""
        ...

    def close(self) -> None:
        """Publish the index."""
        ...

    def load(self) -> SampleIndex:
        """Return the index."""
        ...

    def exists(self) -> bool:
        """Whether there is an index."""
        ...

    def clear(self) -> None:
        """Remove the index."""
        ...


class IndexStore:
    """An index in the folder `index_data_folder` of `base_path`.

    It appears whole when `close` is called; until then it is invisible.
    """

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        index_data_folder: str = INDEX_FOLDER,
        name: str | None = None,
    ) -> None:
        self._base = os.path.abspath(base_path)
        self._folder = join(self._base, index_data_folder)
        self._name = name
        self._new: NewFolder | None = None
        self._rows: BinaryIO | None = None
        self._waiting: list[tuple[int, int, int]] = []
        self._files: dict[str, int] = {}
        self._runs: list[list[int]] = []
        self._bytes: dict[int, int] = {}
        self.tokens: TokensMeta | None = None
        """Description of token samples; set before `close`."""

    @property
    def base_path(self) -> str:
        """The folder that file locations are relative to."""
        return self._base

    @property
    def place(self) -> IndexPlace:
        """Where the index lies."""
        beside = os.path.dirname(self._folder) == self._base
        return IndexPlace(self._folder, self._base, StorageOptions(), beside)

    def init_store(self) -> None:
        """Begin to write; an existing index raises a `ValueError`."""
        if os.path.exists(self._folder):
            raise IndexExistsError(
                f"there is an index in {self._folder} already; clear() removes it, or build with "
                "overwrite=True."
            )
        self._new = NewFolder(self.place).__enter__()
        self._rows = (self._new.path / ROWS).open("wb")
        self._files, self._runs, self._waiting, self._bytes = {}, [], [], {}

    def add_sample(self, file_location: str, byte_offset: int, num_bytes: int) -> None:
        """Add the next sample."""
        if self._rows is None:
            raise OptionError("call init_store() before add_sample(), and close() after the last.")
        path = os.path.abspath(file_location)
        if path not in self._files and not path.startswith(f"{self._base}/"):
            raise OptionError(f"{path} does not lie below {self._base}; an index names no others.")
        number = self._files.setdefault(path, len(self._files))
        if not self._runs or self._runs[-1][0] != number:
            self._runs.append([number, 0])
        self._runs[-1][1] += 1
        self._bytes[number] = self._bytes.get(number, 0) + num_bytes
        self._waiting.append((number, byte_offset, num_bytes))
        if len(self._waiting) >= _ROWS_AT_ONCE:
            self._write_rows()

    def close(self) -> None:
        """Publish the samples; do nothing without `init_store`."""
        if self._new is None or self._rows is None:
            return
        self._write_rows()
        self._rows.close()
        records: Counter[int] = Counter()
        for number, count in self._runs:
            records[number] += count
        files = [self._file(path, number, records[number]) for path, number in self._files.items()]
        runs = [RecordRun(file, records, files[file].fingerprint) for file, records in self._runs]
        kind = "samples" if self.tokens is None else "tokens"
        meta = Meta(kind, files, runs, format=FORMAT, version=VERSION, tokens=self.tokens)
        names = "".join(f"{file.path}\n" for file in files)
        (self._new.path / FILES).write_text(names, encoding="utf-8", errors="surrogateescape")
        (self._new.path / META).write_bytes(encode_meta(meta))
        try:
            self._new.publish(replace=False)
        finally:
            self.discard()

    def load(self) -> SampleIndex:
        """Return the index, or raise what is wrong with it or with its files."""
        index = load_index(Origin(self._folder, self._base, StorageOptions()))
        if index.meta is not None:
            listing = listing_of(index.meta, self._base)
            check_fresh(listing, index.meta, repairing(index.meta, self._base))
        return index

    def exists(self) -> bool:
        """Whether there is an index."""
        return all(os.path.exists(join(self._folder, name)) for name in (FILES, ROWS))

    def clear(self) -> None:
        """Remove the index; a folder that is no index raises."""
        if not os.path.isdir(self._folder):
            return
        if not os.path.exists(join(self._folder, FILES)):
            raise CorruptIndexError(
                f"{self._folder} is not an index and is not removed.", path=self._folder
            )
        shutil.rmtree(self._folder)

    def _write_rows(self) -> None:
        if self._rows is not None and self._waiting:
            self._rows.write(np.array(self._waiting, "<u8").tobytes())
            self._waiting.clear()

    def _file(self, path: str, number: int, records: int) -> FileMeta:
        store = LocalStore()
        entry, file = store.entry(path), store.open(path)
        try:
            fingerprint = file_fingerprint(file)
        finally:
            file.close()
        relative = os.path.relpath(path, self._base)
        size, modified = entry.size, entry.modified
        return FileMeta(relative, size, modified, fingerprint, records, self._bytes[number])

    def discard(self) -> None:
        """Drop the samples added since `init_store`."""
        if self._rows is not None:
            self._rows.close()
        if self._new is not None:
            self._new.__exit__()
        self._new = self._rows = None

    def __del__(self) -> None:
        if getattr(self, "_new", None) is not None:
            self.discard()  # Not closed: not finished.
