"""Indexers, which index text files when called, and the store that custom ones write to."""

from __future__ import annotations

import io
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Protocol

import numpy as np

from penstock.errors import (
    CorruptIndexError,
    IndexExistsError,
    ObjectNotFoundError,
    OptionError,
)
from penstock.index._build import BuildOptions, Mode
from penstock.index._fingerprint import file_fingerprint
from penstock.index._folder import NewFolder
from penstock.index._heads import head_of
from penstock.index._listing import INDEX_FOLDER, Found, IndexPlace, Listing, list_files, place_of
from penstock.index._meta import FileMeta, Meta, RecordRun, TokensMeta, write_meta
from penstock.index._names import BAD_LINES, FILES, ROWS
from penstock.index._open_index import load_beside, make_index
from penstock.index._sample_schema import SAMPLE_SCHEMA, SampleSchema, encode_schema
from penstock.index._scan import LineScan, LineScanner, ScannedFrames, opened, scan_file
from penstock.jsonl import BOM, TextFile, read_pieces
from penstock.storage import StorageOptions, join, local_path, locate
from penstock.work import Bar

if TYPE_CHECKING:
    from penstock.index._sample_index import SampleIndex

_ENDINGS = (".jsonl", ".jsonl.zst", ".jsonl.zstd", ".jsonl.gz")
"""What `create_default_jsonl_indexer` reads of a folder; `penstock.open` reads other names, too."""
_ROWS_AT_ONCE = 65_536
_log = logging.getLogger("penstock.index")
_PIECE_BYTES = 1 << 20


class IndexStoreInterface(Protocol):
    """Writes and loads sample locations."""

    def init_store(self) -> None:
        """Begin to write; before the first `add_sample`."""

    def add_sample(self, file_location: str, byte_offset: int, num_bytes: int) -> None:
        """Add the next sample."""

    def close(self) -> None:
        """Publish the index."""

    def load(self) -> SampleIndex:
        """Return the index."""

    def exists(self) -> bool:
        """Whether there is an index."""

    def clear(self) -> None:
        """Remove the index."""


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
        self._base = local_path(base_path)
        self._index = index_data_folder
        self._folder = join(self._base, index_data_folder)
        self._new: NewFolder | None = None
        self._rows: BinaryIO | None = None
        self._waiting: list[tuple[int, int, int]] = []
        self._files: dict[str, int] = {}
        self._runs: list[list[int]] = []
        self._bytes: dict[int, int] = {}
        self._schema: SampleSchema | None = None
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
        if self._rows is None:
            raise OptionError("call init_store() before add_sample(), and close() after the last.")
        path = local_path(file_location)
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

    def set_sample_schema(self, schema: SampleSchema) -> None:
        """Say which arrays every sample consists of; `close` writes `sample_schema.json`."""
        self._schema = schema

    def close(self) -> None:
        """Publish the samples; do nothing without `init_store`."""
        if self._new is None or self._rows is None:
            return
        if self._schema is not None:
            (self._new.path / SAMPLE_SCHEMA).write_bytes(encode_schema(self._schema))
        self._write_rows()
        self._rows.close()
        records: Counter[int] = Counter()
        for number, count in self._runs:
            records[number] += count
        files = [self._file(path, number, records[number]) for path, number in self._files.items()]
        runs = [RecordRun(file, records, files[file].fingerprint) for file, records in self._runs]
        kind = "samples" if self.tokens is None else "tokens"
        meta = Meta(kind, files, runs, tokens=self.tokens, created=time.time())
        write_meta(self._new.path, meta)
        try:
            self._new.publish(replace=False)
        finally:
            self.discard()

    def load(self) -> SampleIndex:
        """Return the index, or raise what is wrong with it or with its files."""
        return load_beside(self._base, self._index, StorageOptions())

    def exists(self) -> bool:
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
        found = _found(path)
        with found.open() as file:
            fingerprint = file_fingerprint(file)
        relative, entry = os.path.relpath(path, self._base), found.entry
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


@dataclass(frozen=True, slots=True)
class SampleData:
    """One sample, and the file in which its generator stores it."""

    sample_bytes: bytes
    file_path: str


class SampleGeneratorInterface(Protocol):
    """Turns lines of text into samples, which it stores one after the other.

    `get_sample_schema() -> SampleSchema | None` is optional: the arrays that samples consist of.
    """

    def prepare(self, text_file_path: str) -> None:
        """Begin a file."""

    def create_samples(self, text_line: bytes) -> list[SampleData]:
        """Return the samples of a line; each follows the one before it in its file."""

    def finish(self, is_last_file: bool) -> None:  # noqa: FBT001 (the protocol's own words)
        """End a file."""


def noop_sample_processing(text_line: bytes, text_file_path: str) -> list[SampleData]:
    """Return a line as the only sample of itself."""
    return [SampleData(text_line, text_file_path)]


class NOOPSampleGenerator:
    """Makes every line a sample of its own file; `FileTextLinesIndexer` does so without it."""

    _path = ""

    def prepare(self, text_file_path: str) -> None:
        """Begin a file."""
        self._path = text_file_path

    def create_samples(self, text_line: bytes) -> list[SampleData]:
        """Return the line."""
        return noop_sample_processing(text_line, self._path)

    def finish(self, is_last_file: bool) -> None:  # noqa: FBT001 (the protocol's own words)
        """End a file."""

    def get_sample_schema(self) -> None:
        """Return None: a sample is a line."""


