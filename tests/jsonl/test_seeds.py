"""The code of the two documents that JSON Lines in Penstock began with, block by block.

Only the import line is another one, and there is no task decorator. What a document leaves to its
reader (`process`, `large_dataset` …) is a fixture or a local name.
"""

# ruff: noqa: ANN201, ANN202, ARG001, F841, PERF401 (the documents' own code, as it stands there)

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from penstock.jsonl import JsonlDir, JsonlFile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_REMOTE", str(tmp_path / "remote"))
    return tmp_path / "remote"


# Streaming IO with JSONL Files


async def write_data() -> JsonlFile:
    # Create a remote file reference
    f = JsonlFile.new_remote("data.jsonl")

    # Use the async writer context manager
    async with f.writer() as w:
        for i in range(1000):
            await w.write({"id": i, "message": f"record-{i}"})

    return f


async def read_data(f: JsonlFile):
    # Stream records one by one
    async for record in f.iter_records():
        print(f"Processing record: {record['id']}")


def process_sync() -> JsonlFile:
    f = JsonlFile.new_remote("data_sync.jsonl")

    # Use writer_sync for synchronous buffered writes
    with f.writer_sync() as w:
        w.write_many([{"key": "val1"}, {"key": "val2"}])
        w.write({"key": "val3"})

    # Iterate records synchronously
    for record in f.iter_records_sync():
        print(record)

    return f


async def compressed_io():
    # The .zst extension triggers transparent compression
    f = JsonlFile.new_remote("large_data.jsonl.zst")

    async with f.writer(compression_level=5) as w:
        await w.write({"data": "compressed content"})

    # Reading works exactly the same way
    async for record in f.iter_records():
        assert record["data"] == "compressed content"


async def to_arrow(f: JsonlFile):
    import pyarrow as pa

    # Stream in batches of 4096 rows
    async for batch in f.iter_arrow_batches(batch_size=4096):
        # batch is a pyarrow.RecordBatch
        print(f"Received batch with {batch.num_rows} rows")

        # Example: Convert batch to a table
        table = pa.Table.from_batches([batch])
        # ... process table ...


def test_records_stream_asynchronously(capsys: pytest.CaptureFixture[str], remote: Path) -> None:
    f = asyncio.run(write_data())
    assert f.path.startswith(f"{remote}/")
    assert f.path.endswith("/data.jsonl")
    asyncio.run(read_data(f))
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"Processing record: {i}" for i in range(1000)]


def test_records_stream_synchronously(capsys: pytest.CaptureFixture[str]) -> None:
    process_sync()
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["{'key': 'val1'}", "{'key': 'val2'}", "{'key': 'val3'}"]


def test_compression_is_transparent(remote: Path) -> None:
    asyncio.run(compressed_io())
    (written,) = remote.glob("*/large_data.jsonl.zst")
    assert written.read_bytes().startswith(b"\x28\xb5\x2f\xfd")  # zstd's magic number


def test_records_stream_to_arrow(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    f = JsonlFile(path=str(tmp_path / "many.jsonl"))
    with f.writer_sync() as w:
        w.write_many({"id": i} for i in range(10_000))
    asyncio.run(to_arrow(f))
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"Received batch with {rows} rows" for rows in (4096, 4096, 1808)]


