"""The same records in every process and thread, however and whenever it was started."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

import penstock
from penstock.datasets import JsonlDataset
from penstock.errors import IndexTimeoutError
from penstock.index import create_default_jsonl_indexer
from penstock.index._folder import only_builder
from penstock.jsonl import JsonlDir
from tests.datasets.process_programs import open_and_count, private_bytes, wrong_records
from tests.faults.halting import halting
from tests.rounds import rounds

if TYPE_CHECKING:
    from pathlib import Path

READS = rounds(3000, 100_000)
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@pytest.fixture(params=[".jsonl", ".jsonl.zst"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> JsonlDataset:
    directory = JsonlDir(tmp_path / "data")
    with directory.writer_sync(request.param, 2000, frame_bytes=20_000) as writer:
        writer.write_many([{"id": n, "text": "x" * (n % 97)} for n in range(10_000)])
    create_default_jsonl_indexer(tmp_path / "data")()
    return JsonlDataset.create_from_index_on_filesystem(tmp_path / "data")


@pytest.mark.parametrize("batch", [1, 100])
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_read_right_records_after_the_parent_has_read(
    method: str, batch: int, source: JsonlDataset
) -> None:
    assert wrong_records(source, 0, 500, 10) == 0
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(4, context) as pool:
        wrong = [pool.submit(wrong_records, source, seed, READS, batch) for seed in range(4)]
        assert [future.result() for future in wrong] == [0] * 4
    assert wrong_records(source, 5, 500, 10) == 0


def test_threads_read_right_records(source: JsonlDataset) -> None:
    with ThreadPoolExecutor(8) as pool:
        wrong = list(pool.map(lambda seed: wrong_records(source, seed, READS, 7), range(8)))
    assert wrong == [0] * 8


def test_a_fork_while_other_threads_read_does_not_hang(source: JsonlDataset) -> None:
    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(wrong_records, source, seed, READS, 10) for seed in range(4)]
        for _ in range(rounds(5, 50)):
            process = multiprocessing.get_context("fork").Process(
                target=wrong_records, args=(source, 9, 200, 10)
            )
            process.start()
            process.join(30)
            assert process.exitcode == 0
        assert [future.result() for future in reading] == [0] * 4


def test_a_pickled_dataset_is_small(source: JsonlDataset) -> None:
    list(source)
    assert len(pickle.dumps(source)) < 1000
    again = pickle.loads(pickle.dumps(source))
    assert again[9999] == source[9999]
    assert again.fingerprint == source.fingerprint


def test_workers_do_not_hold_the_index(tmp_path: Path) -> None:
    """Half a gigabyte of index, in each of several workers: none has it for itself."""
    data = tmp_path / "a.jsonl"
    data.write_text('{"id":0}\n')
    create_default_jsonl_indexer(tmp_path)()
    samples = rounds(10**7, 10**8)
    rows = tmp_path / "index" / "sample_locations.bin"
    one = np.fromfile(rows, "<u8")
    with rows.open("wb") as file:  # All alike, and really there: not a sparse file.
        for _ in range(samples // 10**6):
            file.write(np.tile(one, 10**6).tobytes())
    (tmp_path / "index" / "meta.json").unlink()
    source = JsonlDataset.create_from_index_on_filesystem(tmp_path)
    assert len(source) == samples
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        private = list(pool.map(private_bytes, [source] * 4))
    assert max(private) < 24 * samples / 4 + (100 << 20 if samples < 10**8 else 0)


def test_of_many_processes_one_builds_and_all_open_the_same(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with JsonlDir(directory).writer_sync(max_records_per_shard=500) as writer:
        writer.write_many([{"id": n} for n in range(5000)])
    with ProcessPoolExecutor(8, multiprocessing.get_context("spawn")) as pool:
        start = time.time() + 1.5
        opened = list(pool.map(open_and_count, [str(directory)] * 8, [start] * 8))
    assert set(opened) == {(5000, penstock.open(directory).fingerprint)}
    assert [p.name for p in directory.iterdir() if p.name.startswith(".")] == []


def test_waiting_for_a_builder_ends(tmp_path: Path) -> None:
    with (
        only_builder(str(tmp_path / "index"), 1),
        pytest.raises(IndexTimeoutError, match="penstock index"),
        only_builder(str(tmp_path / "index"), 0.2),
    ):
        pass


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_builder_that_is_ended_leaves_no_half_index(
    number: signal.Signals, tmp_path: Path
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    line = b'{"id": 1}\n' * 100_000
    with (directory / "a.jsonl").open("wb") as file:
        for _ in range(30):
            file.write(line)
    program = "import sys, penstock\nprint('building', flush=True)\npenstock.open(sys.argv[1])\n"
    ended = 0
    for turn in range(rounds(3, 20)):
        # The first one is surely ended in time.
        env = {**os.environ, **halting("index")} if not turn else None
        with subprocess.Popen(
            [sys.executable, "-c", program, str(directory)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            deadline = time.monotonic() + 10
            while process.poll() is None and time.monotonic() < deadline:
                if any(path.name.startswith(".index.") for path in directory.iterdir()):
                    break
            os.kill(process.pid, number)
            process.wait(20)
        if not (directory / "index").exists():
            ended += 1
            left = [path.name for path in directory.iterdir() if path.name != "a.jsonl"]
            assert all(name.startswith(".index.") for name in left)
            if number == signal.SIGINT:
                assert left == []
        else:
            (directory / "index" / "meta.json").read_text()
            break
    assert len(penstock.open(directory)) == 3_000_000
    assert sorted(path.name for path in directory.iterdir()) == ["a.jsonl", "index"]
    assert ended


def test_replacing_an_index_is_never_seen_as_no_index(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    create_default_jsonl_indexer(tmp_path)()
    with ThreadPoolExecutor(2) as pool:
        done = pool.submit(
            lambda: [
                create_default_jsonl_indexer(tmp_path, overwrite=True)()
                for _ in range(rounds(20, 300))
            ]
        )
        while not done.done():
            assert penstock.open(tmp_path)[0] == {"id": 1}
        done.result()
