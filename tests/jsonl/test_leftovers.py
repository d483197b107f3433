"""Whoever stops early leaves no task, no thread and no open file behind."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from penstock.jsonl import JsonlDir, JsonlFile
from tests.jsonl.doors import names_in, write
from tests.rounds import rounds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROUNDS = rounds(4, 1000)
KINDS = ["records", "batches", "arrow_batches"]
Source = JsonlFile | JsonlDir


@pytest.fixture(autouse=True, scope="module")
def nothing_of_others() -> None:
    """Let what other files left in a cycle go now, and not in the middle of a test."""
    gc.collect()


def open_files() -> list[str]:
    """Return what the descriptors of this process point to, pipes and sockets aside."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208 (numbers, not files)
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        if target.startswith("/") and "/fd" not in target:
            found.append(target)
    return sorted(found)


def threads() -> list[str]:
    """Return the threads but the event loop's own pool, and those in which test servers answer."""
    names = [one.name for one in threading.enumerate() if not one.name.startswith("asyncio_")]
    return sorted(name for name in names if "process_request_thread" not in name)


@pytest.fixture(scope="module", params=["file", "file.zst", "directory", "directory.zst"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A file of many pieces, or a directory of such files; plain or compressed."""
    place, dot, compression = request.param.partition(".")
    directory = tmp_path_factory.mktemp("source")
    items = [{"n": n, "text": "x" * 500} for n in range(1000)]
    for number in range(4):
        file = JsonlFile(directory / f"{number}.jsonl{dot}{compression}")
        write(file, items, compression_level=1)
    return file if place == "file" else JsonlDir(directory)


def small(kind: str) -> dict[str, int]:
    return {} if kind == "records" else {"batch_size": 100}


def _break(source: Source, kind: str) -> None:
    for _ in getattr(source, f"iter_{kind}_sync")(**small(kind)):
        break


def _close(source: Source, kind: str) -> None:
    stream = getattr(source, f"iter_{kind}_sync")(**small(kind))
    next(stream)
    stream.close()


def _drop(source: Source, kind: str) -> None:
    stream = getattr(source, f"iter_{kind}_sync")(**small(kind))
    next(stream)
    next(stream)
    del stream


def _drop_in_a_cycle(source: Source, kind: str) -> None:
    cycle: list[Any] = [getattr(source, f"iter_{kind}_sync")(**small(kind))]
    next(cycle[0])
    cycle.append(cycle)
    del cycle
    gc.collect()


def _fail(source: Source, kind: str) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the loop is what fails)
        for _ in getattr(source, f"iter_{kind}_sync")(**small(kind)):
            1 / 0  # noqa: B018


def _never_begin(source: Source, kind: str) -> None:
    getattr(source, f"iter_{kind}_sync")(**small(kind))


WAYS: list[Callable[[Source, str], None]] = [
    _break,
    _close,
    _drop,
    _drop_in_a_cycle,
    _fail,
    _never_begin,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_stopping_early_leaves_nothing(
    way: Callable[[Source, str], None], kind: str, source: Source
) -> None:
    files, others = open_files(), threads()
    for _ in range(ROUNDS if way in {_break, _drop} else 1):
        way(source, kind)
        assert threads() == others
    assert open_files() == files


async def _async_break(source: Source, kind: str) -> None:
    async for _ in getattr(source, f"iter_{kind}")(**small(kind)):
        break


async def _async_close(source: Source, kind: str) -> None:
    stream = getattr(source, f"iter_{kind}")(**small(kind))
    await anext(stream)
    await stream.aclose()


async def _async_drop_in_a_cycle(source: Source, kind: str) -> None:
    cycle: list[Any] = [getattr(source, f"iter_{kind}")(**small(kind))]
    await anext(cycle[0])
    cycle.append(cycle)
    del cycle
    gc.collect()


async def _async_fail(source: Source, kind: str) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the loop is what fails)
        async for _ in getattr(source, f"iter_{kind}")(**small(kind)):
            1 / 0  # noqa: B018


async def _async_never_begin(source: Source, kind: str) -> None:
    getattr(source, f"iter_{kind}")(**small(kind))


async def _async_cancel(source: Source, kind: str) -> None:
    begun = asyncio.Event()

    async def take() -> None:
        async for _ in getattr(source, f"iter_{kind}")(**small(kind)):
            begun.set()
            await asyncio.sleep(0)

    task = asyncio.create_task(take())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


ASYNC_WAYS = [
    _async_break,
    _async_close,
    _async_drop_in_a_cycle,
    _async_fail,
    _async_never_begin,
    _async_cancel,
]


async def settle() -> None:
    """Wait until no other task is left: a loop closes what was dropped in tasks of its own."""
    quiet = 0
    while quiet < 3:  # It begins them one turn later.
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        quiet = 0 if others else quiet + 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ASYNC_WAYS, ids=lambda way: way.__name__.removeprefix("_async_"))
def test_stopping_early_leaves_nothing_on_the_event_loop(
    way: Callable[[Source, str], Any], kind: str, source: Source
) -> None:
    files, others = open_files(), threads()
    complaints: list[object] = []

    async def stop() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        for _ in range(ROUNDS if way is _async_break else 1):
            await way(source, kind)
            await settle()
            assert threads() == others
        assert open_files() == files

    asyncio.run(stop())
    assert complaints == []
    assert open_files() == files


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_that_ends_with_a_stream_half_read_closes_it(kind: str, source: Source) -> None:
    files, others = open_files(), threads()
    held: list[Any] = []
    complaints: list[object] = []

    def note_complaints() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))

    async def hold() -> None:
        note_complaints()
        held.append(getattr(source, f"iter_{kind}")(**small(kind)))
        await anext(held[0])

    async def drop() -> None:
        note_complaints()
        async for _ in getattr(source, f"iter_{kind}")(**small(kind)):
            break

    async def leave_at_work() -> None:
        note_complaints()
        begun = asyncio.Event()

        async def take() -> None:
            async for _ in getattr(source, f"iter_{kind}")(**small(kind)):
                begun.set()

        held.append(asyncio.create_task(take()))
        await begun.wait()

    for leave in (hold, drop, leave_at_work):
        for _ in range(rounds(1, 50)):
            asyncio.run(leave())
            held.clear()
            assert complaints == []
            assert open_files() == files
            assert threads() == others


@pytest.mark.parametrize("kind", KINDS)
def test_reading_to_the_end_leaves_nothing(kind: str, source: Source) -> None:
    files, others = open_files(), threads()

    async def take() -> None:
        async for _ in getattr(source, f"iter_{kind}")(**small(kind)):
            pass
        assert asyncio.all_tasks() == {asyncio.current_task()}

    for _ in getattr(source, f"iter_{kind}_sync")(**small(kind)):
        pass
    asyncio.run(take())
    assert open_files() == files
    assert threads() == others


@pytest.mark.parametrize("ending", ["", ".zst", ".gz"])
def test_writers_left_in_any_way_leave_nothing(ending: str, tmp_path: Path) -> None:
    files, others = open_files(), threads()
    file = JsonlFile(tmp_path / f"a.jsonl{ending}")

    def fail() -> None:
        with file.writer_sync() as writer:
            writer.write_many(range(30_000))
            raise LookupError

    async def fail_on_the_loop() -> None:
        async with file.writer() as writer:
            await writer.write_many(range(30_000))
            raise LookupError

    for _ in range(rounds(2, 100)):
        with pytest.raises(LookupError):
            fail()
        with pytest.raises(LookupError):
            asyncio.run(fail_on_the_loop())
        unclosed = file.writer_sync()
        unclosed.write_many([1])
        unclosed.flush()
        del unclosed
        assert names_in(tmp_path) == []
    for thread in threading.enumerate():
        if thread.name.startswith("penstock"):
            thread.join(60)  # A dropped writer's threads are told to end, not waited for.
    assert open_files() == files
    assert threads() == others
