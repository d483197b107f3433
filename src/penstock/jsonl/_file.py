"""One JSON Lines file."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from penstock.errors import ObjectNotFoundError, OptionError
from penstock.jsonl._async_writers import JsonlWriter
from penstock.jsonl._draft_writer import WriteOptions
from penstock.jsonl._names import base_name, compression_of
from penstock.jsonl._policy import ErrorPolicy
from penstock.jsonl._records import (
    SLICE_BYTES,
    SYNC_SLICE_BYTES,
    DecodedRuns,
    batch_stream,
    batch_stream_async,
    decode_runs,
    record_stream,
    record_stream_async,
)
from penstock.jsonl._sync_writers import JsonlWriterSync
from penstock.jsonl._targets import FileTarget
from penstock.jsonl._text import TextFile, read_pieces
from penstock.jsonl._threads import in_thread
from penstock.storage import (
    LocalStore,
    StorageOptions,
    locate,
    new_remote_path,
    open_for_reading,
    open_for_writing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Literal, Self

    import pyarrow as pa

    from penstock.jsonl._arrow import SchemaChoice
    from penstock.jsonl._policy import OnError
    from penstock.jsonl._records import AsyncStream, Stream
    from penstock.storage import Store


class JsonlFile:
    """A JSON Lines file, local or in object storage; compressed if its name says so.

    A small picklable value: it names a file and holds nothing open.

    >>> import tempfile
    >>> f = JsonlFile(tempfile.mkdtemp() + "/people.jsonl.zst")
    >>> with f.writer_sync() as w:
    ...     w.write_many([{"name": "Ada"}, {"name": "Emmy"}])
    >>> [record["name"] for record in f.iter_records_sync()]
    ['Ada', 'Emmy']
    """

    __slots__ = ("path", "storage_options")

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        storage_options = StorageOptions(storage_options)
        self.path = os.fspath(path)
        self.storage_options = storage_options
        if not locate(self.path, storage_options)[1]:
            message = f"{self.path}: this names a bucket; a file needs a name in it."
            raise OptionError(message)

    @classmethod
    def new_remote(cls, name: str, storage_options: Mapping[str, Any] | None = None) -> Self:
        """Return a new file below the default remote root (see `PENSTOCK_REMOTE`)."""
        storage_options = StorageOptions(storage_options)  # So that no traceback shows secrets.
        return cls(new_remote_path(name), storage_options)

    def __repr__(self) -> str:
        options = f", {self.storage_options!r}" if self.storage_options else ""
        return f"{type(self).__name__}({self.path!r}{options})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonlFile) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __fspath__(self) -> str:
        return self.path

    def _value(self) -> tuple[str, StorageOptions]:
        return self.path, self.storage_options

    def source(self) -> TextFile:
        """Return where this file lies."""
        store, name = locate(self.path, self.storage_options)
        return TextFile(store, name)

    def iter_records_sync(self, on_error: OnError = "raise") -> Stream[Any]:
        """Yield the records one by one.

        `on_error`: `"raise"`, `"skip"`, or a function of (line number, raw line, exception).
        """
        policy = ErrorPolicy(on_error)
        runs = decode_runs(read_pieces([self.source()], SYNC_SLICE_BYTES))
        return record_stream(runs, policy)

    def iter_records(self, on_error: OnError = "raise") -> AsyncStream[Any]:
        """Yield the records one by one, for `async for`."""
        policy = ErrorPolicy(on_error)
        runs = DecodedRuns(read_pieces([self.source()], SLICE_BYTES))
        return record_stream_async(runs, policy)

    def iter_batches_sync(
        self, batch_size: int = 1000, on_error: OnError = "raise"
    ) -> Stream[list[Any]]:
        """Yield lists of `batch_size` records; only the last may be shorter."""
        policy = ErrorPolicy(on_error)
        runs = decode_runs(read_pieces([self.source()], SYNC_SLICE_BYTES))
        return batch_stream(runs, policy, batch_size)

    def iter_batches(
        self, batch_size: int = 1000, on_error: OnError = "raise"
    ) -> AsyncStream[list[Any]]:
        """Yield lists of `batch_size` records, for `async for`."""
        policy = ErrorPolicy(on_error)
        runs = DecodedRuns(read_pieces([self.source()], SLICE_BYTES))
        return batch_stream_async(runs, policy, batch_size)

    def iter_arrow_batches_sync(
        self, batch_size: int = 65536, schema: SchemaChoice = None, on_error: OnError = "raise"
    ) -> Stream[pa.RecordBatch]:
        """Yield Arrow record batches of `batch_size` rows; only the last may be shorter.

        With a `schema` just those columns are decoded. Without, it is inferred from the first
        records and widened when later ones need it (`penstock.jsonl.unify` joins such batches);
        `"strict"` raises instead.
        """
        from penstock.jsonl._arrow import PIECE_BYTES, arrow_stream  # noqa: PLC0415 (pyarrow)

        policy = ErrorPolicy(on_error)
        return arrow_stream(read_pieces([self.source()], PIECE_BYTES), policy, batch_size, schema)

    def iter_arrow_batches(
        self, batch_size: int = 65536, schema: SchemaChoice = None, on_error: OnError = "raise"
    ) -> AsyncStream[pa.RecordBatch]:
        """Yield Arrow record batches, for `async for`."""
        from penstock.jsonl._arrow import PIECE_BYTES, arrow_stream_async  # noqa: PLC0415

        policy = ErrorPolicy(on_error)
        pieces = read_pieces([self.source()], PIECE_BYTES)
        return arrow_stream_async(pieces, policy, batch_size, schema)

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
        return JsonlWriterSync(self._target(options, overwrite=overwrite), options)

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
        return JsonlWriter(self._target(options, overwrite=overwrite), options)

    def _target(self, options: WriteOptions, *, overwrite: bool) -> FileTarget:
        compression = compression_of(
            self.source().name
        )  # By this name: it is the one that is read.
        store, name = self._written()
        return FileTarget(store, name, options, compression=compression, overwrite=overwrite)

    def _written(self) -> tuple[Store, str]:
        store, name, _ = self.source()
        if isinstance(store, LocalStore):
            name = os.path.realpath(name)  # Replace what a link points to, not the link.
        return store, name

    def exists_sync(self) -> bool:
        """Whether the file is there."""
        try:
            self.size_sync()
        except ObjectNotFoundError:
            return False
        return True

    async def exists(self) -> bool:
        """Whether the file is there."""
        return await asyncio.to_thread(self.exists_sync)

    def size_sync(self) -> int:
        """Return the size in bytes, as stored."""
        store, name, _ = self.source()
        return store.entry(name).size

    async def size(self) -> int:
        """Return the size in bytes, as stored."""
        return await asyncio.to_thread(self.size_sync)

    def open_sync(self, mode: Literal["rb", "wb"] = "rb") -> IO[bytes]:
        """Return a binary file of the stored bytes; `"wb"` is published when it ends well."""
        if mode == "rb":
            store, name, _ = self.source()
            return cast("IO[bytes]", open_for_reading(store, name))
        if mode == "wb":
            store, name = self._written()
            return cast("IO[bytes]", open_for_writing(store, name.rpartition("/")[0], name))
        message = f"mode={mode!r}: expected 'rb' or 'wb'."
        raise OptionError(message)

    def open(self, mode: Literal["rb", "wb"] = "rb") -> AsyncFile:
        """Return the same for `async with`, its calls awaited."""
        return AsyncFile(lambda: self.open_sync(mode))

    def download_sync(self, local_path: str | os.PathLike[str] | None = None) -> str:
        """Copy the file here and return the local path.

        Without `local_path` a local file stays where it is, and a remote one goes to a new
        temporary directory.
        """
        store, name, _ = self.source()
        if local_path is None:
            if isinstance(store, LocalStore):
                return name
            folder = tempfile.mkdtemp(prefix="penstock-")
            try:
                return self.download_sync(folder)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        path = Path(local_path).absolute()
        if path.is_dir():
            path /= base_name(name)
        with (
            open_for_reading(store, name) as remote,
            open_for_writing(LocalStore(), str(path.parent), str(path)) as local,
        ):
            shutil.copyfileobj(remote, local, 8 << 20)
        return str(path)

    async def download(self, local_path: str | os.PathLike[str] | None = None) -> str:
        """Copy the file here and return the local path."""
        return await in_thread(self.download_sync, local_path)

    def delete_sync(self) -> None:
        """Remove the file."""
        store, name, _ = self.source()
        store.delete(name)

    async def delete(self) -> None:
        """Remove the file."""
        await in_thread(self.delete_sync)


class AsyncFile:
    """Opens on `async with`; every call waits in a thread."""

    def __init__(self, open_file: Callable[[], IO[bytes]]) -> None:
        self._open_file = open_file
        self._file: Any = None

    async def __aenter__(self) -> Self:
        self._file = await in_thread(self._open_file)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await in_thread(self._file.__exit__, kind, failure, trace)

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