class FileTextLinesIndexer:
    """Indexes the lines of text files, or samples that a generator makes of them, when called."""

    def __init__(
        self,
        input_file_paths: Sequence[str],
        index_store: IndexStoreInterface,
        sample_generator: SampleGeneratorInterface | None = None,
        description: str | None = None,
        name: str | None = None,
    ) -> None:
        self._paths = [os.path.expanduser(path) for path in input_file_paths]
        self._store = index_store
        is_noop = type(sample_generator) is NOOPSampleGenerator
        self._generator = None if is_noop else sample_generator
        self._description = description or "indexing"

    def __call__(self) -> None:
        # A subclass is called for every sample: it may add to what a store does.
        if self._generator is None and type(self._store) is IndexStore:
            base, files = self._store.base_path, list(map(_found, self._paths))
            listing = Listing(tuple(found.path for found in files), base, base, files)
            make_index(listing, LineScanner(), "new", index=self._store.place.folder)
            return
        self._store.init_store()
        try:
            describe = getattr(self._generator, "get_sample_schema", None)
            if describe is not None and (schema := describe()) is not None:
                self._store.set_sample_schema(schema)  # type: ignore[attr-defined]
            sizes = sum(os.path.getsize(path) for path in self._paths)
            with Bar(sizes, None, self._description) as bar:
                if self._generator is None:
                    self._add_lines(bar)
                else:
                    self._add_samples(self._generator, bar)
        except BaseException:
            if isinstance(self._store, IndexStore):
                self._store.discard()
            if (discard := getattr(self._generator, "discard", None)) is not None:
                discard()
            raise
        describe = getattr(self._generator, "tokens_meta", None)
        if isinstance(self._store, IndexStore) and describe is not None:
            self._store.tokens = describe()
        self._store.close()

    def _add_lines(self, bar: Bar) -> None:
        for path in self._paths:
            with opened(_found(path)) as file:
                for places in scan_file(file, LineScan(), 0, bar.add, ScannedFrames()):
                    for offset, size in places.tolist():
                        self._store.add_sample(path, offset, size)

    def _add_samples(self, generator: SampleGeneratorInterface, bar: Bar) -> None:
        # Of samples that are lines themselves the first may stand behind a byte order mark.
        offsets = {path: len(BOM) * head_of(_found(path)).startswith(BOM) for path in self._paths}
        for number, path in enumerate(self._paths):
            generator.prepare(path)
            for line in _lines(path, bar.add):
                for sample in generator.create_samples(line):
                    offset = offsets.get(sample.file_path, 0)
                    size = len(sample.sample_bytes)
                    self._store.add_sample(sample.file_path, offset, size)
                    offsets[sample.file_path] = offset + size
            generator.finish(is_last_file=number == len(self._paths) - 1)


def create_default_jsonl_indexer(  # noqa: PLR0913 (options, by name)
    input_base_path: str | os.PathLike[str],
    name: str | None = None,  # noqa: ARG001 (accepted for code that passes it)
    *,
    overwrite: bool = False,
    update: bool = False,
    progress: bool | None = None,
    full_hash: bool = False,
    validate: bool = False,
    profile: bool = False,
    max_line_bytes: int | None = None,
    num_workers: int | None = None,
    index: str | os.PathLike[str] | None = None,
    storage_options: dict[str, object] | None = None,
) -> Callable[[], None]:
    r"""Return an indexer of all JSON Lines files of a folder and those below it.

    An existing index raises a `ValueError`, unless `overwrite` builds it again or `update` adds new
    files and lines that were appended to old ones.

    `validate` reads every line: a line that is not JSON, not an object, or longer than
    `max_line_bytes` is no sample, and `read_bad_lines` lists it. `profile` collects facts of every
    field, for `read_profile`. Both read the files once, with `num_workers` processes (by default
    one a processor, and none for little data); an update does what the index was built with.

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"id": 1}\n')
    >>> create_default_jsonl_indexer(folder)()
    >>> sorted(path.name for path in (folder / "index").iterdir())[-3:]
    ['file_location.txt', 'meta.json', 'sample_locations.bin']
    """
    build = BuildOptions(progress, full_hash, validate, profile, max_line_bytes, num_workers)
    build.check()
    options = StorageOptions(storage_options)
    listing = list_files(input_base_path, _ENDINGS, options)
    if not listing.files:
        path, ends = listing.named[0], ", ".join(_ENDINGS)
        raise ObjectNotFoundError(f"{path} holds no JSON Lines files ({ends}).", path=path)
    mode: Mode = "overwrite" if overwrite else "update" if update else "new"
    return partial(_index_lines, listing, mode, build, options, index)


def _index_lines(
    listing: Listing,
    mode: Mode,
    build: BuildOptions,
    options: StorageOptions,
    index: str | os.PathLike[str] | None,
) -> None:
    scanner = LineScanner()
    meta = make_index(listing, scanner, mode, options=options, index=index, build=build)
    if build.validate and meta.bad_lines:
        place = place_of(listing, scanner, options, index, beside_remote=True)
        text = "bad lines set aside, which are no records: %d; see %s"
        _log.warning(text, meta.bad_lines, join(place.folder, BAD_LINES))


def _found(path: str) -> Found:
    store, name = locate(path)
    return Found(store, store.entry(name))


def _lines(path: str, on_read: Callable[[int], object]) -> Iterator[bytes]:
    for piece in read_pieces([TextFile(*locate(path))], _PIECE_BYTES, on_read):
        yield from io.BytesIO(piece.text)
