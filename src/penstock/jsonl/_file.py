"""One JSON Lines file, and what it has in common with a directory of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, cast

from penstock.errors import ObjectNotFoundError, OptionError
from penstock.jsonl._async_writers import JsonlWriter
from penstock.jsonl._names import base_name, compression_of
from penstock.jsonl._policy import ErrorPolicy
from penstock.jsonl._prefetch import ShardRuns, runs_of_shards
from penstock.jsonl._records import batches_of, record_stream, records_of, stream, stream_async
from penstock.jsonl._sync_writers import JsonlWriterSync
from penstock.jsonl._targets import FileTarget, WriteOptions
from penstock.jsonl._text import TextFile, read_pieces
from penstock.jsonl._threads import awaited, in_thread
from penstock.storage import (
    LocalStore,
    StorageOptions,
    locate,
    new_remote_path,
    open_for_reading,
    open_for_writing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Literal, Self

    import pyarrow as pa

    from penstock.jsonl._arrow import SchemaChoice
    from penstock.jsonl._policy import OnError
    from penstock.jsonl._records import AsyncStream, Run, Stream
    from penstock.jsonl._text import TextPiece
    from penstock.storage import Store

DEFAULT_QUEUE = 8192
"""Records of the next file that are decoded ahead."""


class JsonlPath(ABC):
    """A small picklable value: it names a place and holds nothing open."""

    __slots__ = ("path", "storage_options")
    _may_be_bucket: ClassVar[bool]

    def __init__(
        self, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
    ) -> None:
        storage_options = StorageOptions(storage_options)  # So that no traceback shows secrets.
        self.path = os.fspath(path)
        self.storage_options = storage_options
        _, name = locate(self.path, storage_options)
        if not name and not self._may_be_bucket:
            raise OptionError(f"{self.path}: this names a bucket; a file needs a name in it.")

    @classmethod
    def new_remote(cls, name: str, storage_options: Mapping[str, Any] | None = None) -> Self:
        """Return a new place below the default remote root (see `PENSTOCK_REMOTE`)."""
        storage_options = StorageOptions(storage_options)
        return cls(new_remote_path(name), storage_options)

    def __repr__(self) -> str:
        options = f", {self.storage_options!r}" if self.storage_options else ""
        return f"{type(self).__name__}({self.path!r}{options})"

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
            return self._copied_to(Path(local_path).absolute())
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
    ) -> Stream[list[Any]]:
        """Yield lists of `batch_size` records; only the last may be shorter."""
        return stream(self._runs(), ErrorPolicy(on_error), batches_of(batch_size))

    def iter_batches(
        self, batch_size: int = 1000, on_error: OnError = "raise"
    ) -> AsyncStream[list[Any]]:
        """Yield lists of `batch_size` records, for `async for`."""
        return stream_async(self._runs_async(), ErrorPolicy(on_error), batches_of(batch_size))

    def iter_arrow_batches_sync(
        self, batch_size: int = 65536, schema: SchemaChoice = None, on_error: OnError = "raise"
    ) -> Stream[pa.RecordBatch]:
        """Yield Arrow record batches of `batch_size` rows; only the last may be shorter.

        With a `schema` just those columns are decoded. Without, it is inferred from the first
        records and widened when later ones need it (`penstock.jsonl.unify` joins such batches);
        `"strict"` raises instead.
        """
        from penstock.jsonl import _arrow  # noqa: PLC0415 (pyarrow)

        runs = _arrow.runs_of(self._pieces(_arrow.PIECE_BYTES), batch_size, schema)
        return stream(runs, ErrorPolicy(on_error), _arrow.alone)

    def iter_arrow_batches(
        self, batch_size: int = 65536, schema: SchemaChoice = None, on_error: OnError = "raise"
    ) -> AsyncStream[pa.RecordBatch]:
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

    def source(self) -> TextFile:
        """Return where this file lies."""
        store, name = locate(self.path, self.storage_options)
        return TextFile(store, name)

    def iter_records_sync(self, on_error: OnError = "raise") -> Stream[Any]:
        """Yield the records one by one.

        `on_error`: `"raise"`, `"skip"`, or a function of (line number, raw line, exception).
        """
        return record_stream(self._runs(), ErrorPolicy(on_error))

    def iter_records(self, on_error: OnError = "raise") -> AsyncStream[Any]:
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
        frame_bytes: int = 256 << 10,
        allow_nan: bool = False,
    ) -> JsonlWriterSync:
        """Return a writer for a `with` block; the file appears when the block ends well.

        Args:
            flush_bytes: Bytes of text that are kept in memory before they are compressed and
                written. More takes more memory, less makes more writes.
            compression_level: Of zstd (1 to 22) or gzip (0 to 9), where the name asks for one.
                Higher levels are smaller and slower.
            overwrite: Replace a file of that name; False fails if there is one.
            frame_bytes: Bytes of text in one zstd frame. A reader that wants one record
                decompresses its frame: smaller frames make that faster, and the file larger.
            allow_nan: Write NaN and infinities as Python's `json` does. By default they become
                `null`, for JSON has no such numbers.
        """
        options = WriteOptions(flush_bytes, compression_level, frame_bytes, allow_nan)
        return JsonlWriterSync(self._target(options, overwrite=overwrite))

    def writer(
        self,
        flush_bytes: int = 1 << 20,
        compression_level: int = 3,
        *,
        overwrite: bool = True,
        frame_bytes: int = 256 << 10,
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
        store, name, _ = self.source()
        if path.is_dir():
            path /= base_name(name)
        with (
            open_for_reading(store, name) as remote,
            open_for_writing(LocalStore(), str(path.parent), str(path)) as local,
        ):
            shutil.copyfileobj(remote, local, 8 << 20)
        return str(path)

    def delete_sync(self) -> None:
        """Remove the file."""
        store, name, _ = self.source()
        store.delete(name)

    delete = awaited(delete_sync)


class AsyncFile:
    """Opens on `async with`; every call waits in a thread."""

    def __init__(self, open_file: Callable[[], IO[bytes]]) -> None:
        self._open_file = open_file
        self._file: Any = None

    async def __aenter__(self) -> Self:
        self._file = await in_thread(self._open_file)
        return self

    async def __aexit__(self, *failure: object) -> None:
        await in_thread(self._file.__exit__, *failure)

    async def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, or all that are left."""
        data: bytes = await in_thread(self._file.read, size)
        return data

    async def readline(self) -> bytes:
        """Return the next line."""
        line: bytes = await in_thread(self._file.readline)
        return line

    async def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a position and return it."""
        position: int = await in_thread(self._file.seek, offset, whence)
        return position

    async def write(self, data: bytes) -> int:
        """Append bytes."""
        written: int = await in_thread(self._file.write, data)
        return written
