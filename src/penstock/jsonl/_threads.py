"""Blocking work off the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return `call(…)`, run in a thread; a cancelled caller still waits until it has ended.

    So nothing of ours is ever at work on a file or writer that its owner believes idle.
    """
    work = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
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
