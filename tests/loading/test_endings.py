"""However a program ends, no worker process outlives it, and nothing is left in shared memory."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

import penstock
from tests.faults.child import Child, run
from tests.loading import ending_programs
from tests.loading.ending_programs import WORKERS
from tests.loading.processes import descendants, left_in_shared_memory, shared_memory, still_there
from tests.rounds import LONG
from tests.servers.faults import Fault, stall

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.fault_proxy import FaultProxy
    from tests.servers.s3_server import S3Server

METHODS = ("fork", "forkserver", "spawn")
RECORDS = 500


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "some.jsonl"
    path.write_text("".join(f'{{"n": {number}}}\n' for number in range(RECORDS)))
    penstock.open(path)
    return str(path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_a_program_that_is_ended(number: signal.Signals, path: str) -> None:
    before = shared_memory()
    with contextlib.ExitStack() as stack:
        programs = [
            stack.enter_context(Child(ending_programs.go_on, path, method)) for method in METHODS
        ]
        for program in programs:
            assert program.hear() == "going"
        started = [descendants(program.pid) for program in programs]
        # What starts and tracks processes for Python is there beside the workers.
        assert all(len(each) >= WORKERS for each in started)
        for program in programs:
            if number == signal.SIGINT:
                os.killpg(program.pid, number)  # Ctrl-C reaches all processes of a terminal.
            else:
                os.kill(program.pid, number)
        assert [still_there(each) for each in started] == [[], [], []]
    assert left_in_shared_memory(before) == set()


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupt_while_workers_begin_is_the_programs_alone(method: str, path: str) -> None:
    with Child(ending_programs.is_interrupted, path, method) as program:
        assert program.result() == "interrupted"
        assert program.errors() == ""


WAYS = ("breaks_off", "drops_a_cycle", "drops", "raises", "leaves_the_first_of_two")


@pytest.mark.parametrize("method", METHODS)
def test_no_worker_outlives_a_loop_that_is_left(method: str, path: str) -> None:
    before = shared_memory()
    ways = WAYS if method == "fork" or LONG else WAYS[:1]  # Others take long to start.
    left = run(ending_programs.endings, path, method, ways)
    assert left == {way: [WORKERS, []] for way in ways}
    assert left_in_shared_memory(before) == set()


def test_fifty_epochs_keep_neither_memory_nor_files(path: str) -> None:
    for early, late in run(ending_programs.kept, path, [0, "auto", 2], [10, 50]):
        assert late["files"] == early["files"]
        assert late["bytes"] - early["bytes"] < 4 << 20


def test_storage_that_does_not_answer_is_named_and_the_program_can_end(
    s3_server: S3Server, bucket: str, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    lines = "".join(f'{{"n": {number}}}\n' for number in range(RECORDS))
    s3_server.put(bucket, "set/part-00000.jsonl", lines.encode())
    url, options = f"s3://{bucket}/set", fault_proxy.storage_options
    penstock.open(url, storage_options=options)
    with contextlib.ExitStack() as stack:
        programs = [
            stack.enter_context(
                Child(ending_programs.wait_for_storage, url, options, workers, str(tmp_path))
            )
            for workers in ("auto", 0, 2)
        ]
        for program in programs:
            assert program.hear() == f"read {-(-RECORDS // 3)}"
        fault_proxy.add(Fault(stall(), "GET", "part-", times=None))
        for program in programs:
            program.tell("go")
        for program in programs:
            told, rank, workers = program.result()
            assert told.startswith("rank 1 of 3 got no batch for 1 s. It waits for: s3://")
            assert f"{url}/part-00000.jsonl, bytes " in told
            assert "stall_timeout" in told
            assert (rank, workers) == (1, 0)
