"""Streaming takes the memory of a few pieces, however large the file is."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import pyzstd

from penstock.jsonl import JsonlDir
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

TEXT_MIB = rounds(128, 2048)
ALLOWED_MIB = 96
LINE = b'{"n": 1, "nested": {"list": [1, 2.5, null]}, "text": "%s"}\n' % (b"x" * 2000)
BLOCK = LINE * ((1 << 20) // len(LINE))
ROWS = BLOCK.count(b"\n") * TEXT_MIB

# Counts what a program may write to, so that a file held in memory is refused at once; address
# space alone would count what allocators merely reserve.
PROGRAM = """
import asyncio, pathlib, re, resource, sys, threading
import pyarrow as pa
import penstock.jsonl._arrow
from penstock.jsonl import JsonlDir, JsonlFile

path, kind, door, schema, allowed = sys.argv[1:]
source = JsonlDir(path) if pathlib.Path(path).is_dir() else JsonlFile(path)
options = {} if kind == "records" else {"batch_size": 1000}
if schema == "given":
    options["schema"] = pa.schema({"n": pa.int64()})

def rows(item):
    return 1 if kind == "records" else len(item)

def read():
    return sum(map(rows, getattr(source, f"iter_{kind}_sync")(**options)))

async def read_async():
    total = 0
    async for item in getattr(source, f"iter_{kind}")(**options):
        total += rows(item)
    return total

threading.stack_size(1 << 20)  # as much as is reserved for each counts as well
status = pathlib.Path("/proc/self/status").read_text()
used = 1024 * int(re.search(r"VmData:\\s+(\\d+) kB", status)[1])
limit = used + int(allowed) * (1 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
print(read() if door == "sync" else asyncio.run(read_async()))
"""


def run(path: Path, kind: str, door: str, schema: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        # The default one takes its memory in large steps of its own.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "2",
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, path, kind, door, schema, str(ALLOWED_MIB)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("large")


@pytest.fixture(scope="module")
def large(place: Path) -> dict[str, Path]:
    """The same large text, stored in different ways."""
    plain = place / "plain.jsonl"
    with plain.open("wb") as file:
        for _ in range(TEXT_MIB):
            file.write(BLOCK)
    huge_frames = place / "huge-frames.jsonl.zst"
    with pyzstd.SeekableZstdFile(huge_frames, "wb") as packed:  # of a gibibyte each
        for _ in range(TEXT_MIB):
            packed.write(BLOCK)
    shards = JsonlDir(place / "shards")
    with shards.writer_sync(".jsonl.zst", max_bytes_per_shard=TEXT_MIB << 19) as writer:
        for _ in range(TEXT_MIB):
            writer.write_raw(BLOCK)
    return {
        "plain": plain,
        "huge frames": huge_frames,
        "shards": place / "shards",
    }


@pytest.mark.parametrize(
    ("stored", "kind", "door", "schema"),
    [
        ("plain", "records", "sync", ""),
        ("plain", "batches", "async", ""),
        ("plain", "arrow_batches", "sync", ""),
        ("huge frames", "records", "sync", ""),
        ("shards", "records", "async", ""),
        ("shards", "arrow_batches", "async", "given"),
    ],
)
def test_streaming_what_is_larger_than_memory_stays_flat(
    stored: str, kind: str, door: str, schema: str, large: dict[str, Path]
) -> None:
    done = run(large[stored], kind, door, schema)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(ROWS)]


def test_the_limit_would_stop_who_holds_the_file_in_memory(large: dict[str, Path]) -> None:
    held = PROGRAM.replace("def read():", "def read():\n    whole = source.open_sync().read()")
    done = subprocess.run(
        [sys.executable, "-c", held, large["plain"], "records", "sync", "", str(ALLOWED_MIB)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "MemoryError" in done.stderr
