"""While one shard is consumed, the next is already being read and decoded."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from penstock.jsonl._decode import BadLine
from penstock.jsonl._records import SLICE_BYTES, Run, decode_runs, decode_runs_async
from penstock.storage import ReadAhead

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from penstock.jsonl._text import Piece

    OpenShard = Callable[[int], Iterator[Piece]]
    """Opens a shard's text by piece size."""

_MOST_TEXT_BYTES = 64 << 20


def weigh_runs(queue_size: int) -> Callable[[Run], int]:
    """Return how much of the queue a run takes: its records, or more when they are large."""

    def weigh(run: Run) -> int:
        if isinstance(run, BadLine):
            return 1
        return max(len(run.items), run.text_bytes * queue_size // _MOST_TEXT_BYTES)

    return weigh


def runs_of_shards(shards: Sequence[OpenShard], queue_size: int) -> Iterator[Run]:
    """Yield all runs in shard order; at most `queue_size` records of the next shard wait.

    With `queue_size` 0 nothing is prefetched.
    """
    waiting: deque[Iterator[Run]] = deque()
    weigh = weigh_runs(queue_size)
    try:
        for position, shard in enumerate(shards):
            runs = waiting.popleft() if waiting else decode_runs(shard(SLICE_BYTES))
            try:
                if queue_size and position + 1 < len(shards):
                    following = decode_runs(shards[position + 1](SLICE_BYTES))
                    waiting.append(
                        ReadAhead(following, limit=queue_size, weigh=weigh, name="prefetch")
                    )
                yield from runs
            finally:
                runs.close()  # type: ignore[attr-defined]
    finally:
        for runs in waiting:
            runs.close()  # type: ignore[attr-defined]


async def runs_of_shards_async(shards: Sequence[OpenShard], queue_size: int) -> AsyncGenerator[Run]:
    """Yield the same runs on the event loop, the next shard's made by a task of their own."""
    waiting: deque[_TaskAhead] = deque()
    try:
        for position, shard in enumerate(shards):
            runs: AsyncGenerator[Run] | _TaskAhead = (
                waiting.popleft() if waiting else decode_runs_async(shard(SLICE_BYTES))
            )
            try:
                if queue_size and position + 1 < len(shards):
                    following = decode_runs_async(shards[position + 1](SLICE_BYTES))
                    waiting.append(_TaskAhead(following, queue_size))
                async for run in runs:
                    yield run
            finally:
                await runs.aclose()
    finally:
        for ahead in waiting:
            await ahead.aclose()


class _TaskAhead:
    """An async iterator whose items are made by a task, a bounded distance ahead."""

    def __init__(self, source: AsyncGenerator[Run], limit: int) -> None:
        self._source = source
        self._limit = limit
        self._weigh = weigh_runs(limit)
        self._items: deque[Run] = deque()
        self._weight = 0
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._fill())

    def __aiter__(self) -> _TaskAhead:
        return self

    async def __anext__(self) -> Run:
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
