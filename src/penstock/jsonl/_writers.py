"""Writers for sync and async code; both fill one buffer and hand it to one target."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from itertools import islice
from typing import TYPE_CHECKING
from weakref import WeakSet

from penstock.errors import (
    OptionError,
    StorageError,
    UnsafeForkError,
    UnserializableRecordError,
)
from penstock.jsonl._encode import Encoder
from penstock.jsonl._records import SLICE_BYTES
from penstock.jsonl._threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from penstock.jsonl._draft_writer import WriteOptions
    from penstock.jsonl._targets import DirTarget, Target

_log = logging.getLogger("penstock.jsonl")
_TOGETHER_BYTES = 16 << 10
"""Text of records that are encoded together, or up to four times as much."""
_LEAST_BYTES = 256
"""What a record counts for at least, between two pauses of an event loop."""
_writers: WeakSet[_Lines] = WeakSet()


class _Lines:
    """Lines on their way to a target, buffered."""

    def __init__(self, target: Target, options: WriteOptions) -> None:
        self._target = target
        self._flush_bytes = options.flush_bytes
        self._encoder = Encoder(allow_nan=options.allow_nan)
        self._encode = self._encoder.encode
        self._buffer = bytearray()
        self._records = 0
        # What the buffer may hold before the target must be asked; nothing at first.
        self._most_bytes = -1.0
        self._most_records = 0.0
        self._warned = False
        self._closed = False
        self._failure: BaseException | None = None
        self._process = os.getpid()
        _writers.add(self)

    @property
    def path(self) -> str:
        """Where the lines go."""
        return self._target.path

    @property
    def not_finite(self) -> int:
        """NaN and infinities that were written as `null`."""
        return self._encoder.not_finite

    def _fits(self, size: int, records: int = 1) -> bool:
        return (
            len(self._buffer) + size <= self._most_bytes
            and self._records + records <= self._most_records
        )

    def _whole_lines(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield raw lines with their number: all at once, or singly where a limit is near."""
        if not isinstance(data, bytes | bytearray):
            message = f"write_raw takes bytes, not {type(data).__name__}."
            raise UnserializableRecordError(message)
        if data and not data.endswith(b"\n"):
            message = f"write_raw takes whole lines; this ends without a newline: {data[-40:]!r}"
            raise OptionError(message)
        if self._fits(len(data), 0) and self._fits(len(data), lines := data.count(b"\n")):
            yield data, lines
            return
        start = 0
        while start < len(data):
            end = data.index(b"\n", start) + 1
            yield data[start:end], 1
            start = end

    def _make_room(self, line_bytes: int) -> None:
        """Empty the buffer into the target, which may publish a shard; blocks."""
        self._check_open()
        try:
            self._drain()
            room_bytes, self._most_records = self._target.room(line_bytes)
            self._most_bytes = min(room_bytes, self._flush_bytes)
        except BaseException as failure:
            self._failure = failure
            self._most_bytes = -1.0
            raise

    def _drain(self) -> None:
        if self._buffer:
            text, self._buffer = self._buffer, bytearray()
            records, self._records = self._records, 0
            self._target.add(text, records)
        if self._encoder.not_finite and not self._warned:
            self._warned = True
            _log.warning(
                "%s: NaN or infinity written as null, which JSON has no number for; "
                "allow_nan=True writes them as Python does",
                self.path,
            )

    def _flush(self) -> None:
        self._make_room(0)
        self._target.flush()

    def _publish(self) -> None:
        self._check_process()
        if self._failure is not None:
            self._discard()
            message = (
                f"{self.path} was not published, because an earlier write failed: {self._failure}"
            )
            raise StorageError(message, path=self.path) from self._failure
        if self._closed:
            return
        try:
            self._drain()
            self._target.publish()
        except BaseException as failure:
            self._failure = failure
            raise
        finally:
            self._discard()

    def _discard(self) -> None:
        self._closed = True
        self._most_bytes = -1.0  # The next write must come by _check_open.
        self._target.discard()

    def _prepare(self) -> None:
        self._check_open()
        self._target.prepare()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            self._discard()
            message = (
                f"the writer of {self.path} belongs to process {self._process}, from which this "
                "one was forked. Open a writer of its own in the forked process."
            )
            raise UnsafeForkError(message, path=self.path)

    def _check_open(self) -> None:
        self._check_process()
        if self._closed:
            message = f"the writer of {self.path} is closed; open another one."
            raise OptionError(message)
        if self._failure is not None:
            message = f"an earlier write to {self.path} failed: {self._failure}"
            raise StorageError(message, path=self.path) from self._failure

    def forked(self) -> None:
        """Make the next write in this forked process come by _check_process."""
        self._most_bytes = -1.0

    def __del__(self) -> None:
        # A forked child holds a copy that is none of its business.
        if not self._closed and self._most_records and self._process == os.getpid():
            _log.warning(
                "a writer of %s was dropped without being closed: use it in a with block. "
                "What it had not published is lost.",
                self.path,
            )


