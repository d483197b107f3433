"""A directory of JSON Lines shards."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self

from penstock.jsonl._async_writers import JsonlDirWriter
from penstock.jsonl._file import DEFAULT_QUEUE, JsonlFile, JsonlPath
from penstock.jsonl._names import base_name, in_reading_order
from penstock.jsonl._policy import ErrorPolicy, OnError
from penstock.jsonl._records import batches_of, record_stream, records_of, stream, stream_async
from penstock.jsonl._sync_writers import JsonlDirWriterSync
from penstock.jsonl._targets import DirTarget, WriteOptions
from penstock.jsonl._text import TextFile
from penstock.jsonl._threads import awaited, in_thread
from penstock.order import whole_number
from penstock.storage import Entry, StorageOptions, join, locate, new_remote_path

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from penstock.jsonl._records import AsyncRecordIterator, RecordIterator


_log = logging.getLogger("penstock.jsonl")
_NO_DIRECTORY = "::flyte-empty-dir::"
"""The path by which flyte says that a task made no directory."""


class JsonlDir(JsonlPath):
    """A directory of `part-NNNNN.jsonl[.zst]` shards, local or in object storage.

    Records of subdirectories are read as well, except for hidden ones and those whose names begin
    with `_`: shards by number, then other files in natural order, wherever they lie.

    A small picklable value: it names a directory and holds nothing open.

    >>> import os, tempfile
    >>> d = JsonlDir(tempfile.mkdtemp())
    >>> with d.writer_sync(max_records_per_shard=2) as w:
    ...     w.write_many({"id": i} for i in range(5))
    >>> [os.path.basename(shard.path) for shard in d.shards_sync()]
    ['part-00000.jsonl', 'part-00001.jsonl', 'part-00002.jsonl']
    >>> [record["id"] for record in d.iter_records_sync()]
    [0, 1, 2, 3, 4]
    """

    __slots__ = ()
    _may_be_bucket = True

    @classmethod
    def new_remote(
        cls,
        dir_name: str | None = None,
        hash: str | None = None,  # noqa: A002 (the seed's name)
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return a new place below the default remote root (see `PENSTOCK_REMOTE`)."""
        storage_options = StorageOptions(storage_options)
        return cls(new_remote_path(dir_name or "data"), storage_options, hash=hash)

    @classmethod
    def from_existing_remote(
        cls,
        remote_path: str,
        dir_cache_key: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return the directory of a path; the same as `JsonlDir(path)`."""
        storage_options = StorageOptions(storage_options)
        return cls(remote_path, storage_options, hash=dir_cache_key)

    @classmethod
    def from_local_sync(
        cls,
        local_path: str | os.PathLike[str],
        remote_destination: str | os.PathLike[str] | None = None,
        dir_cache_key: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Copy the JSON Lines files of a local directory; see `JsonlFile.from_local_sync`."""
        storage_options = StorageOptions(storage_options)
        return cls._uploaded(local_path, remote_destination, dir_cache_key, storage_options)

    @classmethod
    async def from_local(
        cls,
        local_path: str | os.PathLike[str],
        remote_destination: str | os.PathLike[str] | None = None,
        dir_cache_key: str | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Do the same in a thread."""
        storage_options = StorageOptions(storage_options)
        arguments = (local_path, remote_destination, dir_cache_key, storage_options)
        return await in_thread(cls._uploaded, *arguments)

    @classmethod
    def empty(cls) -> Self:
        """Return a value that stands for no directory; its `is_empty` is True."""
        return cls(_NO_DIRECTORY)

    @property
    def is_empty(self) -> bool:
        """Whether this stands for no directory; a directory without shards is one."""
        return self.path == _NO_DIRECTORY

    def shards_sync(self) -> list[JsonlFile]:
        """Return the files of the directory itself, in reading order, from one listing.

        `walk_sync` yields those of subdirectories too, whose records are read as well.
        """
        return list(self.walk_sync(recursive=False))

    shards = awaited(shards_sync)

    def walk_sync(
        self,
        recursive: bool = True,  # noqa: FBT001, FBT002 (the seed's signature)
        file_pattern: str = "*",
        max_depth: int | None = None,
    ) -> Iterator[JsonlFile]:
        """Yield the JSON Lines files, those in subdirectories too.

        Args:
            recursive: False for those of the directory itself.
            file_pattern: Only files whose names match it: `"part-*"`.
            max_depth: Levels of directories to look at; 1 is the directory itself, None is all.
        """
        yield from self._walked(recursive, max_depth, file_pattern)

    async def walk(
        self,
        recursive: bool = True,  # noqa: FBT001, FBT002 (the seed's signature)
        max_depth: int | None = None,
        file_pattern: str = "*",
    ) -> AsyncGenerator[JsonlFile]:
        """Yield the JSON Lines files, for `async for`; see `walk_sync`."""
        for file in await in_thread(self._walked, recursive, max_depth, file_pattern):
            yield file

    def _walked(
        self,
        recursive: bool,  # noqa: FBT001
        max_depth: int | None,
        file_pattern: str,
    ) -> list[JsonlFile]:
        depth = math.inf if max_depth is None else whole_number("max_depth", max_depth, 1)
        return [
            self._file(relative)
            for relative, _ in self._listing(recursive=recursive)
            if relative.count("/") < depth and fnmatchcase(base_name(relative), file_pattern)
        ]

    list_files_sync, list_files = shards_sync, shards

    def get_file_sync(self, file_name: str) -> JsonlFile | None:
        """Return the file of that name in the directory; None if it does not exist."""
        file = self._file(file_name)
        return file if file.exists_sync() else None

    get_file = awaited(get_file_sync)

    def _look(self) -> object:
        store, directory = locate(self.path, self.storage_options)
        return next(store.list(directory), None)

    def _copied_to(self, path: Path) -> str:
        path.mkdir(parents=True, exist_ok=True)
        self._copy(type(self)(path))
        return str(path)

    def _copy(self, target: Self) -> None:
        for relative, _ in self._listing(recursive=True):
            self._file(relative)._copy(target._file(relative))  # noqa: SLF001 (of this room)

    def iter_records_sync(
        self,
        on_error: OnError = "raise",
        prefetch: bool = True,  # noqa: FBT001, FBT002 (the seed's signature)
        queue_size: int = DEFAULT_QUEUE,
    ) -> RecordIterator[Any]:
        """Yield the records one by one, shard after shard.

        With `prefetch` the next shard is read and decoded while this one is consumed, up to
        `queue_size` records ahead. `on_error`: see `JsonlFile.iter_records_sync`.
        """
        return record_stream(self._runs(_queue(prefetch, queue_size)), ErrorPolicy(on_error))

    def iter_records(
        self,
        on_error: OnError = "raise",
        prefetch: bool = True,  # noqa: FBT001, FBT002 (the seed's signature)
        queue_size: int = DEFAULT_QUEUE,
    ) -> AsyncRecordIterator[Any]:
        """Yield the records one by one, for `async for`."""
        runs = self._runs_async(_queue(prefetch, queue_size))
        return stream_async(runs, ErrorPolicy(on_error), records_of)

    def iter_batches_sync(
        self,
        batch_size: int = 1000,
        on_error: OnError = "raise",
        prefetch: bool = True,  # noqa: FBT001, FBT002 (the seed's signature)
        queue_size: int = DEFAULT_QUEUE,
    ) -> RecordIterator[list[Any]]:
        """Yield lists of `batch_size` records; only the last may be shorter."""
        runs = self._runs(_queue(prefetch, queue_size))
        return stream(runs, ErrorPolicy(on_error), batches_of(batch_size))

    def iter_batches(
        self,
        batch_size: int = 1000,
        on_error: OnError = "raise",
        prefetch: bool = True,  # noqa: FBT001, FBT002 (the seed's signature)
        queue_size: int = DEFAULT_QUEUE,
    ) -> AsyncRecordIterator[list[Any]]:
        """Yield lists of `batch_size` records, for `async for`."""
        runs = self._runs_async(_queue(prefetch, queue_size))
        return stream_async(runs, ErrorPolicy(on_error), batches_of(batch_size))

    def writer_sync(  # noqa: PLR0913 (the seed's signature and two options of ours)
        self,
        shard_extension: str = ".jsonl",
        max_records_per_shard: int | None = None,
        max_bytes_per_shard: int | None = 256 << 20,
        flush_bytes: int = 1 << 20,
        compression_level: int = 3,
        *,
        frame_bytes: int | None = 256 << 10,
        allow_nan: bool = False,
    ) -> JsonlDirWriterSync:
        """Return a writer for a `with` block; it appends shards after those that are there.

        A shard is published, and its number taken, when the next record would pass a limit, and
        when the block ends well.

        Args:
            shard_extension: `.jsonl`, or `.jsonl.zst` or `.jsonl.zstd` for compressed shards, which
                take less space and more time to write.
            max_records_per_shard: Records in a shard, at most; None for no limit. It makes shards
                of equal counts; many shards are many files to open.
            max_bytes_per_shard: Bytes of uncompressed text in a shard, at most; None for no limit.
                Larger shards are fewer files; all of an unfinished one is lost with its writer.
            flush_bytes: Bytes of text that are kept in memory before they are compressed and
                written. More takes more memory, less makes more writes.
            compression_level: Of zstd (-131072 to 22), where the extension asks for it. Higher
                levels are smaller and slower.
            frame_bytes: Bytes of text in one zstd frame. A reader that wants one record
                decompresses its frame: smaller frames make that faster, and the file larger. None
                makes one frame of a shard; see `JsonlFile.writer_sync`.
            allow_nan: Write NaN and infinities as Python's `json` does. By default they become
                `null`, for JSON has no such numbers, and most other parsers refuse them.
        """
        options = WriteOptions(flush_bytes, compression_level, frame_bytes, allow_nan)
        place = locate(self.path, self.storage_options)
        limits = (max_records_per_shard, max_bytes_per_shard)
        return JsonlDirWriterSync(DirTarget(*place, options, shard_extension, *limits))

    def writer(  # noqa: PLR0913
        self,
        shard_extension: str = ".jsonl",
        max_records_per_shard: int | None = None,
        max_bytes_per_shard: int | None = 256 << 20,
        flush_bytes: int = 1 << 20,
        compression_level: int = 3,
        *,
        frame_bytes: int | None = 256 << 10,
        allow_nan: bool = False,
    ) -> JsonlDirWriter:
        """Return a writer for an `async with` block; see `writer_sync`."""
        options = WriteOptions(flush_bytes, compression_level, frame_bytes, allow_nan)
        place = locate(self.path, self.storage_options)
        limits = (max_records_per_shard, max_bytes_per_shard)
        return JsonlDirWriter(DirTarget(*place, options, shard_extension, *limits))

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
        """Return what is read, with its entries in the listing, which saves a request for each."""
        store, _ = locate(self.path, self.storage_options)
        # By their names alone, as in flyte: shard 3 of a subdirectory comes before shard 4 here.
        files = in_reading_order(self._listing(recursive=True), lambda item: item[0])
        found = [TextFile(store, entry.name, entry) for _, entry in files]
        if not found:
            _log.warning("%s holds no JSON Lines files; nothing is read", self.path)
        return found


def _queue(prefetch: bool, queue_size: int) -> int:  # noqa: FBT001
    return whole_number("queue_size", queue_size, 1) if prefetch else 0
