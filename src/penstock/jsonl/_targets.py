"""Targets of a writer: one file, or a directory of numbered shards; drafts until published."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ObjectExistsError, ObjectNotFoundError, OptionError
from penstock.jsonl._names import checked_extension, compression_of, next_number, shard_name
from penstock.jsonl._sequential import Bz2Encoder, GzipEncoder, PlainEncoder
from penstock.jsonl._zstd import OneFrameEncoder, ZstdEncoder
from penstock.order import whole_number
from penstock.storage import (
    Draft,
    LocalStore,
    Store,
    entry_at,
    join,
    refuse_read_only,
    refuse_special_file,
)

if TYPE_CHECKING:
    from penstock.jsonl._names import Compression


_log = logging.getLogger("penstock.jsonl")
_LARGEST_REMOTE_SHARD = 4 << 30
_LEVELS: dict[Compression, tuple[int, int]] = {
    "zstd": (-131072, 22),
    "gzip": (0, 9),
    "bz2": (1, 9),
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How lines become bytes."""

    flush_bytes: int = 1 << 20
    """Text gathered in memory, at most, before it is compressed and written."""
    compression_level: int = 3
    """Of zstd, gzip or bz2, where the name asks for one."""
    frame_bytes: int | None = 256 << 10
    """Text in one independently readable zstd frame; None for one frame of everything."""
    allow_nan: bool = False
    """Write NaN and infinities as Python does instead of `null`."""

    def __post_init__(self) -> None:
        whole_number("flush_bytes", self.flush_bytes, 1)
        if self.frame_bytes is not None:
            whole_number("frame_bytes", self.frame_bytes, 1)
        if not hasattr(self.compression_level, "__index__"):
            message = f"compression_level={self.compression_level!r}: expected a whole number."
            raise OptionError(message)


def _text_encoder(compression: Compression | None, options: WriteOptions) -> PlainEncoder:
    if compression == "zstd":
        if options.frame_bytes is None:
            return OneFrameEncoder(options.compression_level)
        return ZstdEncoder(options.compression_level, options.frame_bytes)
    if compression == "bz2":
        return Bz2Encoder(options.compression_level)
    return GzipEncoder(options.compression_level) if compression else PlainEncoder()


class Target(ABC):
    """Takes text and makes it visible when it is published; used by one thread at a time."""

    left_bytes = left_records = math.inf
    """What comes before the next shard begins."""

    def __init__(  # noqa: PLR0913, PLR0917 (where lines go, and how)
        self,
        store: Store,
        name: str,
        directory: str,
        label: str,
        compression: Compression | None,
        options: WriteOptions,
    ) -> None:
        level = options.compression_level
        lowest, highest = _LEVELS[compression] if compression else (level, level)
        if not lowest <= level <= highest:
            message = f"compression_level={level}: {compression} takes {lowest} to {highest}."
            raise OptionError(message)
        self.path = store.path(name)
        refuse_read_only(self.path)
        self._store = store
        self._directory = directory
        self._label = label
        self._compression = compression
        self.options = options
        self._draft: Draft | None = None
        self._encoder = PlainEncoder()
        self._cleared = False

    @abstractmethod
    def prepare(self) -> None:
        """Fail now where writing cannot work."""

    @abstractmethod
    def publish(self) -> None:
        """Make everything visible."""

    def add(self, text: bytes | bytearray, records: int) -> None:
        """Take whole lines."""
        draft = self._begun()
        self._write(draft, self._encoder.add(text))
        self.left_bytes -= len(text)
        self.left_records -= records

    def flush(self) -> None:
        """Hand everything to the operating system."""
        if self._draft is not None:
            self._write(self._draft, self._encoder.flush())

    def discard(self) -> None:
        """Forget what is not published."""
        if self._draft is not None:
            self._encoder.close()
            self._draft.discard()

    def _begun(self) -> Draft:
        if self._draft is None:
            if not self._cleared:
                for entry in self._store.clear_dead_drafts(self._directory):
                    _log.info("removed %s, which a writer that is gone left unfinished", entry.name)
                self._cleared = True
            self._draft = self._store.draft(self._directory, self._label)
            self._encoder = _text_encoder(self._compression, self.options)
        return self._draft

    def _finished(self) -> Draft:
        """Return the draft with all text in it, ready to be published."""
        draft = self._begun()
        self._write(draft, self._encoder.finish())
        self._encoder.close()
        return draft

    @staticmethod
    def _write(draft: Draft, pieces: Iterable[bytes | bytearray]) -> None:
        for piece in pieces:
            if piece:
                draft.write(piece)


