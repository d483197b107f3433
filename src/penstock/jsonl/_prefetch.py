"""While one shard is consumed, the next is already being read and decoded."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.jsonl._decode import DecodedRun, MalformedLine
from penstock.jsonl._records import (
    SLICE_BYTES,
    SYNC_SLICE_BYTES,
    AsyncRuns,
    DecodedRuns,
    decode_runs,
)
from penstock.jsonl._threads import in_thread
from penstock.storage import ReadAhead
from penstock.storage._read_ahead import close_source

if TYPE_CHECKING:
    from penstock.jsonl._records import Run
    from penstock.jsonl._text import TextPiece

    OpenShard = Callable[[int], Iterator[TextPiece]]
    """Opens a shard's text by piece size."""

_MOST_TEXT_BYTES = 64 << 20


def weigh_runs(queue_size: int) -> Callable[[Run], int]:
    """Return how much of the queue a run takes: its records, or more when they are large."""

    def weigh(run: Run) -> int:
        if isinstance(run, MalformedLine):
            return 1
        return max(len(run.items), run.text_bytes * queue_size // _MOST_TEXT_BYTES)

    return weigh


def runs_of_shards(shards: Sequence[OpenShard], queue_size: int) -> Iterator[Run]:
    """Yield all runs in shard order; at most `queue_size` records of the next shard wait.

    With `queue_size` 0 nothing is prefetched.
    """
    weigh = weigh_runs(queue_size)
    runs: Iterator[Run] | None = None
    ahead: ReadAhead[Run] | None = None
    try:
        for position, shard in enumerate(shards):
            if ahead is not None:
                ahead.take_over()
            runs, ahead = ahead or decode_runs(shard(SYNC_SLICE_BYTES)), None
            if queue_size and position + 1 < len(shards):
                following = decode_runs(shards[position + 1](SLICE_BYTES))
                ahead = ReadAhead(following, limit=queue_size, weigh=weigh, name="prefetch")
            yield from runs
            close_source(runs)
    finally:
        close_source(runs)
        close_source(ahead)


class ShardRuns(AsyncRuns[DecodedRun]):
    """The same runs for the event loop, the next shard's made by a task of their own.

    `list_shards` is called in a thread when the first run is asked for.
    """

    def __init__(self, list_shards: Callable[[], Sequence[OpenShard]], queue_size: int) -> None:
        self._list_shards = list_shards
        self._queue_size = queue_size
        self._shards: deque[OpenShard] | None = None
        self._runs: AsyncRuns[DecodedRun] | None = None
        self._ahead: _TaskAhead | None = None

    async def __anext__(self) -> Run:
        if self._shards is None:
            self._shards = deque(await in_thread(self._list_shards))
        while True:
            if self._runs is None:
                self._runs = self._next_shard(self._shards)
            try:
                return await anext(self._runs)
            except StopAsyncIteration:
                await self._runs.aclose()
                self._runs = None

    def _next_shard(self, shards: deque[OpenShard]) -> AsyncRuns[DecodedRun]:
        """Return the runs of the next shard, and let those of the one behind it begin."""
        runs: AsyncRuns[DecodedRun]
        if self._ahead is not None:
            runs, self._ahead = self._ahead, None
        elif shards:
            runs = DecodedRuns(shards.popleft()(SLICE_BYTES))
        else:
            raise StopAsyncIteration
        if self._queue_size and shards:
            following = DecodedRuns(shards.popleft()(SLICE_BYTES))
            self._ahead = _TaskAhead(following, self._queue_size)
        return runs

    async def aclose(self) -> None:
        try:
            if self._runs is not None:
                await self._runs.aclose()
        finally:
            if self._ahead is not None:
                await self._ahead.aclose()


class _TaskAhead(AsyncRuns[DecodedRun]):
    """An async iterator whose items are made by a task, a bounded distance ahead."""

    def __init__(self, source: DecodedRuns, limit: int) -> None:
        self._source = source
        self._limit = limit
        self._weigh = weigh_runs(limit)
        self._items: deque[Run] = deque()
        self._weight = 0
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._fill())

    async def __anext__(self) -> Run:
        await asyncio.sleep(0)  # Others run between slices, also where none has to be waited for.
        while not self._items:
            if self._task.done():
                self._task.result()  # An error comes out here, at its place in the order.
                raise StopAsyncIteration
            await self._wait()
        run = self._items.popleft()
        self._weight -= self._weigh(run)
        self._changed.set()
        return run

    async def aclose(self) -> None:
        """End the task and wait until it has let go of its shard."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _fill(self) -> None:
        try:
            async for run in self._source:
                weight = self._weigh(run)
                while self._items and self._weight + weight > self._limit:
                    await self._wait()
                self._items.append(run)
                self._weight += weight
                self._changed.set()
        finally:
            await self._source.aclose()
            self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
