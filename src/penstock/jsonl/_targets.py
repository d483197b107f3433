"""Targets of a writer: one file, or a directory of numbered shards."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ObjectExistsError, ObjectNotFoundError, OptionError
from penstock.jsonl._draft_writer import DraftWriter, WriteOptions, check_level
from penstock.jsonl._names import (
    base_name,
    checked_extension,
    compression_of,
    next_number,
    shard_name,
)
from penstock.order import whole_number
from penstock.storage import LocalStore, join, refuse_special_file

if TYPE_CHECKING:
    from penstock.jsonl._names import Compression
    from penstock.storage import Store

_log = logging.getLogger("penstock.jsonl")
_LARGEST_REMOTE_SHARD = 4 << 30


class Target(Protocol):
    """Takes text; used by one thread at a time."""

    path: str

    def prepare(self) -> None:
        """Fail now where writing cannot work."""
        ...

    def room(self, line_bytes: int) -> tuple[float, float]:
        """Return bytes and records that may come next, this line first; rotate if it must."""
        ...

    def add(self, text: bytes | bytearray, records: int) -> None:
        """Take whole lines."""
        ...

    def flush(self) -> None:
        """Hand everything to the operating system."""
        ...

    def publish(self) -> None:
        """Make everything visible."""
        ...

    def discard(self) -> None:
        """Forget what is not published."""
        ...


class FileTarget:
    """One file, published when everything is written."""

    def __init__(
        self,
        store: Store,
        name: str,
        options: WriteOptions,
        *,
        compression: Compression | None,
        overwrite: bool,
    ) -> None:
        check_level(compression, options.compression_level)
        self.path = store.path(name)
        self._store = store
        self._name = name
        self._directory = name.rpartition("/")[0]
        self._compression = compression
        self._options = options
        self._exclusive = not overwrite
        self._draft: DraftWriter | None = None

    def prepare(self) -> None:
        if self._exclusive and _exists(self._store, self._name):
            message = f"{self.path} exists already; overwrite=True replaces it."
            raise ObjectExistsError(message, path=self.path)
        refuse_special_file(self._store, self._name)
        self._begun()

    def room(self, line_bytes: int) -> tuple[float, float]:
        del line_bytes
        return math.inf, math.inf

    def add(self, text: bytes | bytearray, records: int) -> None:
        self._begun().add(text, records)

    def flush(self) -> None:
        self._begun().flush()

    def publish(self) -> None:
        draft = self._begun()
        draft.finish()
        draft.publish(self._name, exclusive=self._exclusive)

    def discard(self) -> None:
        if self._draft is not None:
            self._draft.discard()

    def _begun(self) -> DraftWriter:
        if self._draft is None:
            clear_dead_drafts(self._store, self._directory)
            label = base_name(self._name)
            self._draft = DraftWriter(
                self._store, self._directory, label, self._compression, self._options
            )
        return self._draft


class DirTarget:
    """A directory of shards; each takes its number when it is published."""

    def __init__(  # noqa: PLR0913 (the limits of a directory, by name)
        self,
        store: Store,
        directory: str,
        options: WriteOptions,
        *,
        shard_extension: str,
        max_records_per_shard: int | None,
        max_bytes_per_shard: int | None,
    ) -> None:
        self._extension = checked_extension(shard_extension)
        self._compression = compression_of(shard_extension)
        check_level(self._compression, options.compression_level)
        self.path = store.path(directory)
        self._store = store
        self._directory = directory
        self._options = options
        self._most_records = _limit("max_records_per_shard", max_records_per_shard)
        self._most_bytes = _limit("max_bytes_per_shard", max_bytes_per_shard)
        if not isinstance(store, LocalStore) and self._most_bytes > _LARGEST_REMOTE_SHARD:
            message = (
                f"max_bytes_per_shard={max_bytes_per_shard}: a shard in object storage is "
                f"published by one request and may hold at most {_LARGEST_REMOTE_SHARD:,} bytes."
            )
            raise OptionError(message)
        self._draft: DraftWriter | None = None
        self._next: int | None = None
        self._cleared = False
        self.published: list[str] = []

    def prepare(self) -> None:
        """Nothing: an unused writer leaves no trace."""

    def room(self, line_bytes: int) -> tuple[float, float]:
        draft = self._draft
        if draft is not None and (
            draft.text_bytes + line_bytes > self._most_bytes or draft.records >= self._most_records
        ):
            self.publish()
            draft = None
        if draft is None:
            return self._most_bytes, self._most_records
        return self._most_bytes - draft.text_bytes, self._most_records - draft.records

    def add(self, text: bytes | bytearray, records: int) -> None:
        if self._draft is None:
            if not self._cleared:
                clear_dead_drafts(self._store, self._directory)
                self._cleared = True
            label = f"shard{self._extension}"
            self._draft = DraftWriter(
                self._store, self._directory, label, self._compression, self._options
            )
        self._draft.add(text, records)

    def flush(self) -> None:
        if self._draft is not None:
            self._draft.flush()

    def publish(self) -> None:
        if self._draft is None:
            return
        self._draft.finish()
        lowest = 0
        while True:
            number = max(lowest, self._free_number()) if self._next is None else self._next
            name = join(self._directory, shard_name(number, self._extension))
            try:
                self._draft.publish(name, exclusive=True)
            except ObjectExistsError:
                self._next = None  # Another writer took it: look again.
                lowest = number + 1  # A listing may not show it yet.
                continue
            self._next = number + 1
            self.published.append(self._store.path(name))
            self._draft = None
            return

    def discard(self) -> None:
        if self._draft is not None:
            self._draft.discard()

    def _free_number(self) -> int:
        try:
            return next_number(entry.name for entry in self._store.list(self._directory))
        except ObjectNotFoundError:
            return 0


def clear_dead_drafts(store: Store, directory: str) -> None:
    """Remove what killed writers left, and say so."""
    for entry in store.clear_dead_drafts(directory):
        _log.info("removed %s, which a writer that is gone left unfinished", entry.name)


def _exists(store: Store, name: str) -> bool:
    try:
        store.entry(name)
    except ObjectNotFoundError:
        return False
    return True


def _limit(name: str, value: int | None) -> float:
    return math.inf if value is None else whole_number(name, value, 1)
