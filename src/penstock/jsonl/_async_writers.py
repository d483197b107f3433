"""Writers for async code: what blocks runs in a thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.jsonl._lines import Lines, refuse_part_lines, refuse_single
from penstock.jsonl._records import SLICE_BYTES
from penstock.jsonl._threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable, Iterator
    from types import TracebackType
    from typing import Self

    from penstock.jsonl._targets import DirTarget, Target, WriteOptions

_LEAST_BYTES = 256
"""What a record counts for at least, between two pauses of an event loop."""


class JsonlWriter(Lines):
    """Writes records from async code; any number of tasks may share it."""

    def __init__(self, target: Target, options: WriteOptions) -> None:
        super().__init__(target, options)
        self._flush_bytes = options.flush_bytes
        self._encode = self._encoder.encode
        self._buffer = bytearray()
        self._records = 0
        # What the buffer may hold before the target must be asked; nothing at first.
        self._most_bytes = -1.0
        self._most_records = 0.0
        self._busy = asyncio.Lock()
        self._since_pause = 0

    @property
    def not_finite(self) -> int:
        """NaN and infinities that were written as `null`."""
        return self._encoder.not_finite

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
        refuse_part_lines(data)
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

    def _fits(self, size: int, records: int = 1) -> bool:
        return (
            len(self._buffer) + size <= self._most_bytes
            and self._records + records <= self._most_records
        )

    def _whole_lines(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield raw lines with their number: all at once, or singly where a limit is near."""
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
        self._most_bytes = -1.0
        with self._failing_for_good():
            self._drain()
            room_bytes, self._most_records = self._target.room(line_bytes)
            self._most_bytes = min(room_bytes, self._flush_bytes)

    def _drain(self) -> None:
        if self._buffer:
            text, self._buffer = self._buffer, bytearray()
            records, self._records = self._records, 0
            self._target.add(text, records)
        self._most_bytes = -1.0  # The next write must ask the target.
        self._warn_of_not_finite()

    def _discard(self) -> None:
        super()._discard()
        self._most_bytes = -1.0

    def forked(self) -> None:
        """Make the next write in this forked process come by _check_process."""
        self._most_bytes = -1.0

    def _is_used(self) -> bool:
        return self._most_records > 0

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


class JsonlDirWriter(JsonlWriter):
    """Writes records to numbered shards from async code; any number of tasks may share it."""

    _target: DirTarget

    @property
    def published(self) -> list[str]:
        """The shards that are visible so far."""
        return list(self._target.published)
