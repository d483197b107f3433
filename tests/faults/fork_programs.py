"""What the tests of forks run: each function is a parent process, started afresh."""

from __future__ import annotations

import asyncio
import itertools
import json
import multiprocessing
import os
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.errors import UnsafeForkError
from penstock.jsonl import JsonlDir, JsonlFile

if TYPE_CHECKING:
    from collections.abc import Callable

Options = dict[str, str]


def count(source: JsonlDir | JsonlFile) -> int:
    return sum(1 for _ in source.iter_records_sync())


def attempt(call: Callable[[], Any]) -> dict[str, Any]:
    """Return what a call returns, or how it was refused."""
    try:
        return {"result": call()}
    except UnsafeForkError as refused:
        return {"refused": str(refused)}


def in_fork(call: Callable[[], Any]) -> dict[str, Any]:
    """Return what a call returns, or how it is refused, in a forked child that then just ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            os.write(writing, json.dumps(attempt(call)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return {"status": os.waitstatus_to_exitcode(status), **(json.loads(text) if text else {})}


def row_1_made_but_not_used(path: str, options: Options) -> dict[str, Any]:
    source = JsonlDir(path, options)
    child = in_fork(lambda: count(source))
    # The parent has not used it before and may do so now, and its children may not any more.
    return {"child": child, "parent": count(source), "later": in_fork(lambda: count(source))}


def row_2_used_in_the_parent(path: str, options: Options) -> dict[str, Any]:
    source = JsonlDir(path, options)
    before = count(source)
    return {"before": before, "child": in_fork(lambda: count(source)), "parent": count(source)}


def row_3_made_anew_in_the_child(path: str, options: Options) -> dict[str, Any]:
    before = count(JsonlDir(path, options))
    stop = threading.Event()
    counts = []

    def read_on() -> None:
        while not stop.is_set():
            counts.append(count(JsonlDir(path, options)))

    reader = threading.Thread(target=read_on)
    reader.start()
    children = [
        in_fork(lambda: count(JsonlDir(path, {**options, "timeout": "7"}))) for _ in range(5)
    ]
    stop.set()
    reader.join()
    return {"before": before, "children": children, "counts": sorted(set(counts))}


def row_4_workers(method: str, path: str, options: Options) -> dict[str, Any]:
    """Hand pickled files and directories to workers of a parent that has used its client."""
    folder = JsonlDir(path, options)
    shards = folder.shards_sync()
    context = multiprocessing.get_context(method)
    sources: list[JsonlDir | JsonlFile] = [folder, *shards]
    with context.Pool(1) as pool:
        by_pool = pool.map(_attempt_count, sources)
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        by_executor = list(executor.map(_attempt_count, sources))
    return {"pool": by_pool, "executor": by_executor, "parent": count(folder)}


def unused_workers(method: str, path: str, options: Options) -> dict[str, Any]:
    """The same in a parent that has not."""
    folder = JsonlDir(path, options)
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        by_pool = pool.map(_attempt_count, [folder])
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        by_executor = list(executor.map(_attempt_count, [folder]))
    return {"pool": by_pool, "executor": by_executor, "parent": count(folder)}


def error_through_workers(method: str, path: str, options: Options) -> list[str]:
    """Return the types of errors as they arrive from workers, one of them out of a fork."""
    folder = JsonlDir(path, options)
    count(folder)
    arrived = []
    context = multiprocessing.get_context(method)
    missing = JsonlDir(f"{path}-missing", options)
    with context.Pool(1) as pool:
        try:
            pool.apply(count, [missing])
        except Exception as failure:  # noqa: BLE001 (its type is the answer)
            arrived.append(type(failure).__name__)
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        arrived.append(type(executor.submit(count, missing).exception()).__name__)
    return arrived


def _attempt_count(source: JsonlDir | JsonlFile) -> dict[str, Any]:
    return attempt(lambda: count(source))


def child_that_exits(path: str, options: Options) -> dict[str, Any]:
    """Fork children that end as programs end: modules torn down, destructors run."""
    source = JsonlDir(path, options)
    stream = source.iter_records_sync()
    next(iter(stream))
    before = count(source)
    children = []
    for _ in range(5):
        child = os.fork()
        if child == 0:
            return {}
        children.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    stream.close()
    return {"before": before, "children": children, "parent": count(source)}


def grandchild(path: str, options: Options) -> dict[str, Any]:
    source = JsonlDir(path, options)
    count(source)
    return {
        "child": in_fork(lambda: in_fork(lambda: count(source))),
        "parent": count(source),
    }


def child_of_an_unused_parent(path: str, options: Options) -> dict[str, Any]:
    """The child uses its client, and then its own child may not."""
    source = JsonlDir(path, options)

    def use_and_fork() -> dict[str, Any]:
        return {"own": count(source), "grandchild": in_fork(lambda: count(source))}

    return in_fork(use_and_fork)


def fork_while_threads_read(path: str, options: Options, forks: int) -> dict[str, Any]:
    """Fork again and again, each time at another moment of what other threads do."""
    stop = threading.Event()
    counts: list[int] = []

    def read_on() -> None:
        while not stop.is_set():
            counts.append(count(JsonlDir(path, options)))

    threads = [threading.Thread(target=read_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    while not counts:
        pass
    refused = [in_fork(lambda: count(JsonlDir(path, options))) for _ in range(forks)]
    stop.set()
    for thread in threads:
        thread.join()
    return {
        "statuses": sorted({each["status"] for each in refused}),
        "refused": sum("refused" in each for each in refused),
        "counts": sorted(set(counts)),
    }


def async_child(path: str, options: Options) -> dict[str, Any]:
    source = JsonlDir(path, options)

    async def count_async() -> int:
        return len([record async for record in source.iter_records()])

    before = asyncio.run(count_async())
    child = in_fork(lambda: asyncio.run(count_async()))
    return {"before": before, "child": child, "parent": asyncio.run(count_async())}


def writing_child(path: str, options: Options) -> dict[str, Any]:
    """A parent has written; its child wants to."""

    def write(number: int) -> list[str]:
        with JsonlDir(path, options).writer_sync() as writer:
            writer.write({"n": number})
        return writer.published

    return {"before": write(0), "child": in_fork(lambda: write(1)), "parent": write(2)}


def child_that_goes_on_reading(path: str, options: Options) -> dict[str, Any]:
    """Fork in the middle of a stream whose next shards a thread is reading."""
    stream = JsonlDir(path, options).iter_records_sync()
    iterator = iter(stream)
    taken = [next(iterator) for _ in range(3)]
    child = in_fork(lambda: sum(1 for _ in iterator))
    rest = sum(1 for _ in iterator)
    return {"child": child, "parent": len(taken) + rest}


def child_that_goes_on_decoding(path: str) -> dict[str, Any]:
    """Fork in the middle of a stream of Arrow batches that threads decode."""
    batches = iter(JsonlFile(path).iter_arrow_batches_sync(10))
    rows = next(batches).num_rows
    child = in_fork(lambda: sum(batch.num_rows for batch in batches))
    return {"child": child, "parent": rows + sum(batch.num_rows for batch in batches)}


def child_that_drops_a_stream(path: str, options: Options, forks: int) -> list[int]:
    """Fork in the middle of a stream, at any moment of the thread's; the child just ends."""
    statuses = []
    for _ in range(forks):
        stream = JsonlDir(path, options).iter_records_sync(queue_size=1)
        iterator = iter(stream)
        next(iterator)
        child = os.fork()
        if child == 0:
            stream.close()
            del stream, iterator
            os._exit(0)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stream.close()
    return statuses


