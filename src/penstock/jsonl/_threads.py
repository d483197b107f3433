"""Blocking work off the event loop."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
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
