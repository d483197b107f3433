"""How long an event loop is held: by any one callback, and as a bystander on it notices it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Coroutine


_NAP = 0.001


class Holds(TypedDict):
    """The longest times in seconds."""

    callback: float
    """One callback, from start to end."""
    callback_cpu: float
    """One callback, without what it waited for a processor or for another thread's Python."""
    bystander: float
    """By how much a task that sleeps for a millisecond at a time was woken too late."""


async def holds_during(work: Coroutine[object, object, object]) -> Holds:
    """Return the longest holds of the running loop while `work` is done."""
    longest = Holds(callback=0.0, callback_cpu=0.0, bystander=0.0)
    run = asyncio.Handle._run  # noqa: SLF001 (where the loop calls every callback)

    def timed(handle: asyncio.Handle) -> None:
        began, began_cpu = time.perf_counter(), time.thread_time()
        run(handle)
        longest["callback"] = max(longest["callback"], time.perf_counter() - began)
        longest["callback_cpu"] = max(longest["callback_cpu"], time.thread_time() - began_cpu)

    async def stand_by() -> None:
        while True:
            due = time.perf_counter() + _NAP
            await asyncio.sleep(_NAP)
            longest["bystander"] = max(longest["bystander"], time.perf_counter() - due)

    bystander = asyncio.create_task(stand_by())
    asyncio.Handle._run = timed  # type: ignore[method-assign] # noqa: SLF001
    try:
        await work
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign] # noqa: SLF001
        bystander.cancel()
    return longest
