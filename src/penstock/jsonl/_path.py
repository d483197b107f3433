"""The common part of `JsonlFile` and `JsonlDir`: a place, and the streams of what is there."""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import ObjectNotFoundError, OptionError
from penstock.jsonl._policy import ErrorPolicy
from penstock.jsonl._prefetch import ShardRuns, runs_of_shards
from penstock.jsonl._records import batches_of, stream, stream_async
from penstock.jsonl._text import TextFile, read_pieces
from penstock.jsonl._threads import awaited
from penstock.storage import LocalStore, StorageOptions, locate, new_remote_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Self

    import pyarrow as pa

    from penstock.jsonl._arrow import SchemaChoice
    from penstock.jsonl._policy import OnError
    from penstock.jsonl._records import AsyncStream, Run, Stream
    from penstock.jsonl._text import TextPiece

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
