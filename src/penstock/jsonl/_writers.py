"""Writers for sync and async code; both fill one buffer and hand it to one target."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from penstock.errors import OptionError, StorageError
from penstock.jsonl._encode import Encoder
from penstock.jsonl._records import SLICE_BYTES
from penstock.jsonl._threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable, Iterator
    from types import TracebackType
    from typing import Self

    from penstock.jsonl._draft_writer import WriteOptions
    from penstock.jsonl._targets import DirTarget, Target

_log = logging.getLogger("penstock.jsonl")


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
        if data and not data.endswith(b"\n"):
            message = f"write_raw takes whole lines; this ends without a newline: {data[-40:]!r}"
            raise OptionError(message)
        lines = data.count(b"\n")
        if self._fits(len(data), lines):
            yield data, lines
        else:
            yield from ((line + b"\n", 1) for line in data.split(b"\n")[:-1])

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
            text, self._buffer = bytes(self._buffer), bytearray()
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
        finally:
            self._discard()

    def _discard(self) -> None:
        self._closed = True
        self._most_bytes = -1.0  # The next write must come by _check_open.
        self._target.discard()

    def _prepare(self) -> None:
        self._check_open()
        self._target.prepare()

    def _check_open(self) -> None:
        if self._closed:
            message = f"the writer of {self.path} is closed; open another one."
            raise OptionError(message)
        if self._failure is not None:
            message = f"an earlier write to {self.path} failed: {self._failure}"
            raise StorageError(message, path=self.path) from self._failure

    def __del__(self) -> None:
        # A forked child holds a copy that is none of its business.
        if not self._closed and self._records and self._process == os.getpid():
            _log.warning(
                "a writer of %s was dropped without being closed: use it in a with block. "
                "What it had not published is lost.",
                self.path,
            )


class JsonlWriterSync(_Lines):
    """Writes records to a file that appears when the `with` block ends well, or not at all."""

    def write(self, record: object) -> None:
        """Write one record; one that cannot be written raises `TypeError` and leaves no trace."""
        line = self._encode(record)
        if len(self._buffer) + len(line) > self._most_bytes or self._records >= self._most_records:
            self._make_room(len(line))
        self._buffer += line
        self._records += 1

    def write_many(self, records: Iterable[object]) -> None:
        """Write records in order."""
        write = self.write
        for record in records:
            write(record)

    def write_raw(self, data: bytes) -> None:
        """Write lines that are JSON already; they must be whole."""
        for text, records in self._whole_lines(data):
            if not self._fits(len(text)):
                self._make_room(len(text))
            self._buffer += text
            self._records += records

    def flush(self) -> None:
        """Hand everything written so far to the operating system; it is not published by that."""
        self._flush()

    def close(self) -> None:
        """Publish; a `with` block does this when it ends well."""
        self._publish()

    def __enter__(self) -> Self:
        self._prepare()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        await self._append(self._encode(record), 1)

    async def write_many(self, records: Iterable[object] | AsyncIterable[object]) -> None:
        """Write records in order, from any iterable or async iterable."""
        if hasattr(records, "__aiter__"):
            async for record in records:
                await self._append(self._encode(record), 1)
        else:
            for record in records:
                await self._append(self._encode(record), 1)

    async def write_raw(self, data: bytes) -> None:
        """Write lines that are JSON already; they must be whole."""
        for text, records in self._whole_lines(data):
            await self._append(text, records)

    async def flush(self) -> None:
        """Hand everything written so far to the operating system; it is not published by that."""
        async with self._busy:
            await in_thread(self._flush)

    async def close(self) -> None:
        """Publish; an `async with` block does this when it ends well."""
        async with self._busy:
            await in_thread(self._publish)

    async def _append(self, text: bytes, records: int) -> None:
        if self._busy.locked() or not self._fits(len(text)):
            async with self._busy:
                if not self._fits(len(text)):
                    await in_thread(self._make_room, len(text))
                self._buffer += text
                self._records += records
        else:
            self._buffer += text
            self._records += records
        self._since_pause += len(text)
        if self._since_pause >= SLICE_BYTES:
            self._since_pause = 0
            await asyncio.sleep(0)

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
