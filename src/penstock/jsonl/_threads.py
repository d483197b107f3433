"""Blocking work off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial, wraps
from typing import IO, Any, Concatenate, ParamSpec, Self, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `call(…)`, run in a thread; a cancelled caller still waits until it has ended.

    So no thread works on a file or writer that its owner believes idle.
    """
    run = partial(copy_context().run, call, *args, **kwargs)
    # A future, not a task as `asyncio.to_thread` needs one: a loop that ends cancels all tasks,
    # and this one would count as ended while its thread is still at work.
    work = asyncio.get_running_loop().run_in_executor(None, run)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:
                continue  # Asked again to stop; the thread cannot be, so wait for it.
        if not work.cancelled():
            work.exception()  # Seen: else it would be reported as never retrieved.
        raise


def awaited(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the async twin of a method that blocks; it waits in a thread."""

    @wraps(method)
    async def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await in_thread(method, self, *args, **kwargs)

    twin.__name__ = method.__name__.removesuffix("_sync")
    twin.__qualname__ = method.__qualname__.removesuffix("_sync")
    return twin


class AsyncFile:
    """Opens on `async with`; every call waits in a thread."""

    _file: IO[bytes]

    def __init__(self, open_file: Callable[[], IO[bytes]]) -> None:
        self._open_file = open_file

    async def __aenter__(self) -> Self:
        self._file = await in_thread(self._open_file)
        return self

    async def __aexit__(self, *failure: object) -> None:
        await in_thread(self._file.__exit__, *failure)  # type: ignore[arg-type]

    async def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, or all that are left."""
        return await in_thread(self._file.read, size)

    async def readline(self) -> bytes:
        """Return the next line."""
        return await in_thread(self._file.readline)

    async def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a position and return it."""
        return await in_thread(self._file.seek, offset, whence)

    async def write(self, data: bytes) -> int:
        """Append bytes."""
        return await in_thread(self._file.write, data)
