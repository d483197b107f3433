"""Writers for async code: what blocks runs in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Self

from penstock.jsonl._lines import Lines, ShardLines, refuse_part_lines, refuse_single
from penstock.jsonl._records import SLICE_BYTES
from penstock.jsonl._text import lines_of_blocks
from penstock.jsonl._threads import in_thread

if TYPE_CHECKING:
    from penstock.jsonl._targets import Target

_LEAST_BYTES = 256
"""What a record counts for at least, between two pauses of an event loop."""


class JsonlWriter(Lines):
    """Writes records from async code; any number of tasks may share it."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._flush_bytes = target.options.flush_bytes
        self._encode = self._encoder.encode
        self._buffer = bytearray()
        self._records = 0
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
        refuse_part_lines(data)
        async with self._busy:  # All of it together, whatever other tasks write.
            for text in lines_of_blocks([data], SLICE_BYTES):
                await self._put(text, text.count(b"\n"))
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
        if self._busy.locked() or not self._fits(line, 1):
            async with self._busy:
                await self._put(line, 1)
        else:
            self._buffer += line
            self._records += 1
        self._since_pause += max(len(line), _LEAST_BYTES)
        if self._since_pause >= SLICE_BYTES:
            self._since_pause = 0
            await asyncio.sleep(0)  # Let others run, once a slice.

    async def _put(self, text: bytes, records: int) -> None:
        if self._fits(text, records):
            self._buffer += text
            self._records += records
        else:
            await in_thread(self._hand_on, text, records)

    def _fits(self, text: bytes, records: int) -> bool:
        return (
            len(self._buffer) + len(text) <= self._most_gathered
            and self._records + records <= self._target.left_records
        )

    def _hand_on(self, text: bytes, records: int) -> None:
        """Hand the buffer and these lines to the target, which may publish a shard; blocks."""
        self._check_open()
        self._drain()
        self._add(text, records)
        self._most_gathered = min(self._target.left_bytes, self._flush_bytes)

    def _drain(self) -> None:
        if self._buffer:
            text, self._buffer = self._buffer, bytearray()
            records, self._records = self._records, 0
            self._add(text, records)
        self._most_gathered = 0  # The next write comes by `_hand_on`.
        self._warn_of_not_finite()

    async def __aenter__(self) -> Self:
        await in_thread(self._prepare)
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        async with self._busy:
            await in_thread(self._publish if kind is None else self._discard)


class JsonlDirWriter(JsonlWriter, ShardLines):
    """Writes records to numbered shards from async code; any number of tasks may share it."""