class FileTarget(Target):
    """One file, published when everything is written."""

    def __init__(
        self,
        store: Store,
        name: str,
        compression: Compression | None,
        options: WriteOptions,
        *,
        overwrite: bool,
    ) -> None:
        directory, _, label = name.rpartition("/")
        super().__init__(store, name, directory, label, compression, options)
        self._name = name
        self._exclusive = not overwrite

    def prepare(self) -> None:
        if self._exclusive and entry_at(self._store, self._name) is not None:
            message = f"{self.path} exists already; overwrite=True replaces it."
            raise ObjectExistsError(message, path=self.path)
        refuse_special_file(self._store, self._name)
        self._begun()

    def publish(self) -> None:
        self._finished().publish(self._name, exclusive=self._exclusive)


class DirTarget(Target):
    """A directory of shards; each takes its number when it is published."""

    def __init__(  # noqa: PLR0913, PLR0917 (where lines go, how, and the limits of a shard)
        self,
        store: Store,
        directory: str,
        options: WriteOptions,
        shard_extension: str,
        max_records_per_shard: int | None,
        max_bytes_per_shard: int | None,
    ) -> None:
        self._extension = checked_extension(shard_extension)
        label, compression = f"shard{shard_extension}", compression_of(shard_extension)
        super().__init__(store, directory, directory, label, compression, options)
        self._most_records = _limit("max_records_per_shard", max_records_per_shard)
        self._most_bytes = _limit("max_bytes_per_shard", max_bytes_per_shard)
        self.left_bytes, self.left_records = self._most_bytes, self._most_records
        if not isinstance(store, LocalStore) and self._most_bytes > _LARGEST_REMOTE_SHARD:
            raise OptionError(
                f"max_bytes_per_shard={max_bytes_per_shard}: a shard in object storage is "
                f"published by one request and may hold at most {_LARGEST_REMOTE_SHARD:,} bytes."
            )
        self._next: int | None = None
        self.published: list[str] = []

    def prepare(self) -> None:
        """Nothing: an unused writer leaves no trace."""

    def add(self, text: bytes | bytearray, records: int) -> None:
        """Take whole lines; a line that would pass a limit begins another shard."""
        start = 0
        while records:
            end = text.index(b"\n", start) + 1
            if end - start > self.left_bytes or not self.left_records:
                self.publish()
            lines = 1
            if len(text) - start <= self.left_bytes and records <= self.left_records:
                end, lines = len(text), records
            while lines < min(records, self.left_records):
                line_end = text.index(b"\n", end) + 1
                if line_end - start > self.left_bytes:
                    break
                end, lines = line_end, lines + 1
            super().add(text[start:end], lines)
            start, records = end, records - lines

    def publish(self) -> None:
        if self._draft is None:
            return
        draft = self._finished()
        lowest = 0
        while True:
            number = max(lowest, self._free_number()) if self._next is None else self._next
            name = join(self._directory, shard_name(number, self._extension))
            try:
                draft.publish(name, exclusive=True)
            except ObjectExistsError:
                self._next = None  # Another writer took it: look again.
                lowest = number + 1  # A listing may not show it yet.
                continue
            self._next = number + 1
            self.published.append(self._store.path(name))
            self._draft = None
            self.left_bytes, self.left_records = self._most_bytes, self._most_records
            return

    def _free_number(self) -> int:
        try:
            return next_number(e.name for e in self._store.list(self._directory, recursive=True))
        except ObjectNotFoundError:
            return 0


def _limit(name: str, value: int | None) -> float:
    return math.inf if value is None else whole_number(name, value, 1)