def child_with_its_parents_writer(path: str, options: Options, how: str) -> dict[str, Any]:
    """Fork while a writer is open; the child writes, closes, or leaves the block."""
    extension = ".jsonl.zst"
    writer = JsonlDir(path, options).writer_sync(extension, flush_bytes=1000, frame_bytes=1000)

    def in_child() -> object:
        if how == "write":
            writer.write({"from": "child"})
        elif how == "close":
            writer.close()
        elif how == "flush":
            writer.flush()
        return "nothing was said"

    with writer:
        writer.write_many({"n": n, "text": "x" * 100} for n in range(50))
        child = in_fork(in_child)
        writer.write_many({"n": n, "text": "x" * 100} for n in range(50, 100))
    return {"child": child, "published": len(writer.published)}


def child_that_leaves_its_parents_block(path: str, options: Options, how: str) -> dict[str, Any]:
    child = None
    statuses: list[int] = []
    try:
        with JsonlFile(path, options).writer_sync(flush_bytes=1000) as writer:
            writer.write_many({"n": n, "text": "x" * 100} for n in range(50))
            child = os.fork()
            if child == 0:
                if how == "exception":
                    _fail()
                if how == "exit":
                    sys.exit(5)
            else:
                statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                writer.write_many({"n": n} for n in range(50, 100))
    except LookupError:
        os._exit(6)
    except UnsafeForkError:
        os._exit(7)
    return {"statuses": statuses}


def _fail() -> None:
    raise LookupError


def many_children(path: str, options: Options) -> dict[str, Any]:
    """Fork before the first use, many times: every child has a client of its own."""
    source = JsonlDir(path, options)
    children = []
    for number in range(6):
        child = os.fork()
        if child == 0:
            with JsonlDir(f"{path}-out", options).writer_sync() as writer:
                writer.write_many({"n": n} for n in itertools.repeat(number, count(source)))
            os._exit(0)
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return {"statuses": statuses, "written": count(JsonlDir(f"{path}-out", options))}
