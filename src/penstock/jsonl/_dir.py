"""A directory of JSON Lines shards."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ObjectNotFoundError
from penstock.jsonl._async_writers import JsonlDirWriter
from penstock.jsonl._draft_writer import WriteOptions
from penstock.jsonl._file import JsonlFile
from penstock.jsonl._names import in_reading_order
from penstock.jsonl._policy import ErrorPolicy
from penstock.jsonl._prefetch import ShardRuns, runs_of_shards
from penstock.jsonl._records import (
    batch_stream,
    batch_stream_async,
    record_stream,
    record_stream_async,
)
from penstock.jsonl._sync_writers import JsonlDirWriterSync
from penstock.jsonl._targets import DirTarget
from penstock.jsonl._text import TextFile, read_pieces
from penstock.jsonl._threads import in_thread
from penstock.order import whole_number
from penstock.storage import LocalStore, StorageOptions, join, locate, new_remote_path

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
    from typing import Self

    import pyarrow as pa

    from penstock.jsonl._arrow import SchemaChoice
    from penstock.jsonl._policy import OnError
    from penstock.jsonl._records import AsyncStream, Run, Stream
    from penstock.jsonl._text import TextPiece
    from penstock.storage import Entry

_log = logging.getLogger("penstock.jsonl")
_DEFAULT_QUEUE = 8192


class JsonlDir:
    """A directory of `part-NNNNN.jsonl[.zst]` shards, local or in object storage.

    A small picklable value: it names a directory and holds nothing open.

    >>> import tempfile
    >>> d = JsonlDir(tempfile.mkdtemp())
    >>> with d.writer_sync(max_records_per_shard=2) as w:
    ...     w.write_many({"id": i} for i in range(5))
    >>> [os.path.basename(shard.path) for shard in d.shards_sync()]
    ['part-00000.jsonl', 'part-00001.jsonl', 'part-00002.jsonl']
    >>> [record["id"] for record in d.iter_records_sync()]
    [0, 1, 2, 3, 4]
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
        locate(self.path, storage_options)

    @classmethod
    def new_remote(cls, name: str, storage_options: Mapping[str, Any] | None = None) -> Self:
        """Return a new directory below the default remote root (see `PENSTOCK_REMOTE`)."""
        storage_options = StorageOptions(storage_options)  # So that no traceback shows secrets.
        return cls(new_remote_path(name), storage_options)

    def __repr__(self) -> str:
        options = f", {self.storage_options!r}" if self.storage_options else ""
        return f"{type(self).__name__}({self.path!r}{options})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonlDir) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __fspath__(self) -> str:
        return self.path

    def _value(self) -> tuple[str, StorageOptions]:
        return self.path, self.storage_options

    def shards_sync(self) -> list[JsonlFile]:
        """Return the files that are read, in reading order, from one listing."""
        return list(self.walk_sync(recursive=False))

    async def shards(self) -> list[JsonlFile]:
        """Return the files that are read, in reading order, from one listing."""
        return await asyncio.to_thread(self.shards_sync)

    def walk_sync(self, recursive: bool = True) -> Iterator[JsonlFile]:  # noqa: FBT001, FBT002 (the seed's signature)
        """Yield the JSON Lines files, those in subdirectories too."""
        for relative, _ in self._listing(recursive=recursive):
            yield self._file(relative)

    async def walk(self, recursive: bool = True) -> AsyncGenerator[JsonlFile]:  # noqa: FBT001, FBT002
        """Yield the JSON Lines files, those in subdirectories too."""
        for relative, _ in await asyncio.to_thread(self._listing, recursive=recursive):
            yield self._file(relative)

    def exists_sync(self) -> bool:
        """Whether the directory is there; in object storage, whether anything is in it."""
        store, directory = locate(self.path, self.storage_options)
        try:
            next(store.list(directory), None)
        except ObjectNotFoundError:
            return False
        return True

    async def exists(self) -> bool:
        """Whether the directory is there."""
        return await asyncio.to_thread(self.exists_sync)

    def download_sync(self, local_path: str | os.PathLike[str] | None = None) -> str:
        """Copy the JSON Lines files here and return the local directory.

        Without `local_path` a local directory stays where it is, and a remote one goes to a new
        temporary directory.
        """
        store, directory = locate(self.path, self.storage_options)
        if local_path is None:
            if isinstance(store, LocalStore):
                return directory
            folder = tempfile.mkdtemp(prefix="penstock-")
            try:
                return self.download_sync(folder)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        root = Path(local_path).absolute()
        root.mkdir(parents=True, exist_ok=True)
        for relative, _ in self._listing(recursive=True):
            self._file(relative).download_sync(root / relative)
        return str(root)

    async def download(self, local_path: str | os.PathLike[str] | None = None) -> str:
        """Copy the JSON Lines files here and return the local directory."""
        return await in_thread(self.download_sync, local_path)

    def iter_records_sync(
        self,
        on_error: OnError = "raise",
        prefetch: bool = True,  # noqa: FBT001, FBT002 (the seed's signature)
        queue_size: int = _DEFAULT_QUEUE,
    ) -> Stream[Any]:
        """Yield the records one by one, shard after shard.

        With `prefetch` the next shard is read and decoded while this one is consumed, up to
        `queue_size` records ahead. `on_error`: see `JsonlFile.iter_records_sync`.
        """
        policy = ErrorPolicy(on_error)
        return record_stream(self._runs(_queue(prefetch, queue_size)), policy)

    def iter_records(
        self,
        on_error: OnError = "raise",
        prefetch: bool = True,  # noqa: FBT001, FBT002 (the seed's signature)
        queue_size: int = _DEFAULT_QUEUE,
    ) -> AsyncStream[Any]:
        """Yield the records one by one, for `async for`."""
        policy = ErrorPolicy(on_error)
        return record_stream_async(self._runs_async(_queue(prefetch, queue_size)), policy)

    def iter_batches_sync(
        self, batch_size: int = 1000, on_error: OnError = "raise"
    ) -> Stream[list[Any]]:
        """Yield lists of `batch_size` records across shards; only the last may be shorter."""
        return batch_stream(self._runs(_DEFAULT_QUEUE), ErrorPolicy(on_error), batch_size)

    def iter_batches(
        self, batch_size: int = 1000, on_error: OnError = "raise"
    ) -> AsyncStream[list[Any]]:
        """Yield lists of `batch_size` records across shards, for `async for`."""
        policy = ErrorPolicy(on_error)
        return batch_stream_async(self._runs_async(_DEFAULT_QUEUE), policy, batch_size)

    def iter_arrow_batches_sync(
        self, batch_size: int = 65536, schema: SchemaChoice = None, on_error: OnError = "raise"
    ) -> Stream[pa.RecordBatch]:
        """Yield Arrow record batches across shards; see `JsonlFile.iter_arrow_batches_sync`."""
        from penstock.jsonl._arrow import PIECE_BYTES, arrow_stream  # noqa: PLC0415 (pyarrow)

        pieces = self._pieces(PIECE_BYTES)
        return arrow_stream(pieces, ErrorPolicy(on_error), batch_size, schema)

    def iter_arrow_batches(
        self, batch_size: int = 65536, schema: SchemaChoice = None, on_error: OnError = "raise"
    ) -> AsyncStream[pa.RecordBatch]:
        """Yield Arrow record batches across shards, for `async for`."""
        from penstock.jsonl._arrow import PIECE_BYTES, arrow_stream_async  # noqa: PLC0415

        pieces = self._pieces(PIECE_BYTES)
        return arrow_stream_async(pieces, ErrorPolicy(on_error), batch_size, schema)

    def writer_sync(  # noqa: PLR0913 (the seed's signature and two options of ours)
        self,
        shard_extension: str = ".jsonl",
        max_records_per_shard: int | None = None,
        max_bytes_per_shard: int | None = 256 << 20,
        flush_bytes: int = 1 << 20,
        compression_level: int = 3,
        *,
        frame_bytes: int = 256 << 10,
        allow_nan: bool = False,
    ) -> JsonlDirWriterSync:
        """Return a writer for a `with` block; it appends shards after those that are there.

        A shard is published, and its number taken, when the next record would pass a limit, and
        when the block ends well.

        Args:
            shard_extension: `.jsonl`, or `.jsonl.zst` or `.jsonl.gz` for compressed shards.
            max_records_per_shard: Records in a shard, at most; None for no limit.
            max_bytes_per_shard: Bytes of uncompressed text in a shard, at most; None for no limit.
                Larger shards are fewer files; all of an unfinished one is lost with its writer.
            flush_bytes: Bytes of text that are kept in memory before they are compressed and
                written. More takes more memory, less makes more writes.
            compression_level: Of zstd (1 to 22) or gzip (0 to 9), where the name asks for one.
                Higher levels are smaller and slower.
            frame_bytes: Bytes of text in one zstd frame. A reader that wants one record
                decompresses its frame: smaller frames make that faster, and the file larger.
            allow_nan: Write NaN and infinities as Python's `json` does. By default they become
                `null`, for JSON has no such numbers.
        """
        options = WriteOptions(flush_bytes, compression_level, frame_bytes, allow_nan)
        target = self._target(options, shard_extension, max_records_per_shard, max_bytes_per_shard)
        return JsonlDirWriterSync(target, options)

    def writer(  # noqa: PLR0913
        self,
        shard_extension: str = ".jsonl",
        max_records_per_shard: int | None = None,
        max_bytes_per_shard: int | None = 256 << 20,
        flush_bytes: int = 1 << 20,
        compression_level: int = 3,
        *,
        frame_bytes: int = 256 << 10,
        allow_nan: bool = False,
    ) -> JsonlDirWriter:
        """Return a writer for an `async with` block; see `writer_sync`."""
        options = WriteOptions(flush_bytes, compression_level, frame_bytes, allow_nan)
        target = self._target(options, shard_extension, max_records_per_shard, max_bytes_per_shard)
        return JsonlDirWriter(target, options)

    def _target(
        self,
        options: WriteOptions,
        extension: str,
        most_records: int | None,
        most_bytes: int | None,
    ) -> DirTarget:
        store, directory = locate(self.path, self.storage_options)
        return DirTarget(
            store,
            directory,
            options,
            shard_extension=extension,
            max_records_per_shard=most_records,
            max_bytes_per_shard=most_bytes,
        )

    def _listing(self, *, recursive: bool) -> list[tuple[str, Entry]]:
        """Return what is read, in reading order: names relative to the directory, and entries."""
        store, directory = locate(self.path, self.storage_options)
        prefix = f"{directory.rstrip('/')}/" if directory else ""
        found: dict[str, list[tuple[str, Entry]]] = {}
        for entry in store.list(directory, recursive=recursive):
            relative = entry.name.removeprefix(prefix)
            parent = relative.rpartition("/")[0]
            if not any(part[0] in "._" for part in parent.split("/") if part):
                found.setdefault(parent, []).append((relative, entry))
        return [
            item
            for parent in sorted(found)
            for item in in_reading_order(found[parent], lambda item: item[0])
        ]

    def _file(self, relative: str) -> JsonlFile:
        return JsonlFile(join(self.path, relative), self.storage_options)

    def _sources(self) -> list[TextFile]:
        """Return the shards with their entries in the listing, which saves a request for each."""
        store, _ = locate(self.path, self.storage_options)
        found = [TextFile(store, entry.name, entry) for _, entry in self._listing(recursive=False)]
        if not found:
            _log.warning("%s itself holds no JSON Lines files; nothing is read", self.path)
        return found

    def _pieces(self, piece_bytes: int) -> Iterator[TextPiece]:
        yield from read_pieces(self._sources(), piece_bytes)

    def _runs(self, queue_size: int) -> Iterator[Run]:
        yield from runs_of_shards(self._openers(), queue_size)

    def _runs_async(self, queue_size: int) -> ShardRuns:
        return ShardRuns(self._openers, queue_size)

    def _openers(self) -> list[Callable[[int], Iterator[TextPiece]]]:
        return [partial(read_pieces, [source]) for source in self._sources()]


def _queue(prefetch: bool, queue_size: int) -> int:  # noqa: FBT001
    return whole_number("queue_size", queue_size, 1) if prefetch else 0
