"""One JSON Lines file, and what it has in common with a directory of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from penstock._redact import without_secrets
from penstock.errors import ObjectNotFoundError, OptionError
from penstock.jsonl._async_writers import JsonlWriter
from penstock.jsonl._names import base_name, compression_of
from penstock.jsonl._policy import ErrorPolicy, OnError
from penstock.jsonl._prefetch import ShardRuns, runs_of_shards
from penstock.jsonl._records import batches_of, record_stream, records_of, stream, stream_async
from penstock.jsonl._sync_writers import JsonlWriterSync
from penstock.jsonl._targets import FileTarget, WriteOptions
from penstock.jsonl._text import TextFile, TextPiece, read_pieces
from penstock.jsonl._threads import AsyncFile, awaited, in_thread
from penstock.storage import (
    LocalStore,
    StorageOptions,
    is_remote,
    locate,
    new_remote_path,
    open_for_reading,
    open_for_writing,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.jsonl._arrow import SchemaChoice
    from penstock.jsonl._records import AsyncRecordIterator, RecordIterator, Run
    from penstock.storage import Store

DEFAULT_QUEUE = 8192
"""Records of the next file that are decoded ahead."""


class JsonlPath(ABC):
    """A small picklable value: it names a place and holds nothing open.

    `hash` is a text of the caller, such as a key of a cache: it travels along, and has no effect.
    """

    __slots__ = ("hash", "path", "storage_options")
    format: ClassVar[str] = "jsonl"
    _may_be_bucket: ClassVar[bool]

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        *,
        hash: str | None = None,  # noqa: A002 (the seed's name)
    ) -> None:
        storage_options = StorageOptions(storage_options)  # So that no traceback shows secrets.
        if not isinstance(hash, str | None):
            raise OptionError(
                f"a hash is a string, not {type(hash).__name__}: Penstock computes none while it "
                "writes. Give the key itself; storage options are storage_options=."
            )
        self.path = os.path.expanduser(os.fspath(path))  # noqa: PTH111 (a URL is no Path)
        self.storage_options = storage_options
        self.hash = hash
        _, name = locate(self.path, storage_options)
        if not name and not self._may_be_bucket:
            raise OptionError(f"{self.path}: this names a bucket; a file needs a name in it.")

    @classmethod
    def _uploaded(
        cls,
        local_path: str | os.PathLike[str],
        destination: str | os.PathLike[str] | None,
        key: str | None,
        storage_options: StorageOptions,
    ) -> Self:
        """Copy local data to a destination, or to a new place below a remote default root."""
        local = cls(Path(local_path).expanduser().absolute(), hash=key)
        local._look()
        if destination is None:
            destination = new_remote_path(local.name)
            if not is_remote(destination):
                return local  # A root on this machine: the data are as near where they are.
        remote = cls(destination, storage_options, hash=key)
        local._copy(remote)
        return remote

    @property
    def name(self) -> str:
        """The last part of the path."""
        return base_name(self.path.rstrip("/"))

    def __repr__(self) -> str:
        options = f", {self.storage_options!r}" if self.storage_options else ""
        return without_secrets(f"{type(self).__name__}({self.path!r}{options})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonlPath) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __fspath__(self) -> str:
        return self.path

    def _value(self) -> tuple[bool, str, StorageOptions]:
        return self._may_be_bucket, self.path, self.storage_options

    @abstractmethod
    def _look(self) -> object:
        """Raise `ObjectNotFoundError` where nothing is."""

    @abstractmethod
    def _copied_to(self, path: Path) -> str:
        """Copy everything to a local path, and return where it is."""

    @abstractmethod
    def _copy(self, target: Self) -> None:
        """Copy everything to another place of this kind."""

    @abstractmethod
    def _sources(self) -> list[TextFile]:
        """Return the files that are read, in order."""

    def _pieces(self, piece_bytes: int) -> Iterator[TextPiece]:
        yield from read_pieces(self._sources(), piece_bytes)

    def _runs(self, queue_size: int = DEFAULT_QUEUE) -> Iterator[Run]:
        yield from runs_of_shards(self._openers(), queue_size)

    def _runs_async(self, queue_size: int = DEFAULT_QUEUE) -> ShardRuns:
        return ShardRuns(self._openers, queue_size)

    def _openers(self) -> list[Callable[[int], Iterator[TextPiece]]]:
        return [partial(read_pieces, [source]) for source in self._sources()]

    def exists_sync(self) -> bool:
        """Whether it is there; for a directory in object storage, whether anything is in it."""
        try:
            self._look()
        except ObjectNotFoundError:
            return False
        return True

    exists = awaited(exists_sync)

    def download_sync(self, local_path: str | os.PathLike[str] | None = None) -> str:
        """Copy the JSON Lines files here and return the local path.

        Without `local_path` what is local stays where it is, and what is remote goes to a new
        temporary directory.
        """
        if local_path is not None:
            return self._copied_to(Path(local_path).expanduser().absolute())
        store, name = locate(self.path, self.storage_options)
        if isinstance(store, LocalStore):
            return name
        folder = tempfile.mkdtemp(prefix="penstock-")
        try:
            return self._copied_to(Path(folder))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    download = awaited(download_sync)

    def iter_batches_sync(
        self, batch_size: int = 1000, on_error: OnError = "raise"
    ) -> RecordIterator[list[Any]]:
        """Yield lists of `batch_size` records; only the last may be shorter."""
        return stream(self._runs(), ErrorPolicy(on_error), batches_of(batch_size))

    def iter_batches(
        self, batch_size: int = 1000, on_error: OnError = "raise"
    ) -> AsyncRecordIterator[list[Any]]:
        """Yield lists of `batch_size` records, for `async for`."""
        return stream_async(self._runs_async(), ErrorPolicy(on_error), batches_of(batch_size))

    def iter_arrow_batches_sync(
        self, batch_size: int = 65536, on_error: OnError = "raise", schema: SchemaChoice = None
    ) -> RecordIterator[pa.RecordBatch]:
        """Yield Arrow record batches of `batch_size` rows; only the last may be shorter.

        With a `schema` just those columns are decoded. Without, it is inferred from the first
        records and widened when later ones need it (`penstock.jsonl.unify` joins such batches);
        `"strict"` raises instead.
        """
        from penstock.jsonl import _arrow  # noqa: PLC0415 (pyarrow)

        runs = _arrow.runs_of(self._pieces(_arrow.PIECE_BYTES), batch_size, schema)
        return stream(runs, ErrorPolicy(on_error), _arrow.alone)

    def iter_arrow_batches(
        self, batch_size: int = 65536, on_error: OnError = "raise", schema: SchemaChoice = None
    ) -> AsyncRecordIterator[pa.RecordBatch]:
        """Yield Arrow record batches, for `async for`."""
        from penstock.jsonl import _arrow  # noqa: PLC0415

        runs = _arrow.runs_of(self._pieces(_arrow.PIECE_BYTES), batch_size, schema)
        return stream_async(_arrow.AsyncArrowRuns(runs), ErrorPolicy(on_error), _arrow.alone)


class JsonlFile(JsonlPath):
    """A JSON Lines file, local or in object storage; compressed if its name says so.

    A small picklable value: it names a file and holds nothing open.

    >>> import tempfile
    >>> f = JsonlFile(tempfile.mkdtemp() + "/people.jsonl.zst")
    >>> with f.writer_sync() as w:
    ...     w.write_many([{"name": "Ada"}, {"name": "Emmy"}])
    >>> [record["name"] for record in f.iter_records_sync()]
    ['Ada', 'Emmy']
    """

    __slots__ = ()
    _may_be_bucket = False

    @classmethod
    def new_remote(
        cls,
        file_name: str | None = None,
        hash_method: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return a new place below the default remote root (see `PENSTOCK_REMOTE`)."""
        storage_options = StorageOptions(storage_options)
        return cls(new_remote_path(file_name or "data.jsonl"), storage_options, hash=hash_method)

    @classmethod
    def from_existing_remote(
        cls,
        remote_path: str,
        file_cache_key: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return the file of a path; the same as `JsonlFile(path)`."""
        storage_options = StorageOptions(storage_options)
        return cls(remote_path, storage_options, hash=file_cache_key)

    @classmethod
    def from_local_sync(
        cls,
        local_path: str | os.PathLike[str],
        remote_destination: str | os.PathLike[str] | None = None,
        hash_method: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Copy a local file to `remote_destination`, and return the copy.

        Without a destination the copy goes below `PENSTOCK_REMOTE`; where that is unset or local,
        the file stays where it is.
        """
        storage_options = StorageOptions(storage_options)
        return cls._uploaded(local_path, remote_destination, hash_method, storage_options)

    @classmethod
    async def from_local(
        cls,
        local_path: str | os.PathLike[str],
        remote_destination: str | os.PathLike[str] | None = None,
        hash_method: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Do the same in a thread."""
        storage_options = StorageOptions(storage_options)
        arguments = (local_path, remote_destination, hash_method, storage_options)
        return await in_thread(cls._uploaded, *arguments)

    def source(self) -> TextFile:
        """Return where this file lies."""
        store, name = locate(self.path, self.storage_options)
        return TextFile(store, name)

    def iter_records_sync(self, on_error: OnError = "raise") -> RecordIterator[Any]:
        """Yield the records one by one.

        `on_error`: `"raise"`, `"skip"`, or a function of (line number, raw line, exception).
        """
        return record_stream(self._runs(), ErrorPolicy(on_error))

    def iter_records(self, on_error: OnError = "raise") -> AsyncRecordIterator[Any]:
        """Yield the records one by one, for `async for`."""
        return stream_async(self._runs_async(), ErrorPolicy(on_error), records_of)

    def _sources(self) -> list[TextFile]:
        return [self.source()]

    def writer_sync(
        self,
        flush_bytes: int = 1 << 20,
        compression_level: int = 3,
        *,
        overwrite: bool = True,
        frame_bytes: int | None = 256 << 10,
        allow_nan: bool = False,
    ) -> JsonlWriterSync:
        """Return a writer for a `with` block; the file appears when the block ends well.

        Args:
            flush_bytes: Bytes of text that are kept in memory before they are compressed and
                written. More takes more memory, less makes more writes.
            compression_level: Of zstd (-131072 to 22), gzip (0 to 9) or bz2 (1 to 9), where the
                name asks for one. Higher levels are smaller and slower.
            overwrite: Replace a file of that name; False fails if there is one.
            frame_bytes: Bytes of text in one zstd frame. A reader that wants one record
                decompresses its frame: smaller frames make that faster, and the file larger. None
                makes one frame of the file, for readers that stop at the first frame's end; the
                text is in memory until the file is published, and single records cost a whole read.
            allow_nan: Write NaN and infinities as Python's `json` does. By default they become
                `null`, for JSON has no such numbers, and most other parsers refuse them.
        """
        options = WriteOptions(flush_bytes, compression_level, frame_bytes, allow_nan)
        return JsonlWriterSync(self._target(options, overwrite=overwrite))

    def writer(
        self,
        flush_bytes: int = 1 << 20,
        compression_level: int = 3,
        *,
        overwrite: bool = True,
        frame_bytes: int | None = 256 << 10,
        allow_nan: bool = False,
    ) -> JsonlWriter:
        """Return a writer for an `async with` block; see `writer_sync`."""
        options = WriteOptions(flush_bytes, compression_level, frame_bytes, allow_nan)
        return JsonlWriter(self._target(options, overwrite=overwrite))

    def _target(self, options: WriteOptions, *, overwrite: bool) -> FileTarget:
        compression = compression_of(self.source().name)  # As it is read, also where it is a link.
        return FileTarget(*self._written(), compression, options, overwrite=overwrite)

    def _written(self) -> tuple[Store, str]:
        store, name, _ = self.source()
        if isinstance(store, LocalStore):
            name = os.path.realpath(name)  # Replace what a link points to, not the link.
        return store, name

    def size_sync(self) -> int:
        """Return the size in bytes, as stored."""
        store, name, _ = self.source()
        return store.entry(name).size

    _look = size_sync

    size = awaited(size_sync)

    def open_sync(self, mode: Literal["rb", "wb"] = "rb") -> IO[bytes]:
        """Return a binary file of the stored bytes; `"wb"` is published when it ends well."""
        if mode == "rb":
            store, name, _ = self.source()
            return cast("IO[bytes]", open_for_reading(store, name))
        if mode == "wb":
            store, name = self._written()
            return cast("IO[bytes]", open_for_writing(store, name.rpartition("/")[0], name))
        raise OptionError(f"mode={mode!r}: expected 'rb' or 'wb'.")

    def open(self, mode: Literal["rb", "wb"] = "rb") -> AsyncFile:
        """Return the same for `async with`, its calls awaited."""
        return AsyncFile(lambda: self.open_sync(mode))

    def _copied_to(self, path: Path) -> str:
        if path.is_dir():
            path /= base_name(self.source().name)
        self._copy(type(self)(path))
        return str(path)

    def _copy(self, target: Self) -> None:
        with self.open_sync() as stored, target.open_sync("wb") as copy:
            shutil.copyfileobj(stored, copy, 8 << 20)

    def delete_sync(self) -> None:
        """Remove the file."""
        store, name, _ = self.source()
        store.delete(name)

    delete = awaited(delete_sync)
