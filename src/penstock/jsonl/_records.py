"""Records, one by one or in lists, for sync and async loops over one engine."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

from penstock.jsonl._decode import DecodedRun, MalformedLine, Record, decode_piece
from penstock.jsonl._threads import in_thread
from penstock.order import whole_number
from penstock.storage._read_ahead import close_source

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator

    from penstock.jsonl._policy import ErrorPolicy
    from penstock.jsonl._text import TextPiece

T = TypeVar("T")
Run: TypeAlias = DecodedRun | MalformedLine

SLICE_BYTES = 64 << 10
"""Text decoded at a time on an event loop: what the loop is held for."""
SYNC_SLICE_BYTES = 16 << 10
"""Text decoded at a time where nothing waits. The records in hand stay in the CPU's cache and are
too few to set off the garbage collector (700 new containers do): together a tenth faster."""
_PIECES_A_HOP = 16
_BYTES_A_HOP = _PIECES_A_HOP * SLICE_BYTES


class Stream(Generic[T]):
    """An iterator over records or batches, with the number of lines it `skipped`."""

    def __init__(self, items: Iterator[T], policy: ErrorPolicy, closing: Generator[object]) -> None:
        self._items = items
        self._policy = policy
        self._closing = closing

    @property
    def skipped(self) -> int:
        """Bad lines passed over so far."""
        return self._policy.skipped

    def __iter__(self) -> Iterator[T]:
        return self._items  # The inner iterator runs in C; a loop should not come through here.

    def __next__(self) -> T:
        return next(self._items)

    def close(self) -> None:
        """Stop early: end background work and close files."""
        self._closing.close()
        self._items = iter(())


class AsyncStream(Generic[T]):
    """An async iterator over records or batches, with the number of lines it `skipped`."""

    def __init__(self, items: AsyncGenerator[T], policy: ErrorPolicy) -> None:
        self._items = items
        self._policy = policy

    @property
    def skipped(self) -> int:
        """Bad lines passed over so far."""
        return self._policy.skipped

    def __aiter__(self) -> AsyncIterator[T]:
        return self._items

    async def __anext__(self) -> T:
        return await anext(self._items)

    async def aclose(self) -> None:
        """Stop early: end background work and close files."""
        await self._items.aclose()


def decode_runs(pieces: Iterator[TextPiece]) -> Iterator[Run]:
    """Yield the runs of records, and the bad lines, of all pieces."""
    for piece in pieces:
        yield from decode_piece(piece)


class AsyncRuns(Protocol):
    """Runs of records for the event loop.

    No async generators: a loop that ends closes all of those at once, and the inner ones of a
    stream are not to be closed while the outer one is at work on them.
    """

    def __aiter__(self) -> AsyncRuns: ...
    async def __anext__(self) -> Run: ...
    async def aclose(self) -> None: ...


class DecodedRuns:
    """The same runs of all pieces, while the event loop stays free; see `AsyncRuns`.

    Reading and decompressing wait in a thread; slices are decoded on the loop, which is faster
    than handing records between threads, with a pause after each run of them. Only a line that
    is longer than a slice is decoded in a thread.
    """

    def __init__(self, pieces: Iterator[TextPiece]) -> None:
        self._pieces = pieces
        self._taken: deque[TextPiece] = deque()
        self._end: Exception | None = None
        self._runs: Iterator[Run] = iter(())

    def __aiter__(self) -> DecodedRuns:
        return self

    async def __anext__(self) -> Run:
        await asyncio.sleep(0)
        while (run := next(self._runs, None)) is None:
            if not self._taken:
                await self._take_some()
            piece = self._taken.popleft()
            if len(piece.text) > 2 * SLICE_BYTES:
                self._runs = iter(await in_thread(_decode_whole, piece))
            else:
                self._runs = decode_piece(piece)
        return run

    async def aclose(self) -> None:
        """Let go of the file."""
        await in_thread(close_source, self._pieces)  # It may wait for a read that is under way.

    async def _take_some(self) -> None:
        if self._end is None:
            some, self._end = await in_thread(_take, self._pieces)
            self._taken.extend(some)
        if not self._taken:
            if self._end is None or isinstance(self._end, StopIteration):
                raise StopAsyncIteration
            raise self._end


def record_stream(runs: Iterator[Run], policy: ErrorPolicy) -> Stream[Record]:
    lists = _settled(runs, policy)
    return Stream(chain.from_iterable(lists), policy, lists)


def batch_stream(runs: Iterator[Run], policy: ErrorPolicy, size: int) -> Stream[list[Record]]:
    """Return lists of `size` records; the last may be shorter."""
    batches = _batches(_settled(runs, policy), whole_number("batch_size", size, 1))
    return Stream(batches, policy, batches)


def record_stream_async(runs: AsyncRuns, policy: ErrorPolicy) -> AsyncStream[Record]:
    async def records() -> AsyncGenerator[Record]:
        try:
            async for run in runs:
                if isinstance(run, MalformedLine):
                    policy.handle(run)
                else:
                    for record in run.items:
                        yield record
            policy.finish()
        finally:
            await runs.aclose()

    return AsyncStream(records(), policy)


def batch_stream_async(
    runs: AsyncRuns, policy: ErrorPolicy, size: int
) -> AsyncStream[list[Record]]:
    """Return lists of `size` records; the last may be shorter."""
    whole_number("batch_size", size, 1)

    async def batches() -> AsyncGenerator[list[Record]]:
        waiting: list[Record] = []
        try:
            async for run in runs:
                if isinstance(run, MalformedLine):
                    policy.handle(run)
                    continue
                waiting += run.items
                for start in range(0, len(waiting) - size + 1, size):
                    yield waiting[start : start + size]
                del waiting[: len(waiting) // size * size]
            policy.finish()
            if waiting:
                yield waiting
        finally:
            await runs.aclose()

    return AsyncStream(batches(), policy)


def _settled(runs: Iterator[Run], policy: ErrorPolicy) -> Generator[list[Record]]:
    try:
        for run in runs:
            if isinstance(run, MalformedLine):
                policy.handle(run)
            else:
                yield run.items
        policy.finish()
    finally:
        close_source(runs)


def _batches(lists: Generator[list[Record]], size: int) -> Generator[list[Record]]:
    waiting: list[Record] = []
    try:
        for records in lists:
            waiting += records
            for start in range(0, len(waiting) - size + 1, size):
                yield waiting[start : start + size]
            del waiting[: len(waiting) // size * size]
        if waiting:
            yield waiting
    finally:
        lists.close()


def _take(pieces: Iterator[TextPiece]) -> tuple[list[TextPiece], Exception | None]:
    """Return some pieces, and what ended them: an error must not swallow those before it."""
    taken: list[TextPiece] = []
    size = 0
    try:
        while len(taken) < _PIECES_A_HOP and size < _BYTES_A_HOP:
            taken.append(next(pieces))
            size += len(taken[-1].text)
    except Exception as end:  # noqa: BLE001 (raised by the caller, at its place)
        return taken, end
    return taken, None


def _decode_whole(piece: TextPiece) -> list[Run]:
    return list(decode_piece(piece))