class JsonlWriterSync(_Lines):
    """Writes records to a file that appears when the `with` block ends well, or not at all.

    Any number of threads may share it.
    """

    def __init__(self, target: Target, options: WriteOptions) -> None:
        super().__init__(target, options)
        self._alone = threading.RLock()

    def write(self, record: object) -> None:
        """Write one record; one that cannot be written raises `TypeError` and leaves no trace."""
        with self._alone:
            line = self._encode(record)
            size = len(line)
            if len(self._buffer) + size > self._most_bytes or self._records >= self._most_records:
                self._make_room(size)
            self._buffer += line
            self._records += 1

    def write_many(self, records: Iterable[object]) -> None:
        """Write records in order; those of a list go a good deal faster."""
        refuse_single(records)
        if isinstance(records, list | tuple):
            with self._alone:
                records = self._write_plain(records)
        for record in records:
            self.write(record)

    def _write_plain(self, records: Sequence[object]) -> Iterable[object]:
        """Write records many at a time; return those from where one asks for a closer look."""
        start, many = 0, 1
        while start < len(records):
            some = records[start : start + many]
            text = self._encoder.encode_plain(some)
            if text is None:
                break
            if not self._fits(len(text), len(some)):
                self._make_room(0)
            if self._fits(len(text), len(some)):
                self._buffer += text
                self._records += len(some)
            else:
                for record in some:  # A limit is near: each finds its place.
                    self.write(record)
            start += len(some)
            if len(text) < _TOGETHER_BYTES:
                many *= 2
            elif len(text) > 4 * _TOGETHER_BYTES:
                many = max(1, many // 2)
        return islice(records, start, None)

    def write_raw(self, data: bytes) -> None:
        """Write lines that are JSON already; they must be whole."""
        with self._alone:
            for text, records in self._whole_lines(data):
                if not self._fits(len(text)):
                    self._make_room(len(text))
                self._buffer += text
                self._records += records

    def flush(self) -> None:
        """Hand everything written so far to the operating system; it is not published by that."""
        with self._alone:
            self._flush()

    def close(self) -> None:
        """Publish; a `with` block does this when it ends well."""
        with self._alone:
            self._publish()

    def forked(self) -> None:
        """Make the next write in this forked process come by _check_process."""
        super().forked()
        self._alone = threading.RLock()  # The old one may be held by a thread that is not here.

    def __enter__(self) -> Self:
        self._prepare()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._alone:
            if kind is None:
                self._publish()
            else:
                self._discard()


class JsonlWriter(_Lines):
    """Writes records from async code; any number of tasks may share it."""

    def __init__(self, target: Target, options: WriteOptions) -> None:
        super().__init__(target, options)
        self._busy = asyncio.Lock()
        self._since_pause = 0

    async def write(self, record: object) -> None:
        """Write one record; one that cannot be written raises `TypeError` and leaves no trace."""
        await self._append(self._encode(record))

    async def write_many(self, records: Iterable[object] | AsyncIterable[object]) -> None:
        """Write records in order, from any iterable or async iterable."""
        refuse_single(records)
        if hasattr(records, "__aiter__"):
            async for record in records:
                await self._append(self._encode(record))
        else:
            for record in records:
                await self._append(self._encode(record))

    async def write_raw(self, data: bytes) -> None:
        """Write lines that are JSON already; they must be whole."""
        # Under the lock: what fits must not change between the question and the answer.
        async with self._busy:
            for text, records in self._whole_lines(data):
                if not self._fits(len(text)):
                    await in_thread(self._make_room, len(text))
                self._buffer += text
                self._records += records
                if self._is_time_to_pause(len(text)):
                    await asyncio.sleep(0)

    async def flush(self) -> None:
        """Hand everything written so far to the operating system; it is not published by that."""
        async with self._busy:
            await in_thread(self._flush)

    async def close(self) -> None:
        """Publish; an `async with` block does this when it ends well."""
        async with self._busy:
            await in_thread(self._publish)

    async def _append(self, line: bytes) -> None:
        if self._busy.locked() or not self._fits(len(line)):
            async with self._busy:
                if not self._fits(len(line)):
                    await in_thread(self._make_room, len(line))
                self._buffer += line
                self._records += 1
        else:
            self._buffer += line
            self._records += 1
        if self._is_time_to_pause(len(line)):
            await asyncio.sleep(0)

    def _is_time_to_pause(self, text_bytes: int) -> bool:
        """Whether others should run: once a slice."""
        self._since_pause += max(text_bytes, _LEAST_BYTES)
        if self._since_pause < SLICE_BYTES:
            return False
        self._since_pause = 0
        return True

    async def __aenter__(self) -> Self:
        await in_thread(self._prepare)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        async with self._busy:
            await in_thread(self._publish if kind is None else self._discard)


class JsonlDirWriterSync(JsonlWriterSync):
    """Writes records to numbered shards, each published when it is full."""

    _target: DirTarget

    @property
    def published(self) -> list[str]:
        """The shards that are visible so far."""
        return list(self._target.published)


class JsonlDirWriter(JsonlWriter):
    """Writes records to numbered shards from async code; any number of tasks may share it."""

    _target: DirTarget

    @property
    def published(self) -> list[str]:
        """The shards that are visible so far."""
        return list(self._target.published)


def refuse_single(records: object) -> None:
    """Raise for one record, or text, where records are expected: its parts are none."""
    if isinstance(records, dict | str | bytes | bytearray):
        message = f"write_many takes records, not one {type(records).__name__}; write takes one."
        raise UnserializableRecordError(message)


def _after_fork_in_child() -> None:
    for writer in list(_writers):
        writer.forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
