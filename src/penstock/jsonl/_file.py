"""One JSON Lines file."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

from penstock.errors import OptionError
from penstock.jsonl._async_writers import JsonlWriter
from penstock.jsonl._names import base_name, compression_of
from penstock.jsonl._path import JsonlPath
from penstock.jsonl._policy import ErrorPolicy
from penstock.jsonl._records import record_stream, records_of, stream_async
from penstock.jsonl._sync_writers import JsonlWriterSync
from penstock.jsonl._targets import FileTarget, WriteOptions
from penstock.jsonl._text import TextFile
from penstock.jsonl._threads import awaited, in_thread
from penstock.storage import LocalStore, locate, open_for_reading, open_for_writing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from typing import Literal, Self

    from penstock.jsonl._policy import OnError
    from penstock.jsonl._records import AsyncStream, Stream
    from penstock.storage import Store


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
        compression = compression_of(self.source().name)  # As it is read, also where it is a link.
        store, name = self._written()
        return FileTarget(store, name, options, compression=compression, overwrite=overwrite)

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
    """Opens on `async with`; its methods are those of a binary file, awaited, in a thread."""

    def __init__(self, open_file: Callable[[], IO[bytes]]) -> None:
        self._open_file = open_file
        self._file: Any = None

    async def __aenter__(self) -> Self:
        self._file = await in_thread(self._open_file)
        return self

    async def __aexit__(self, *failure: object) -> None:
        await in_thread(self._file.__exit__, *failure)

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        return partial(in_thread, getattr(self._file, name))
