"""Blocking work off the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.jsonl._threads import in_thread


def test_the_result_and_the_error_come_back() -> None:
    async def use() -> None:
        assert await in_thread(int, "ff", base=16) == 255
        with pytest.raises(ValueError, match="zz"):
            await in_thread(int, "zz")
        assert await in_thread(threading.current_thread) is not threading.current_thread()

    asyncio.run(use())


def test_a_cancelled_caller_waits_until_the_work_has_ended() -> None:
    begun, may_end = threading.Event(), threading.Event()
    events: list[str] = []

    def work() -> None:
        begun.set()
        may_end.wait()
        events.append("work ended")

    async def use() -> None:
        task = asyncio.create_task(in_thread(work))
        await asyncio.to_thread(begun.wait)
        for _ in range(3):  # Asking more than once changes nothing.
            task.cancel()
            for _ in range(20):
                await asyncio.sleep(0)
            assert not task.done()
        events.append("may end")
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        events.append("caller ended")

    asyncio.run(use())
    assert events == ["may end", "work ended", "caller ended"]


def test_an_error_of_work_whose_caller_was_cancelled_is_not_reported_as_forgotten() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait()
        raise LookupError

    async def use() -> list[object]:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(context)
        )
        task = asyncio.create_task(in_thread(work))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return complaints

    assert asyncio.run(use()) == []