def test_arrow_without_pyarrow_is_a_module_not_found_error(tmp_path: Path) -> None:
    program = """
import asyncio, sys
sys.modules["pyarrow"] = None
from penstock.jsonl import JsonlFile
f = JsonlFile(sys.argv[1])
with f.writer_sync() as w:
    w.write({"id": 1})
assert list(f.iter_records_sync()) == [{"id": 1}]

async def take():
    async for batch in f.iter_arrow_batches():
        pass

for call in (lambda: asyncio.run(take()), lambda: list(f.iter_arrow_batches_sync())):
    try:
        call()
    except ModuleNotFoundError as error:
        print(error.name)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "a.jsonl"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["pyarrow", "pyarrow"]


@pytest.fixture
def corrupt(tmp_path: Path) -> JsonlFile:
    path = tmp_path / "corrupt.jsonl"
    path.write_bytes(b'{"id": 1}\nnot json\n{"id": 2}\n{"id":\n{"id": 3}\n')
    return JsonlFile(path)


def test_corrupt_lines_are_skipped(corrupt: JsonlFile, caplog: pytest.LogCaptureFixture) -> None:
    f = corrupt
    seen: list[Any] = []
    process = seen.append

    async def block():
        async for record in f.iter_records(on_error="skip"):
            # Corrupt lines are logged as warnings and skipped
            process(record)

    asyncio.run(block())
    assert seen == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert {entry.levelno for entry in caplog.records} == {logging.WARNING}
    assert "line 2" in caplog.text
    assert "line 4" in caplog.text


def test_errors_are_handled_by_a_function(
    corrupt: JsonlFile, capsys: pytest.CaptureFixture[str]
) -> None:
    f = corrupt
    seen: list[Any] = []
    process = seen.append

    async def block():
        def my_handler(line_number: int, raw_line: bytes, exc: Exception):
            print(f"Failed at line {line_number}: {exc}")

        async for record in f.iter_records(on_error=my_handler):
            process(record)

    asyncio.run(block())
    assert seen == [{"id": 1}, {"id": 2}, {"id": 3}]
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in printed] == ["Failed at line 2", "Failed at line 4"]


@pytest.mark.parametrize("name", ["tuned.jsonl.zst", "tuned.jsonl"])
def test_buffer_and_compression_can_be_tuned(name: str) -> None:
    f = JsonlFile.new_remote(name)
    large_dataset = [{"id": i} for i in range(1000)]

    async def block():
        # High-throughput write with large buffer and high compression
        async with f.writer(flush_bytes=10 * 1024 * 1024, compression_level=9) as w:
            await w.write_many(large_dataset)

    asyncio.run(block())
    assert list(f.iter_records_sync()) == large_dataset


# Managing Sharded JSONL Datasets


async def create_sharded_dataset() -> JsonlDir:
    # Create a new remote directory for shards
    d = JsonlDir.new_remote("output_shards")

    # Use the writer context manager to ensure all shards are flushed and closed
    async with d.writer(max_records_per_shard=1000) as w:
        for i in range(5000):
            # Automatically rotates every 1000 records
            await w.write({"id": i, "data": "..."})
    return d


def shard_names(d: JsonlDir) -> list[str]:
    return [shard.path.rpartition("/")[2] for shard in d.shards_sync()]


def test_a_sharded_dataset_is_written_and_processed() -> None:
    d = asyncio.run(create_sharded_dataset())
    assert d.path.endswith("/output_shards")
    assert shard_names(d) == [f"part-0000{n}.jsonl" for n in range(5)]
    assert [sum(1 for _ in shard.iter_records_sync()) for shard in d.shards_sync()] == [1000] * 5
    seen: list[Any] = []

    async def do_heavy_processing(record: dict[str, Any]) -> None:
        seen.append(record["id"])
        await asyncio.sleep(0)

    async def process_dataset(d: JsonlDir):
        # prefetch=True (default) overlaps network I/O with processing
        async for record in d.iter_records(prefetch=True):
            await do_heavy_processing(record)

    asyncio.run(process_dataset(d))
    assert seen == list(range(5000))


def test_a_directory_is_appended_to(tmp_path: Path) -> None:
    d = JsonlDir(tmp_path)
    for n in range(2):
        (tmp_path / f"part-0000{n}.jsonl").write_text(f'{{"old": {n}}}\n')

    async def block():
        # If the directory already contains part-00000.jsonl and part-00001.jsonl
        async with d.writer() as w:
            # This writer will start at part-00002.jsonl
            await w.write({"new": "data"})

    asyncio.run(block())
    assert shard_names(d) == [f"part-0000{n}.jsonl" for n in range(3)]
    assert (tmp_path / "part-00002.jsonl").read_text() == '{"new":"data"}\n'
    assert list(d.iter_records_sync()) == [{"old": 0}, {"old": 1}, {"new": "data"}]


def test_shards_are_compressed_and_mixed_ones_are_read_in_batches(tmp_path: Path) -> None:
    d = JsonlDir(tmp_path)
    record = {"id": -1}
    with d.writer_sync() as plain:
        plain.write_many({"id": i} for i in range(1200))
    sizes = []
    rows = []

    async def block():
        async with d.writer(shard_extension=".jsonl.zst", compression_level=3) as w:
            await w.write(record)

        async for batch in d.iter_batches(batch_size=500):
            # Process 500 records at a time
            sizes.append(len(batch))

        async for arrow_batch in d.iter_arrow_batches():
            # Work with PyArrow RecordBatches
            rows.append(arrow_batch.num_rows)

    asyncio.run(block())
    assert shard_names(d) == ["part-00000.jsonl", "part-00001.jsonl.zst"]
    assert list(d.iter_records_sync())[-1] == record
    assert sizes == [500, 500, 201]
    assert rows == [1201]
