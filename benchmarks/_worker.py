"""One side of a comparison as a process: asked on stdin, answers with seconds on stdout.

Only the standard library, because it also runs in the environments of peers.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable, Mapping


def serve(works: Mapping[str, Callable[..., object]]) -> None:
    """Run works by name until stdin ends, and tell of each its result and how long it took."""
    # What a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        work = works[request.pop("work")]
        gc.collect()
        began = time.perf_counter()
        result = work(**request)
        seconds = time.perf_counter() - began
        answers.write(json.dumps({"seconds": seconds, "result": result}) + "\n")


def count(items: Iterable[object]) -> int:
    """Return how many items there are, by the loop that a user would write."""
    number = 0
    for _ in items:
        number += 1
    return number


async def count_async(items: AsyncIterable[object]) -> int:
    """Return how many items there are, by the loop that a user would write."""
    number = 0
    async for _ in items:
        number += 1
    return number


def processor_seconds() -> float:
    """Return the processor time of this process and of its children."""
    # Workers may be kept from epoch to epoch. First: this also waits for those that have ended.
    kept = sum(map(_seconds_of, multiprocessing.active_children()))
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return kept + sum(one.ru_utime + one.ru_stime for one in used)


def _seconds_of(child: multiprocessing.process.BaseProcess) -> float:
    """Return the processor time of a child that runs."""
    try:
        status = Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return 0
    # Behind the name, which may hold spaces, fields 14 and 15 of proc(5).
    ticks = status.rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def peak_bytes() -> int:
    """Return the most memory that this process has had resident."""
    try:
        # getrusage would begin with what the process that started this one had.
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
