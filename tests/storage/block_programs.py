"""Processes that share a cache of blocks."""

from __future__ import annotations

import logging
import os
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.storage import Block, BlockCache
from penstock.storage.cache._room import Room, private_folder

if TYPE_CHECKING:
    from collections.abc import Callable


def key(number: int) -> bytes:
    """Return the key of a block; neighbours have other locks."""
    return bytes([number % 256]) * 16 + number.to_bytes(4, "little")


def content(number: int, size: int = 10_000) -> bytes:
    """Return what a block holds."""
    return number.to_bytes(4, "little") * (size // 4)


def block(number: int, make: Callable[[], object] = lambda: None, size: int = 10_000) -> Block:
    """Return a block that tells `make` when it is fetched."""

    def fetch() -> bytes:
        make()
        return content(number, size)

    return Block(f"s3://bucket/{number}", 0, size, key(number), fetch)


def get_many(folder: str, log: str, count: int, threads: int) -> int:
    """Get all blocks by several threads, each in another order; note what is fetched."""
    cache = BlockCache(Path(folder), 10**9)
    print("ready", flush=True)
    input()

    def note(number: int) -> None:
        with Path(log).open("a") as file:
            file.write(f"{number}\n")
        time.sleep(0.002)

    def get(thread: int) -> int:
        numbers = [(place * 7 + thread * 11) % count for place in range(count)]
        found = cache.get_all([block(n, lambda n=n: note(n)) for n in numbers], at_once=4)  # type: ignore[misc]
        return sum(
            one.data.to_pybytes() == content(n) for n, one in zip(numbers, found, strict=True)
        )

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(get, range(threads)))


def fetch_for_ever(folder: str) -> None:
    """Hold the lock of block 0 and never bring it."""

    def stall() -> None:
        print("fetching", flush=True)
        time.sleep(600)

    BlockCache(Path(folder), 10**9).get(block(0, stall))


def die_while_writing(folder: str) -> None:
    """Be killed with half of block 0 in its file."""
    room = Room(private_folder(Path(folder)), 10**9)
    with room.reserved(key(0), 10_064) as descriptor:
        os.write(descriptor, b"half")
        os.kill(os.getpid(), signal.SIGKILL)


def get_without_space(folder: str, limit: int) -> dict[str, object]:
    """Get two blocks where no file may have their size; return what came of it."""
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("penstock.storage").addHandler(handler)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    cache = BlockCache(Path(folder), 10**9)
    found = [cache.get(block(number)) for number in (0, 1, 0)]
    return {
        "right": [
            one.data.to_pybytes() == content(n) for one, n in zip(found, (0, 1, 0), strict=True)
        ],
        "mapped": [one.is_mapped for one in found],
        "told": told,
        "left": sorted(path.name for path in Path(folder).glob("*.block*")),
    }
