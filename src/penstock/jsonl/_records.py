"""Records, one by one or in lists, for sync and async loops over one engine."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from penstock.jsonl._decode import DecodedRun, MalformedLine, Record, decode_piece
from penstock.jsonl._text import TextPiece, and_failure
from penstock.jsonl._threads import in_thread
from penstock.order import whole_number
from penstock.storage._read_ahead import close_source

if TYPE_CHECKING:
    from penstock.jsonl._policy import ErrorPolicy

T = TypeVar("T")
R = TypeVar("R")
Run: TypeAlias = DecodedRun | MalformedLine

SLICE_BYTES = 64 << 10
"""Text decoded at a time on an event loop: what the loop is held for."""
SYNC_SLICE_BYTES = 16 << 10
"""Text decoded at a time where nothing waits. The records in hand stay in the CPU's cache and are
too few to set off the garbage collector (700 new containers do): together a tenth faster."""
_PIECES_A_HOP = 16
_BYTES_A_HOP = _PIECES_A_HOP * SLICE_BYTES


class RecordIterator(Generic[T]):
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


class AsyncRecordIterator(Generic[T]):
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


class AsyncRuns(ABC, Generic[R]):
    """Runs for the event loop.

    No async generators: a loop that ends closes all of those at once, and the inner ones of a
    stream are not to be closed while the outer one is at work on them.
    """

    def __aiter__(self) -> AsyncRuns[R]:
        return self

    @abstractmethod
    async def __anext__(self) -> R | MalformedLine: ...

    @abstractmethod
    async def aclose(self) -> None:
        """End the work ahead and let go of the files."""


class DecodedRuns(AsyncRuns[DecodedRun]):
    """The same runs of all pieces, while the event loop stays free.

    Reading and decompressing wait in a thread; slices are decoded on the loop, which is faster
    than handing records between threads, with a pause after each run of them. Only a line that
    is longer than a slice is decoded in a thread.
    """

    def __init__(self, pieces: Iterator[TextPiece]) -> None:
        self._pieces = and_failure(pieces)
        self._taken: deque[TextPiece | Exception] = deque()
        self._runs: Iterator[Run] = iter(())

    async def __anext__(self) -> Run:
        await asyncio.sleep(0)
        while (run := next(self._runs, None)) is None:
            if not self._taken:
                self._taken.extend(await in_thread(_take, self._pieces))
            if not self._taken:
                raise StopAsyncIteration
            piece = self._taken.popleft()
            if isinstance(piece, Exception):
                raise piece
            if len(piece.text) > 2 * SLICE_BYTES:
                self._runs = iter(await in_thread(_decode_whole, piece))
            else:
                self._runs = decode_piece(piece)
        return run

    async def aclose(self) -> None:
        await in_thread(close_source, self._pieces)  # It may wait for a read that is under way.


def stream(
    runs: Iterator[R | MalformedLine], policy: ErrorPolicy, cut: Callable[[R | None], Iterable[T]]
) -> RecordIterator[T]:
    """Return what `cut` makes of each run, and at the end of None; bad lines go to the policy."""
    items = _settled(runs, policy, cut)
    return RecordIterator(items, policy, items)


def stream_async(
    runs: AsyncRuns[R], policy: ErrorPolicy, cut: Callable[[R | None], Iterable[T]]
) -> AsyncRecordIterator[T]:
    """Return the same for `async for`."""

    async def items() -> AsyncGenerator[T]:
        try:
            async for run in runs:
                if isinstance(run, MalformedLine):
                    policy.handle(run)
                else:
                    for item in cut(run):
                        yield item
            policy.finish()
            for item in cut(None):
                yield item
        finally:
            await runs.aclose()

    return AsyncRecordIterator(items(), policy)


def record_stream(runs: Iterator[Run], policy: ErrorPolicy) -> RecordIterator[Record]:
    lists = _settled(runs, policy, lambda run: (run.items,) if run else ())
    return RecordIterator(chain.from_iterable(lists), policy, lists)


def records_of(run: DecodedRun | None) -> list[Record]:
    return run.items if run else []


def batches_of(size: int) -> Callable[[DecodedRun | None], list[list[Record]]]:
    """Return what makes lists of `size` records of runs; the last may be shorter."""
    whole_number("batch_size", size, 1)
    waiting: list[Record] = []

    def cut(run: DecodedRun | None) -> list[list[Record]]:
        waiting.extend(records_of(run))
        stop = len(waiting) // size * size if run else len(waiting)
        batches = [waiting[start : start + size] for start in range(0, stop, size)]
        del waiting[:stop]
        return batches

    return cut


def _settled(
    runs: Iterator[R | MalformedLine], policy: ErrorPolicy, cut: Callable[[R | None], Iterable[T]]
) -> Generator[T]:
    try:
        for run in runs:
            if isinstance(run, MalformedLine):
                policy.handle(run)
            else:
                yield from cut(run)
        policy.finish()
        yield from cut(None)
    finally:
        close_source(runs)


def _take(pieces: Iterator[TextPiece | Exception]) -> list[TextPiece | Exception]:
    taken: list[TextPiece | Exception] = []
    size = 0
    for piece in pieces:
        taken.append(piece)
        size += 0 if isinstance(piece, Exception) else len(piece.text)
        if len(taken) >= _PIECES_A_HOP or size >= _BYTES_A_HOP:
            break
    return taken


def _decode_whole(piece: TextPiece) -> list[Run]:
    return list(decode_piece(piece))
